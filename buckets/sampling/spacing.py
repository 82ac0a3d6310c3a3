"""How far apart the documents of a series lie, beside the time that the readings of one cover.

Slots of a wrong width show here: 48 half-hours of a day that are read as minutes cover 48 minutes, where
documents come a day apart. As quarters of a day they leave each day half empty, and the minutes of an hour
that are read as half-hours reach over the next documents. So do times that count from a bucket's start in
a wrong unit.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.reading import AsRead, Doubt
from bucketwise.config.times import format_duration

#: Documents whose neighbours are looked for.
_LOOKED_AT = 5
#: Widths of slots that writers choose, milliseconds.
_USUAL = [it * 1_000 for it in (5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 720, 900, 1_200, 1_800, 3_600)]
#: So many slots, in so many documents, are no chance; most of the slots hold something, and most of the
#: documents reach as far.
_SLOTS, _DOCUMENTS, _MOST = 12, 3, 0.8
#: Units that count from a bucket's start, with their milliseconds.
_UNITS = {"+ms": 1, "+s": 1_000, "+m": 60_000, "+h": 3_600_000}
#: So much wrong by its unit is what samples tell of the time that they cover.
_FAR = 10
Times = NDArray[np.int64]


class _Neighbours(NamedTuple):
    gap: int
    series: Series | None  # None: of a document that does not fit
    start: int


def spacing(read: AsRead) -> Doubt | None:
    """Returns a doubt about slots where no document of any series, as far as a sample shows, comes within
    twice the time that one covers, or where all have as many slots as would fill the time to the next one in
    another width; None elsewhere."""
    length = model_of(read.policy).covered_ms
    nearest = _nearest(read) if length is not None else []
    if length is None or not nearest or not len(read.decoded.columns.filled):
        return None
    if nearest[0].gap < 2 * length:
        return _narrow(read, nearest)
    if not read.is_whole:  # the sample may lack those in between
        known = [(it.start, it.series) for it in nearest if it.series is not None][:_LOOKED_AT]
        between = (read.found(start + length, start + 2 * length, series) for start, series in known)
        if not known or any(it is None or it for it in between):
            return None
    columns = read.decoded.columns
    firsts = columns.time[columns.starts[columns.filled]]
    covered = int((read.decoded.last[columns.filled] - firsts).max(initial=0))
    found = f"the slots of one cover {_duration(length)} at most (here {_duration(covered)})"
    return _sparse(nearest[0].gap, found)


def _sparse(gap: int, found: str) -> Doubt:
    reason = (
        f"documents of a series come {_duration(gap)} apart, and {found}: their width is probably another one"
    )
    remedy = "Correct slot and span, or, if nothing is missing in between, write sparse_ok = true"
    return Doubt("slots-sparse", reason, remedy)


def _duration(ms: int) -> str:
    return format_duration(timedelta(milliseconds=ms))


def _nearest(read: AsRead) -> list[_Neighbours]:
    """Returns sampled documents and the next one of their series, the nearest first."""
    decoded = read.decoded
    series = dict(zip(decoded.units.tolist(), decoded.columns.bucket_series.tolist(), strict=True))
    rows = np.flatnonzero(read.next_starts != NO_TIME)
    gaps = read.next_starts[rows] - read.starts[rows]
    return [
        _Neighbours(
            int(gaps[i]),
            decoded.columns.series[series[int(rows[i])]] if int(rows[i]) in series else None,
            int(read.starts[rows[i]]),
        )
        for i in np.argsort(gaps, kind="stable").tolist()
    ]


def _narrow(read: AsRead, nearest: list[_Neighbours]) -> Doubt | None:
    """Returns a doubt about documents that all have the same many slots, from the first on, where these would
    fill the time to the next document if they were wider; None elsewhere."""
    width, decoded = model_of(read.policy).slot_ms, read.decoded
    columns = decoded.columns
    counts = np.diff(columns.starts)[columns.filled]
    if width is None or len(counts) < _DOCUMENTS:
        return None
    starts = read.starts[decoded.units[columns.filled]]
    reached = (decoded.last[columns.filled] - starts) // width + 1
    slots, gap = int(reached.max()), int(np.median([it.gap for it in nearest]))
    if slots < _SLOTS or counts.sum() < _MOST * slots * len(counts):
        return None
    is_alike = np.mean(reached >= slots - 1) >= _MOST
    meant = gap // slots
    if not is_alike or meant < 2 * width or gap % slots or meant not in _USUAL:
        return None
    found = (
        f"each fills {slots:,} slots of {_duration(width)}, which cover {_duration(slots * width)}; "
        f"as many slots of {_duration(meant)} would fill the time between"
    )
    return _sparse(gap, found)


class _Crossing(NamedTuple):
    """How documents reach over the next ones of their series."""

    near: int  # documents whose next one starts within the time that they can cover
    over: int  # of these, that have a reading after it has started
    crossed: int  # documents that start before the last reading of another
    gap: int  # milliseconds to the next one, mostly


def overlap(read: AsRead) -> Doubt | None:
    """Returns a doubt about slots that reach over the next documents of their series; None where most
    don't."""
    length = model_of(read.policy).length_ms
    if length is None or not model_of(read.policy).levels:
        return None
    found = _crossing(read, length)
    if not found.near and not read.is_whole:
        found = _crossing_among_all(read)
    if found.crossed < _DOCUMENTS or found.over < _MOST * found.near:
        return None
    reason = (
        f"documents of a series come {_duration(found.gap)} apart, and the slots of one cover "
        f"{_duration(length)}: readings would lie behind the start of the next documents"
    )
    remedy = "Correct slot and span; if documents of a series do overlap, write sparse_ok = true"
    return Doubt("slots-overlap", reason, remedy)


def _crossing(read: AsRead, length: int) -> _Crossing:
    """Returns how documents reach over others of the sample."""
    by_series: dict[int, list[int]] = {}
    timed = np.flatnonzero(read.starts != NO_TIME)
    for number, start in zip(read.series[timed].tolist(), read.starts[timed].tolist(), strict=True):
        by_series.setdefault(number, []).append(start)
    starts = {number: np.unique(held) for number, held in by_series.items()}
    gaps, over, crossed = [], 0, 0
    for unit, last in _filled(read):
        start, held = int(read.starts[unit]), starts[int(read.series[unit])]
        after, until = np.searchsorted(held, [start, last], side="right").tolist()
        if after < len(held) and held[after] < start + length:
            gaps.append(int(held[after]) - start)
            over += until > after
            crossed += until - after
    return _Crossing(len(gaps), over, crossed, int(np.median(gaps)) if gaps else 0)


def _crossing_among_all(read: AsRead) -> _Crossing:
    """Returns how the longest documents of the sample reach over others of the collection."""
    columns = read.decoded.columns
    series = dict(zip(read.decoded.units.tolist(), columns.bucket_series.tolist(), strict=True))
    longest = sorted(_filled(read), key=lambda it: int(read.starts[it[0]]) - it[1])[:_LOOKED_AT]
    gaps, crossed = [], 0
    for unit, last in longest:
        start = int(read.starts[unit])
        found = read.found(start + 1, last + 1, columns.series[series[unit]]) or []
        inside = np.unique([at for it in found for at in it.starts.tolist() if start < at <= last])
        crossed += len(inside)
        gaps += [int(it) - start for it in inside[:1]]
    return _Crossing(len(longest), len(gaps), crossed, int(np.median(gaps)) if gaps else 0)


def _filled(read: AsRead) -> list[tuple[int, int]]:
    """Returns the sound documents with readings, each with the time of its last one."""
    filled = read.decoded.columns.filled
    units, lasts = read.decoded.units[filled], read.decoded.last[filled]
    return list(zip(units.tolist(), lasts.tolist(), strict=True))


def unit_doubt(read: AsRead) -> Doubt | None:
    """Returns a doubt about times that count from a bucket's start, where in another unit documents would
    fill the time to the next one, and in that of the policy they reach far over it, or end far before it."""
    unit = getattr(read.policy, "sample_time_unit", None)
    if unit not in _UNITS or (own := _reach(read)) is None:
        return None
    for other, ms in _UNITS.items():
        reach = None if other == unit else _reach(read.under(sample_time_unit=other))
        is_far = own * _FAR < 1 if ms > _UNITS[unit] else own > 1
        if reach is not None and is_far and _fills(reach, exactly=ms > _UNITS[unit]):
            reason = (
                f'sample_time_unit = "{unit}": the samples of a document cover {own:.4g} of the time to the '
                f'next one of its series; in "{other}" they would cover {reach:.4g}'
            )
            remedy = f'Write sample_time_unit = "{other}"; if documents do lie so, write sparse_ok = true'
            return Doubt("samples-unit", reason, remedy)
    return None


def _fills(reach: float, *, exactly: bool) -> bool:
    """Returns whether documents that reach so far fill the time to the next one: all of it, or much of it."""
    return (0.95 if exactly else 0.2) <= reach <= 1.05


def _reach(read: AsRead) -> float | None:
    """Returns how much of the time to the next document of their series sampled documents mostly cover, with
    a step after the last sample; None where too few have a next one."""
    columns, shares = read.decoded.columns, []
    lengths = dict(zip(read.decoded.units.tolist(), columns.lengths.tolist(), strict=True))
    for unit, last in _filled(read):
        covered, gap = last - int(read.starts[unit]), int(read.next_starts[unit]) - int(read.starts[unit])
        if int(read.next_starts[unit]) != NO_TIME and lengths[unit] > 1:
            shares.append(covered * lengths[unit] / (lengths[unit] - 1) / gap)
    return float(np.median(shares)) if len(shares) >= _DOCUMENTS else None
