"""Summaries as MongoDB documents: what people read, and beside it what merging needs.

Each value field's sub-document ends with `state`: a byte of version, then what the readable keys cannot carry
(exact sums, the `_id`s of first and last, the percentile bins). Where the policy expects an interval, the
summary ends with `coverage`: which intervals hold a reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import bson
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from bucketwise.buckets.bson.types import DECODED
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import as_date
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Level, Span
from bucketwise.rollups.calendar.windows import HOUR, to_ms
from bucketwise.rollups.summaries import bins, coverage, exact
from bucketwise.rollups.summaries.codec import VarintReader, VarintWriter
from bucketwise.rollups.summaries.summary import EdgeValue, State, ValueState

STATE_VERSION = 1

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


def percentile_key(percent: float) -> str:
    """Returns the key of a percentile: 50.0 → p50, 99.9 → p99_9 (MongoDB takes a dot in a key for a path)."""
    return "p" + (str(int(percent)) if float(percent).is_integer() else str(percent).replace(".", "_"))


def state_of(document: Mapping[str, Any], policy: Policy) -> State:
    """Returns the mergeable state of a summary read from MongoDB. Raises ValueError where it has no sound
    one."""
    values = {name: _value_state(value_at(document, name), name) for name in policy.value_names}
    interval = coverage.interval_of(policy)
    if interval is None:
        return State(document["count"], values)
    occupied = coverage.unpack(document.get("coverage"), milliseconds(document["start"]), interval)
    return State(document["count"], values, occupied)


def series_of(policy: Policy, document: Mapping[str, Any]) -> Series:
    """Returns the series that a summary stands for."""
    found = [value_at(document["_id"]["series"], name) for name in policy.series_names]
    return tuple(int(value) if type(value) is Int64 else value for value in found)


def is_of_series(policy: Policy, document: Mapping[str, Any]) -> bool:
    """Returns whether a summary's series has the fields that the policy has now."""
    identity = document["_id"]
    series = identity.get("series") if isinstance(identity, Mapping) else None
    return isinstance(series, Mapping) and set(series) == {it.split(".")[0] for it in policy.series_names}


def state_projection(policy: Policy) -> dict[str, int]:
    """Returns a projection without the fields that `state_of` does not need: percentiles, mostly."""
    percents = policy.rollup.percentiles if policy.rollup else ()
    keys = ["sum", "avg", "stddev", *map(percentile_key, percents)]
    return {f"{name}.{key}": 0 for name in policy.value_names for key in keys}


def statistics(
    state: State, percents: Sequence[float], completeness: coverage.Completeness | None
) -> dict[str, Any]:
    """Returns a state as a summary shows it to people; `values` has each value field by its name."""
    values = {name: _dated(_value_document(value, percents)) for name, value in state.values.items()}
    for value in values.values():
        del value["state"]
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
    percents = policy.rollup.percentiles if policy.rollup else ()
    for name in policy.value_names:
        _put(document, name, _value_document(state.values[name], percents))
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


def _value_document(value: ValueState, percents: Sequence[float]) -> dict[str, Any]:
    """Returns the sub-document of a value field. Without finite numbers `count` is 0, `sum` 0.0 and the rest
    null."""
    has_numbers = value.first is not None and value.last is not None
    first, last = value.first or EdgeValue(0, b"", 0.0), value.last or EdgeValue(0, b"", 0.0)
    percentiles: Sequence[float | None] = [None] * len(percents)
    if has_numbers and percents:
        percentiles = bins.percentiles(value.bins, tuple(percents), value.low, value.high)
    readable: dict[str, Any] = {
        "min": value.low,
        "max": value.high,
        "avg": exact.mean(value.total, value.count or 1),
        "stddev": exact.deviation(value.total, value.squares, value.count),
        "first": first.value,
        "first_at": DatetimeMS(first.at),
        "last": last.value,
        "last_at": DatetimeMS(last.at),
        **dict(zip(map(percentile_key, percents), percentiles, strict=True)),
    }
    return {
        "count": value.count,
        "sum": exact.total(value.total),
        **(readable if has_numbers else dict.fromkeys(readable)),
        "nonfinite": value.nonfinite,
        "nonnumeric": value.nonnumeric,
        "state": _pack(value, first, last),
    }


def _pack(value: ValueState, first: EdgeValue, last: EdgeValue) -> bytes:
    """Bins go as ascending codes, each as its distance from the one before: two or three bytes a bin."""
    writer = VarintWriter()
    writer.number(STATE_VERSION)
    writer.wide(value.total)
    writer.wide(value.squares)
    writer.string(first.id)
    writer.string(last.id)
    writer.number(len(value.bins))
    before = 0
    for code, count in sorted(value.bins.items()):
        writer.signed(code - before)
        writer.number(count)
        before = code
    return bytes(writer.data)


def _value_state(document: Any, name: str) -> ValueState:
    if not isinstance(document, Mapping) or not isinstance(document.get("state"), bytes):
        raise ValueError(f"the summary has no state for {name!r}")
    reader = VarintReader(document["state"])
    version = reader.number()
    if version != STATE_VERSION:
        raise ValueError(f"the summary's state for {name!r} has version {version}; known is {STATE_VERSION}")
    total, squares, first_id, last_id = reader.wide(), reader.wide(), reader.string(), reader.string()
    counted: bins.Bins = {}
    code = 0
    for _ in range(reader.number()):
        code += reader.signed()
        counted[code] = reader.number()
    reader.finish()
    state = ValueState(0, document["nonfinite"], document["nonnumeric"])
    if not document["count"]:
        return state
    state.count, state.total, state.squares, state.bins = document["count"], total, squares, counted
    state.low, state.high = document["min"], document["max"]
    state.first = EdgeValue(milliseconds(document["first_at"]), first_id, document["first"])
    state.last = EdgeValue(milliseconds(document["last_at"]), last_id, document["last"])
    return state


def milliseconds(instant: datetime | DatetimeMS) -> int:
    """Returns a date in milliseconds since 1970, in whatever type pymongo gave it."""
    if isinstance(instant, DatetimeMS):
        return int(instant)
    return to_ms(instant if instant.tzinfo else instant.replace(tzinfo=UTC))  # pymongo's naive is UTC


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
