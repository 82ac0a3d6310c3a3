"""Proposals of the models `reading` and `timeseries`: a document a reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bucketwise.buckets.inferring.fields import BOOKKEEPING, hints, is_number, is_text
from bucketwise.buckets.inferring.proposal import (
    NEARLY_ALL,
    Evidence,
    Proposal,
    choose_clock,
    choose_series,
    choose_time,
    choose_values,
    names_of,
)
from bucketwise.buckets.inferring.texts import is_time_of_day
from bucketwise.buckets.inferring.things import ask_of_things, choose_states
from bucketwise.buckets.inferring.times import is_day_of, times_in
from bucketwise.buckets.inferring.unread import unread
from bucketwise.buckets.inferring.values import numeric
from bucketwise.config.checks.names import field_fault


class Attributes(NamedTuple):
    """An array of names and values, with the fields of these."""

    array: str
    key: str
    value: str


def propose(evidence: Evidence) -> Iterator[Proposal]:
    """Yields readings with values in fields, and those with attributes."""
    times = evidence.times
    if not times:
        return
    finer = [it for it in times if is_day_of(times[0], it) and not hints(it.path, BOOKKEEPING)]
    time = (finer or times)[0]
    for attributes in (None, *_attribute_arrays(evidence)):
        proposal = Proposal({"model": "reading"}, "one reading each")
        choose_time(time, evidence, proposal)
        choose_clock(evidence.single, proposal)
        names = names_of(evidence, [proposal.keys.get("local_offset_field", "")])
        choose_series(names, time.values, evidence, time.path, proposal)
        _choose_values(evidence, proposal.keys["series_fields"], attributes, proposal)
        if attributes is None and not proposal.keys["value_fields"]:
            choose_states(names, time.values, {it: it for it in names}, proposal)
        ask_of_things(names, time.values, proposal)
        series, values = proposal.keys["series_fields"], proposal.keys["value_fields"]
        proposal.refusal = unread(time, series, values, evidence)
        yield proposal


def propose_native(evidence: Evidence, options: Mapping[str, str]) -> Iterator[Proposal]:
    """Yields policies for a native time-series collection. `options`: its timeField and metaField."""
    time, meta = options["timeField"], options.get("metaField")
    inside = [it for it in evidence.fields.single if it == meta or it.startswith(f"{meta}.")]
    is_whole = meta is not None and not (inside and set(inside) <= set(evidence.fields.in_most()))
    for attributes in (None, *_attribute_arrays(evidence)):
        proposal = Proposal({"model": "timeseries", "time_field": time}, "one measurement each")
        proposal.notes.add_evidence("time_field", "its timeField")
        proposal.keys["series_fields"] = [meta] if is_whole else inside
        proposal.notes.add_evidence("series_fields", "its metaField" if meta else "it has no metaField")
        choose_clock({path: it for path, it in evidence.single.items() if path not in inside}, proposal)
        _choose_values(evidence, [time, *inside], attributes, proposal)
        proposal.keys["value_fields"].sort()  # the server gives fields in any order
        yield proposal


def _choose_values(
    evidence: Evidence, used: list[str], attributes: Attributes | None, proposal: Proposal
) -> None:
    """Puts the value fields into the proposal: single fields that are not used otherwise, or attributes."""
    if attributes is not None:
        columns = _by_name(evidence.fields.several[attributes.array], attributes)
        proposal.keys |= {
            "attributes_field": attributes.array,
            "attribute_key": attributes.key,
            "attribute_value": attributes.value,
        }
    else:
        taken = {
            *used,
            *(path for it in evidence.times for path in it.used),
            proposal.keys.get("local_offset_field"),
        }
        columns = {path: it for path, it in evidence.fields.single.items() if path not in taken}
    choose_values(columns, numeric(columns, proposal.notes), proposal)


def _attribute_arrays(evidence: Evidence) -> Iterator[Attributes]:
    """Yields each array of names and values."""
    for path, values_of_path in evidence.fields.several.items():
        arrays = [it for it in values_of_path if isinstance(it, list)]
        elements = [it for array in arrays for it in array]
        if not elements or not all(isinstance(it, dict) for it in elements):
            continue
        common = set.intersection(*(set(it) for it in elements))
        keys = [it for it in sorted(common) if _are_names([element[it] for element in elements])]
        for key in keys:
            names = [len({element[key] for element in array}) == len(array) for array in arrays]
            values = [
                it for it in sorted(common - {key}) if any(is_number(element[it]) for element in elements)
            ]
            if values and sum(names) >= NEARLY_ALL * len(names) and not field_fault(f"{key}.{values[0]}"):
                yield Attributes(path, key, values[0])
                break


def _are_names(values: list[Any]) -> bool:
    """Returns whether these are texts, and no times."""
    return all(map(is_text, values)) and not is_time_of_day(values) and not times_in({"": values})


def _by_name(arrays: list[Any], attributes: Attributes) -> dict[str, list[Any]]:
    """Returns what each attribute holds."""
    columns: dict[str, list[Any]] = {}
    for element in (element for array in arrays for element in array or ()):
        name = element[attributes.key]
        if not field_fault(name) and "*" not in name:
            columns.setdefault(name, []).append(element[attributes.value])
    return columns
