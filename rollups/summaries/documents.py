"""Summaries as MongoDB documents: what people read, and beside it what merging needs.

Each value field's sub-document ends with `state`: a byte of version, which parts it lacks, then what the
readable keys of each statistic cannot carry (exact sums, the `_id`s of first and last, the percentile bins).
Nulls are left out, but for those of steps, and so are zeros of what is mostly zero. Where the policy expects
an interval, the summary ends with `coverage`: which intervals hold a reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import bson
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from bucketwise.buckets.bson.types import DECODED
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import as_date
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import LOCAL, Level, Span
from bucketwise.rollups.calendar.windows import HOUR, to_ms
from bucketwise.rollups.statistics import FieldState, FieldStatistics, columns_of, statistics_of
from bucketwise.rollups.statistics.base import PARTS, Statistic, Stored, VarintReader, VarintWriter
from bucketwise.rollups.summaries import coverage
from bucketwise.rollups.summaries.summary import State, closed

STATE_VERSION = 2

OPTIONS = DECODED


def identity(policy: Policy, series: Series, start_ms: int) -> bytes:
    """Returns the BSON of a summary's `_id`: {series: {…}, start}."""
    return bson.encode(
        {"series": series_document(policy, series), "start": DatetimeMS(start_ms)}, codec_options=OPTIONS
    )


def summary(policy: Policy, level: Level, series: Series, window: Span, state: State) -> bytes:
    """Returns the BSON of a summary. That of a day tells its time zone, and its length in hours."""
    extra: dict[str, Any] = {}
    if level.zone_name is not None:
        hours = (window[1] - window[0]) / HOUR
        extra = {"timezone": level.zone_name, "hours": int(hours) if hours.is_integer() else hours}
    return _encode(policy, series, *window, extra, state)


def of_cell(policy: Policy, series: Series, span: Span, state: State, *, local: bool) -> bytes:
    """Returns the BSON of the state of a series in a stretch of time, kept as summaries keep theirs. `local`:
    it goes by the readings' own clocks."""
    return _encode(policy, series, *span, {"timezone": LOCAL} if local else {}, state)


def state_of(document: Mapping[str, Any], policy: Policy, percents: Sequence[float] | None = None) -> State:
    """Returns the mergeable state of a summary read from MongoDB. `percents`: the percentiles that are
    wanted; None: the policy's. Raises ValueError where it has no sound one, or lacks what these need."""
    fields = statistics_of(policy, percents)
    values = {name: _field_state(value_at(document, name), name, kinds) for name, kinds in fields.items()}
    interval = coverage.interval_of(policy)
    if interval is None:
        return State(document["count"], values)
    occupied = coverage.unpack(document.get("coverage"), to_ms(document["start"]), interval)
    return State(document["count"], values, occupied)


def series_of(policy: Policy, document: Mapping[str, Any]) -> Series:
    """Returns the series that a summary stands for."""
    found = [value_at(document["_id"]["series"], name) for name in policy.series_names]
    return tuple(int(value) if type(value) is Int64 else value for value in found)


def first_instants(policy: Policy, document: Mapping[str, Any]) -> dict[str, int]:
    """Returns when the first number of each value field, or the first state that is a text, was read
    (milliseconds), where its summary tells."""
    found = {}
    for name, kinds in statistics_of(policy).items():
        told = value_at(document, name)
        if not isinstance(told, Mapping):
            continue
        if name in policy.text_states and told.get("changes") is not None:
            with suppress(ValueError):  # made with other settings
                found[name] = _field_state(told, name, kinds)[-1][1][0]
        if name in found:
            continue
        if told.get("first_at") is not None:
            found[name] = to_ms(told["first_at"])
        elif told.get("count") and (stored := _stored(told)) is not None:
            _moments, (first, _last) = kinds[0].unpack(stored), kinds[1].unpack(stored)
            found[name] = first[0]
    return found


def is_of_series(policy: Policy, document: Mapping[str, Any]) -> bool:
    """Returns whether a summary's series has the fields that the policy has now."""
    identity = document["_id"]
    series = identity.get("series") if isinstance(identity, Mapping) else None
    return isinstance(series, Mapping) and set(series) == {it.split(".")[0] for it in policy.series_names}


def state_projection(policy: Policy) -> dict[str, int]:
    """Returns a projection without the fields that `state_of` does not need: percentiles, mostly."""
    fields = statistics_of(policy).items()
    return {f"{name}.{it.key}": 0 for name, kinds in fields for it in columns_of(kinds) if it.is_derived}


def statistics(
    state: State, fields: FieldStatistics, completeness: coverage.Completeness | None
) -> dict[str, Any]:
    """Returns a closed state as a summary shows it to people; `values` has each value field by its name."""
    values = {name: _dated(_shown(fields[name], value)) for name, value in state.values.items()}
    complete = _dated(_completeness(completeness)) if completeness else {}
    return {"count": state.count, **complete, "values": values}


def _dated(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the document with aware datetimes."""
    return {key: as_date(int(it)) if isinstance(it, DatetimeMS) else it for key, it in document.items()}


def _encode(
    policy: Policy, series: Series, start_ms: int, end_ms: int, extra: Mapping[str, Any], state: State
) -> bytes:
    start = DatetimeMS(start_ms)
    fields = series_document(policy, series)
    document: dict[str, Any] = {"_id": {"series": fields, "start": start}}
    for name, value in zip(policy.series_names, series, strict=True):
        if name != "_id":  # the summary has its own
            _put(document, name, value)
    document |= {"start": start, "end": DatetimeMS(end_ms), **extra, "count": state.count}
    interval = coverage.interval_of(policy)
    if interval is not None:
        document |= _completeness(coverage.measure(state.occupied, start_ms, end_ms, interval))
    by_field = statistics_of(policy)
    shown = closed(by_field, state, (start_ms, end_ms)).values
    for name, kinds in by_field.items():
        _put(document, name, _value_document(kinds, state.values[name], shown[name]))
    if interval is not None:
        document["coverage"] = coverage.pack(state.occupied, start_ms, interval)
    return bson.encode(document, codec_options=OPTIONS)


def _completeness(found: coverage.Completeness) -> dict[str, Any]:
    seconds = found.hole_ms / 1000
    return {
        "expected": found.expected,
        "missing": found.missing,
        "longest_hole": int(seconds) if seconds.is_integer() else seconds,
        "longest_hole_at": DatetimeMS(found.hole_at) if found.hole_ms else None,
    }


def series_document(policy: Policy, series: Series) -> dict[str, Any]:
    """Returns a series as the `_id` of a summary names it."""
    nested: dict[str, Any] = {}
    for name, value in zip(policy.series_names, series, strict=True):
        _put(nested, name, value)
    return nested


def _value_document(kinds: Sequence[Statistic[Any]], value: FieldState, shown: FieldState) -> dict[str, Any]:
    """Returns the sub-document of a value field, given its state and what is shown of it."""
    writer, count = VarintWriter(), value[0][0]
    lacks = {part for kind, state in zip(kinds, value, strict=True) for part in kind.lacks(state, count)}
    writer.number(STATE_VERSION)
    writer.number(sum(1 << PARTS.index(part) for part in lacks))
    for kind, state in zip(kinds, value, strict=True):
        kind.pack(state, writer, lacks)
    silent = [it.key for it in columns_of(kinds) if it.has_silent_zero]
    found = {
        key: it
        for kind, state in zip(kinds, shown, strict=True)
        for key, it in kind.told(state, shown[0]).items()
        if (it is not None or kind.is_ordered) and not (it == 0 and key in silent)
    }
    return {**found, "state": bytes(writer.data)}


def filled(policy: Policy, document: dict[str, Any]) -> dict[str, Any]:
    """Returns a summary with all keys of its value fields: null where it does not tell one."""
    for name, kinds in statistics_of(policy).items():
        found = value_at(document, name)
        if isinstance(found, Mapping):
            _put(document, name, _filled(found, kinds))
    return document


def lacks_some(policy: Policy, document: Mapping[str, Any]) -> bool:
    """Returns whether a summary lacks anything that its policy keeps: it was made with other settings."""
    for name, kinds in statistics_of(policy).items():
        told = value_at(document, name)
        stored = _stored(told) if isinstance(told, Mapping) and told.get("count") else None
        wanted = {part for kind in kinds for part in kind.parts if part in kind.kept.parts}
        if stored is not None and not all(map(stored.holds, wanted)):
            return True
    return False


def _filled(found: Mapping[str, Any], kinds: Sequence[Statistic[Any]]) -> dict[str, Any]:
    columns = columns_of(kinds)
    if all(it.key in found for it in columns):
        return dict(found)
    stored = _stored(found)
    values: dict[str, Any] = {}
    for key, _, _, has_silent_zero in columns:
        is_zero = has_silent_zero and stored is not None and stored.holds(key)
        values[key] = found.get(key, 0 if is_zero else None)
    return {**values, **found}


def _stored(found: Mapping[str, Any]) -> Stored | None:
    """Returns a value field to read; None where it has no state."""
    if not isinstance(found.get("state"), bytes):
        return None
    reader = VarintReader(found["state"])
    version = reader.number()
    return Stored(found, reader, version, reader.number() if version == STATE_VERSION else 0)


def is_like(policy: Policy, level: Level, existing: bytes, computed: bytes) -> bool:
    """Returns whether a summary that stands tells all that a computed one does, in the same words: it may
    have statistics that the policy leaves out now."""
    before, after = (bson.decode(it, OPTIONS) for it in (existing, computed))
    try:
        state, window = state_of(before, policy), (to_ms(before["start"]), to_ms(before["end"]))
        renewed = summary(policy, level, series_of(policy, before), window, state)
    except (KeyError, TypeError, ValueError):
        return False
    return renewed == computed and _parts(policy, before, after) == _parts(policy, after, after)


def _parts(policy: Policy, document: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Returns what a summary tells under the keys that another one has, but for states."""
    fields = {}
    for name in policy.value_names:
        told = value_at(like, name)
        held = value_at(document, name)
        fields[name] = {key: held.get(key) for key in told if key != "state"}
    heads = {name.split(".")[0] for name in policy.value_names}
    return {**{key: it for key, it in document.items() if key not in heads}, "values": fields}


def _shown(kinds: Sequence[Statistic[Any]], value: FieldState) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for kind, state in zip(kinds, value, strict=True):
        shown |= kind.told(state, value[0])
    return shown


def _field_state(document: Any, name: str, kinds: Sequence[Statistic[Any]]) -> FieldState:
    stored = _stored(document) if isinstance(document, Mapping) else None
    if stored is None:
        raise ValueError(f"the summary has no state for {name!r}")
    if stored.version != STATE_VERSION:
        raise ValueError(
            f"the summary's state for {name!r} has version {stored.version}; known is {STATE_VERSION}"
        )
    value = tuple([kind.unpack(stored) for kind in kinds])
    stored.reader.finish()
    return value


def _put(target: dict[str, Any], name: str, value: Any) -> None:
    """Sets a dotted name, as nested sub-documents."""
    *path, leaf = name.split(".")
    for part in path:
        target = target.setdefault(part, {})
    target[leaf] = value


def value_at(document: Mapping[str, Any], name: str) -> Any:
    """Returns the value at a dotted name; None where there is none."""
    found: Any = document
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
