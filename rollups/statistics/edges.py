"""The first and the last finite number, and when they were read."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal

import numpy as np
from bson.datetime_ms import DatetimeMS

from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.statistics.base import (
    ALL,
    Column,
    Doubles,
    Edge,
    EdgesState,
    FieldReadings,
    Integers,
    Kept,
    MomentsState,
    Numbers,
    Statistic,
    Stored,
    VarintWriter,
)


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

    parts = ("first", "last")

    def __init__(self, kept: Kept = ALL) -> None:
        self.kept = kept

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[EdgesState]:
        """Returns the state of each group of finite numbers."""
        columns, order = readings.columns, readings.order
        starts, lasts = numbers.starts, numbers.starts + numbers.lengths - 1
        first_readings, last_readings = (at if order is None else order[at] for at in (starts, lasts))
        # Where times tie, the first run is the one that comes first among the columns, and the last the last.
        first = _extreme(numbers, columns.time[first_readings], np.minimum, -1)
        last = _extreme(numbers, columns.time[last_readings], np.maximum, 1)

        def edges(of: Integers, values: Doubles) -> list[Edge]:
            ids = columns.bucket_order[columns.buckets_of(of)].tolist()
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
            "first_at": None if first[2] is None else DatetimeMS(first[0]),
            "last": last[2],
            "last_at": None if last[2] is None else DatetimeMS(last[0]),
        }

    def pack(self, state: EdgesState, writer: VarintWriter, lacks: Set[str]) -> None:
        """Writes the `_id`s of both; where they aren't shown, also their times, and values that are kept."""
        if not state:
            return
        first, last = state
        holds_first, holds_last = "first" not in lacks, "last" not in lacks
        if not (holds_first and self.kept.shows("first")):
            writer.signed(first[0])
            if holds_first:
                writer.double(first[2])  # type: ignore[arg-type]  # it is held
        if not (holds_last and self.kept.shows("last")):
            writer.number(last[0] - first[0])
            if holds_last:
                writer.double(last[2])  # type: ignore[arg-type]  # it is held
        before = b""
        for edge, holds in ((first, holds_first), (last, holds_last)):
            if holds:  # `_id`s of buckets of one time have much in common
                common = _common(before, edge[1])
                writer.number(common)
                writer.string(edge[1][common:])
                before = edge[1]

    def lacks(self, state: EdgesState, count: int) -> Iterator[str]:  # noqa: ARG002
        """Yields which of the two its summary does not hold: of such it has only the time."""
        for edge, part in zip(state, self.parts, strict=bool(state)):
            if edge[2] is None or part not in self.kept.parts:
                yield part

    def unpack(self, stored: Stored) -> EdgesState:
        """Returns the state of a summary's value field."""
        reader, document = stored.reader, stored.document
        if not document["count"]:
            return self.empty
        found: list[tuple[int, float | None]] = []
        for part, base in (("first", None), ("last", 0)):
            value = document.get(part)
            if value is not None and stored.holds(part):
                found.append((to_ms(document[f"{part}_at"]), value))
                continue
            at = reader.signed() if base is None else found[0][0] + reader.number()
            found.append((at, reader.double() if stored.holds(part) else None))
        edges, before = list[Edge](), b""
        for (at, value), part in zip(found, ("first", "last"), strict=True):
            identity = b""
            if stored.holds(part):
                identity = before = before[: reader.number()] + reader.string()
            edges.append((at, identity, value))
        stored.edges = edges[0], edges[1]
        return stored.edges


def _common(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _order(edge: Edge) -> tuple[int, bytes, bytes]:
    """Returns a key that orders edges. Bits decide last, so that merging commutes also where two documents
    share one `_id`."""
    at, identity, value = edge
    return at, identity, b"" if value is None else struct.pack(">d", value)


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
