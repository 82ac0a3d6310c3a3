"""Which intervals of a window hold a reading: what tells a hole from a low value.

Time is cut into intervals of `expected_interval` from the epoch on; one is occupied where it holds a reading.
The occupied ones are kept as runs, so that a window without a hole is one run however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.windows import span_ms
from bucketwise.rollups.statistics.base import VarintReader, VarintWriter

Integers = NDArray[np.int64]
#: start, end, start, end, …: indices of intervals, ascending; runs are half-open and do not touch.
Runs = tuple[int, ...]
_VERSION = 1


class Completeness(NamedTuple):
    """How complete the readings of a window are."""

    expected: int  # intervals
    missing: int  # intervals without a reading
    hole_ms: int  # the longest stretch without one, as far as it lies in the window
    hole_at: int  # the start of the hole, milliseconds; the first of equal ones


def interval_of(policy: Policy) -> int | None:
    """Returns the policy's expected interval in milliseconds; None where it expects none."""
    return None if policy.expected_interval is None else span_ms(policy.expected_interval)


def build(times: Integers, starts: Integers, interval: int) -> list[Runs]:
    """Returns the runs of each cell; a cell begins at each of `starts`, and in it times ascend."""
    index = times // interval
    begins = np.union1d(starts, np.flatnonzero(np.diff(index) > 1) + 1)
    ends = index[np.append(begins[1:], len(index)) - 1] + 1
    flat = np.stack([index[begins], ends], axis=1).ravel().tolist()
    cells = np.append(2 * np.searchsorted(begins, starts), len(flat)).tolist()
    return [tuple(flat[low:high]) for low, high in pairwise(cells)]


def union(one: Runs, other: Runs) -> Runs:
    """Returns the intervals that either holds. Associative, commutative and exact."""
    if not one or not other:
        return one or other
    if one[0] > other[0]:
        one, other = other, one
    if one[-1] < other[0]:
        return one + other
    if one[-1] == other[0]:
        return one[:-1] + other[1:]
    starts = np.array(one[::2] + other[::2], dtype=np.int64)
    order = np.argsort(starts)
    starts = starts[order]
    reach = np.maximum.accumulate(np.array(one[1::2] + other[1::2], dtype=np.int64)[order])
    apart = starts[1:] > reach[:-1]
    begins, ends = starts[np.append(True, apart)], reach[np.append(apart, True)]
    return tuple(np.stack([begins, ends], axis=1).ravel().tolist())


def measure(runs: Runs, start_ms: int, end_ms: int, interval: int) -> Completeness:
    """Returns how complete a window is. An interval that lies in it only in part counts."""
    low, high = start_ms // interval, -(-end_ms // interval)
    held = sum(runs[1::2]) - sum(runs[::2])
    holes = np.clip(np.array([low, *runs, high], dtype=np.int64) * interval, start_ms, end_ms).reshape(-1, 2)
    lengths = holes[:, 1] - holes[:, 0]
    longest = int(lengths.argmax())
    return Completeness(high - low, high - low - held, int(lengths[longest]), int(holes[longest, 0]))


def pack(runs: Runs, start_ms: int, interval: int) -> bytes:
    """Packs runs as a byte of version, then varints: the interval, how many runs, and each edge's distance
    from the one before, the first's from the window's start. A full hour takes 7 bytes, and each hole about 2
    more."""
    writer = VarintWriter()
    for number in (_VERSION, interval, len(runs) // 2):
        writer.number(number)
    for before, edge in pairwise((start_ms // interval, *runs)):
        writer.number(edge - before)
    return bytes(writer.data)


def unpack(data: object, start_ms: int, interval: int) -> Runs:
    """Returns the runs. Raises ValueError where the bytes are none, or of another interval."""
    if not isinstance(data, bytes):
        raise ValueError("the summary has no coverage")
    reader = VarintReader(data)
    version, packed = reader.number(), reader.number()
    if (version, packed) != (_VERSION, interval):
        raise ValueError(
            f"the summary's coverage has version {version} and intervals of {packed} ms; "
            f"known is version {_VERSION}, and the policy's interval is {interval} ms"
        )
    edges, edge = [], start_ms // interval
    for _ in range(2 * reader.number()):
        edge += reader.number()
        edges.append(edge)
    reader.finish()
    return tuple(edges)


def spans(runs: Sequence[int], interval: int) -> list[tuple[int, int]]:
    """Returns the runs as [start, end) in milliseconds."""
    edges = [edge * interval for edge in runs]
    return list(zip(edges[::2], edges[1::2], strict=True))
