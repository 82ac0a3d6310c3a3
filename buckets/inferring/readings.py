"""Proposals of the models `reading` and `timeseries`: a document a reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from buckets.inferring.fields import is_number
from buckets.inferring.proposal import (
    NEARLY_ALL,
    Proposal,
    Seen,
    ask_of_other_times,
    choose_clock,
    choose_series,
    names_of,
)
from buckets.inferring.times import Time
from buckets.inferring.values import Columns, numeric
from config.checks.names import field_fault


def propose(seen: Seen) -> Iterator[Proposal]:
    """Yields readings with values in fields, and those with attributes."""
    times = seen.times
    if not times:
        return
    for array, key, value in (None, None, None), *_attribute_arrays(seen):
        proposal = Proposal({"model": "reading", "time_field": times[0].path})
        if times[0].key is not None:
            proposal.keys["time_unit"] = times[0].key
        ask_of_other_times(times[0], times, proposal.notes, "time_field")
        choose_clock(seen.single, proposal)
        names = names_of(seen, [])
        offset = proposal.keys.get("local_offset_field")
        names = {path: it for path, it in names.items() if path != offset}
        choose_series(names, times[0].values, seen, times[0].path, proposal)
        used = {*proposal.keys["series_fields"], offset, *(it.path for it in times), "_id"}
        columns: Columns = {path: it for path, it in seen.fields.single.items() if path not in used}
        if array is not None:
            columns = _attributes(seen.fields.several[array], str(key), str(value))
            proposal.keys |= {"attributes_field": array, "attribute_key": key, "attribute_value": value}
        proposal.keys["value_fields"] = numeric(columns, proposal.notes)
        yield proposal


def propose_native(seen: Seen, options: Mapping[str, str]) -> Iterator[Proposal]:
    """Yields what a native time-series collection is. `options`: its timeField and metaField."""
    time, meta = options["timeField"], options.get("metaField")
    under = f"{meta}." if meta else "\0"
    inside = {path: it for path, it in seen.fields.single.items() if path == meta or path.startswith(under)}
    always = {path for path in inside if path in seen.fields.always()}
    whole = meta is not None and (len(always) < len(inside) or not inside)
    for array, key, value in (None, None, None), *_attribute_arrays(seen):
        proposal = Proposal({"model": "timeseries", "time_field": time})
        proposal.notes.say("time_field", "its timeField")
        fields = [str(meta)] if whole else list(inside)
        proposal.keys["series_fields"] = fields
        proposal.notes.say("series_fields", "its metaField" if meta else "it has no metaField")
        times = {it.path for it in seen.times}
        columns: Columns = {
            path: it
            for path, it in seen.fields.single.items()
            if path not in inside and path not in {*times, time, "_id"}
        }
        choose_clock({path: it for path, it in columns.items() if path in seen.single}, proposal)
        columns = {
            path: it for path, it in columns.items() if path != proposal.keys.get("local_offset_field")
        }
        if array is not None:
            columns = _attributes(seen.fields.several[array], str(key), str(value))
            proposal.keys |= {"attributes_field": array, "attribute_key": key, "attribute_value": value}
        proposal.keys["value_fields"] = sorted(numeric(columns, proposal.notes))
        yield proposal


def _attribute_arrays(seen: Seen) -> Iterator[tuple[str, str, str]]:
    """Yields each array of names and values, with the fields of these."""
    for path, held in seen.fields.several.items():
        arrays = [it for it in held if isinstance(it, list)]
        elements = [it for array in arrays for it in array]
        if not elements or not all(isinstance(it, dict) for it in elements):
            continue
        common = set.intersection(*(set(it) for it in elements))
        keys = [it for it in sorted(common) if all(isinstance(one[it], str) for one in elements)]
        for key in keys:
            names = [len({one[key] for one in array}) == len(array) for array in arrays]
            values = [it for it in sorted(common - {key}) if any(is_number(one[it]) for one in elements)]
            if values and sum(names) >= NEARLY_ALL * len(names) and not field_fault(f"{key}.{values[0]}"):
                yield path, key, values[0]
                break


def _attributes(held: list[Any], key: str, value: str) -> Columns:
    """Returns what each attribute holds, by its name."""
    columns: dict[str, list[Any]] = {}
    for array in held:
        for one in array or ():
            if not field_fault(one[key]) and "*" not in one[key]:
                columns.setdefault(one[key], []).append(one[value])
    return columns


def title(time: Time) -> str:
    """Returns what is said of a reading's time."""
    return f"a document a reading, at {time.path}"
