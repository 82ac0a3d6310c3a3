"""The first and the last finite number, and when they were read."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from bson.datetime_ms import DatetimeMS

from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.statistics.base import (
    Column,
    Doubles,
    FieldReadings,
    Integers,
    MomentsState,
    Numbers,
    Statistic,
    VarintReader,
    VarintWriter,
)

#: Milliseconds; the bucket's `_id`, as bytes that sort as BSON does; the value with its own bits: -0.0 stays.
Edge = tuple[int, bytes, float]
EdgesState = tuple[Edge, Edge] | tuple[()]  # the first and the last


class Edges(Statistic[EdgesState]):
    """The first and the last finite number. Where times tie, the lower `_id` comes first."""

    columns = (
        Column("first", "number"),
        Column("first_at", "instant"),
        Column("last", "number"),
        Column("last_at", "instant"),
    )
    table = ("first", "last")
    table_place = 9
    empty = ()

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[EdgesState]:
        """Returns the state of each group of finite numbers."""
        columns, order = readings.columns, readings.order
        starts, lasts = numbers.starts, numbers.starts + numbers.lengths - 1
        first_readings, last_readings = (at if order is None else order[at] for at in (starts, lasts))
        # Where times tie, the first run is the one that comes first among the columns, and the last the last.
        first = _extreme(numbers, columns.time[first_readings], np.minimum, -1)
        last = _extreme(numbers, columns.time[last_readings], np.maximum, 1)

        def edges(of: Integers, values: Doubles) -> list[Edge]:
            ids = columns.bucket_order[columns.bucket[of]].tolist()
            return list(zip(columns.time[of].tolist(), ids, values.tolist(), strict=True))

        firsts = edges(first_readings[first], numbers.values[starts[first]])
        return list(zip(firsts, edges(last_readings[last], numbers.values[lasts[last]]), strict=True))

    def merge(self, one: EdgesState, other: EdgesState) -> EdgesState:
        """Returns the state of both together."""
        if not one or not other:
            return one or other
        return min(one[0], other[0], key=_order), max(one[1], other[1], key=_order)

    def shown(self, state: EdgesState, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key."""
        if not state:
            return {"first": None, "first_at": None, "last": None, "last_at": None}
        first, last = state
        return {
            "first": first[2],
            "first_at": DatetimeMS(first[0]),
            "last": last[2],
            "last_at": DatetimeMS(last[0]),
        }

    def pack(self, state: EdgesState, writer: VarintWriter) -> None:
        """Writes the `_id`s of both."""
        for edge in state or (None, None):
            writer.string(edge[1] if edge else b"")

    def unpack(self, reader: VarintReader, document: Mapping[str, Any]) -> EdgesState:
        """Returns the state of a summary's value field."""
        first_id, last_id = reader.string(), reader.string()
        if not document["count"]:
            return self.empty
        return (
            (to_ms(document["first_at"]), first_id, document["first"]),
            (to_ms(document["last_at"]), last_id, document["last"]),
        )


def _order(edge: Edge) -> tuple[int, bytes, bytes]:
    """Returns a key that orders edges. Bits decide last, so that merging commutes also where two documents
    share one `_id`."""
    at, identity, value = edge
    return at, identity, struct.pack(">d", value)


def _extreme(numbers: Numbers, times: Integers, ufunc: np.ufunc, step: Literal[1, -1]) -> Integers:
    """Returns for each group the run with the extreme time: the last of those that tie, or going backwards
    the first."""
    extreme = np.empty(numbers.groups, dtype=np.int64)
    extreme[numbers.group] = times
    ufunc.at(extreme, numbers.group, times)
    runs = np.flatnonzero(times == extreme[numbers.group])[::step]
    found = np.empty_like(extreme)
    found[numbers.group[runs]] = runs  # the last to be written stays
    return found
