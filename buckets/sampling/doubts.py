"""Evidence, in a sample, that a policy reads times other than they are meant.

A key of the policy is doubted where another value of it reads more of the documents, or puts them where
documents of a series lie: one after the other.

Slots of a wrong width show in how far apart documents lie: 48 half-hours of a day that are read as minutes
cover 48 minutes, where documents come a day apart. As quarters of a day they leave each day half empty, and
the minutes of an hour that are read as half-hours reach over the next documents. So do times that count from
the start of their bucket in a wrong unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.clocks import clock_of, distinct, with_midnights
from bucketwise.buckets.fields.times import DAY_MS, NO_TIME
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.reading import AsRead, Doubt
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration, tokens_of

#: Documents whose neighbours are looked for.
_LOOKED_AT = 5
#: Widths of slots that writers choose, milliseconds.
_USUAL = [it * 1_000 for it in (5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 720, 900, 1_200, 1_800, 3_600)]
#: So many slots, in so many documents, are no chance, nor are fewer in more of them; most are in use.
_SLOTS, _LEAST_SLOTS, _DOCUMENTS, _MOST_FULL = 12, 2, 3, 0.8
#: Units that count from a bucket's start, with their milliseconds.
_UNITS = {"+ms": 1, "+s": 1_000, "+m": 60_000, "+h": 3_600_000}
#: What is so much wrong is no chance.
_FAR = 10
#: Sixty samples, a second apart, once an hour may be bursts: as minutes they would fill the hour by chance.
_SIXTY = 60
#: Documents that reach so far fill the time to the next one.
_LEAST, _MOST_FILLED = 0.95, 1.05
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
    if len(nearest) == 1 and nearest[0].gap < _FAR * length:
        return None  # a single document may be missing
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
    """Returns a doubt about documents whose slots hold readings from the first up to a certain one, where as
    many would fill the time to the next document if they were wider; None elsewhere."""
    levels, decoded = model_of(read.policy).levels, read.decoded
    columns = decoded.columns
    if not levels or len(columns.filled) < _DOCUMENTS:
        return None
    width = levels[-1].length
    places = (columns.time - read.starts[decoded.units[columns.bucket]]) // width
    if places.min() < 0:
        return None
    held = np.bincount(places)  # readings in each slot
    usual = np.flatnonzero(2 * held >= held.mean())
    slots, gaps = int(usual[-1]) + 1, [it.gap for it in nearest]
    is_chance = slots < _LEAST_SLOTS or len(places) < _SLOTS * _DOCUMENTS or len(usual) < _MOST_FULL * slots
    if is_chance or usual[0] > 0 or len(held) > slots + slots // 24:  # the longest of some days has 25 hours
        return None
    # of some of many documents, those that come next may be missing: only the nearest show how far they lie
    gap = int(np.median(gaps)) if read.is_whole else gaps[0]
    meant = gap // slots
    if meant <= width or gap % slots or meant not in _USUAL:
        return None
    found = (
        f"only their first {slots:,} slots of {_duration(width)} hold anything, {_duration(slots * width)}; "
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
    if found.crossed < _DOCUMENTS or found.over < _MOST_FULL * found.near:
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
    fill the time to the next one, and in that of the policy they reach far over it, or end far before it.
    None where the sample may lack the next ones."""
    unit = getattr(read.policy, "sample_time_unit", None)
    if unit not in _UNITS or not read.is_whole or (own := _reach(read)) is None:
        return None
    for other, ms in _UNITS.items():
        reach = None if other == unit else _reach(read.under(sample_time_unit=other))
        is_far = own < 1 / _FAR and ms > _SIXTY * _UNITS[unit] if ms > _UNITS[unit] else own > _FAR
        if reach is not None and is_far and _LEAST <= reach <= _MOST_FILLED:
            reason = (
                f'sample_time_unit = "{unit}": the samples of a document cover {own:.4g} of the time to the '
                f'next one of its series; in "{other}" they would cover {reach:.4g}'
            )
            remedy = f'Write sample_time_unit = "{other}"; if documents do lie so, write sparse_ok = true'
            return Doubt("samples-unit", reason, remedy)
    return None


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


#: Fewer documents that only another value of a key reads may be broken ones.
_ENOUGH = 0.05
#: Most of the documents; and so many of them that are alike are no chance.
_MOST, _ALIKE = 0.9, 10
#: Fewer starts are midnights in some zone by chance, and fewer documents lack a slot.
_SOME = 4
#: Times that lie so many times closer together are rather the ones that are meant; of days that lie so many
#: times apart, most are missing.
_CLOSER, _APART = 5, 3


def doubt_of(read: AsRead, now_ms: int | None) -> Doubt | None:
    """Returns the strongest evidence against a policy in sampled documents; None where there is none.
    `now_ms`: the present, if it may be known."""
    return next(_doubts(read, now_ms), None)


def _doubts(read: AsRead, now_ms: int | None) -> Iterator[Doubt]:
    if not len(read.batch):
        return
    yield from _format_doubts(read, now_ms)
    yield from _first_slot_doubts(read)
    yield from _zone_doubts(read)
    yield from _text_zone_doubts(read)
    yield from _change_doubts(read)
    if not read.policy.sparse_ok:
        found = (overlap(read), spacing(read), unit_doubt(read))
        yield from (it for it in found if it is not None)


def _format_doubts(read: AsRead, now_ms: int | None) -> Iterator[Doubt]:
    """Yields formats that tell day, month and year in another order, and lose no document. Days are those of
    the texts' own clock: which zone it keeps says nothing of their order."""
    shown = read if read.policy.timezone == "UTC" else read.under(timezone="UTC")
    for key in ("time_format", "sample_time_format"):
        text: str = getattr(read.policy, key, None) or ""
        ways = [(it, shown.under(**{key: it})) for it in _reordered(text)]
        sound = [
            (it, way)
            for it, way in ways
            if not _loses(shown, way) and (shown is read or not _loses(read, read.under(**{key: it})))
        ]
        for it, way in sorted(sound, key=lambda it: (-it[1].is_sound.sum(), _span(it[1].times))):
            if (reason := _reason_for(shown, way, text, now_ms)) is not None:
                remedy = f'Correct {key}: {key} = "{it}" reads them'
                yield Doubt("time-format-unlikely", f'{key} = "{text}": {reason}', remedy)


def _reordered(text: str) -> list[str]:
    """Returns a format with its numbers of two digits for day, month and year in every other order."""
    tokens = tokens_of(text)
    at = [i for i, it in enumerate(tokens) if it.directive in ("d", "m", "y")]
    letters = [tokens[i].directive for i in at]
    found = []
    for order in itertools.permutations(letters) if {"d", "m"} <= set(letters) else ():
        changed = dict(zip(at, order, strict=True))
        pieces = (
            f"%{changed.get(i, it.directive)}" if it.directive else it.text.replace("%", "%%")
            for i, it in enumerate(tokens)
        )
        found.append("".join(pieces))
    return [it for it in found if it != text]


def _reason_for(read: AsRead, way: AsRead, form: str, now_ms: int | None) -> str | None:
    """Returns what speaks for another order of day and month than that of the format, which loses no
    document; None if nothing does."""
    mended, own, other = int((way.is_sound & ~read.is_sound).sum()), _span(read.times), _span(way.times)
    if mended >= _ENOUGH * len(read.batch) and (2 * other <= 3 * own + DAY_MS or not len(read.times)):
        return f"{mended:,} of {len(read.batch):,} sampled documents have no such time"
    if read.policy.sparse_ok or _CLOSER * other > own or _is_iso(form):
        return None
    ahead = 0 if now_ms is None else int((read.times > now_ms + DAY_MS).sum())
    if ahead and not (way.times > now_ms + DAY_MS).any():  # type: ignore[operator]
        return f"{ahead:,} of {len(read.times):,} sampled readings would lie in the future"
    days = np.unique(read.times // DAY_MS)
    is_sparse = 2 < len(days) <= own // DAY_MS / _APART and not _are_firsts(days)
    if is_sparse and _per_step(read, DAY_MS) >= 2 and _per_step(way, 1) <= _per_step(read, 1):
        over = f"over {own // DAY_MS:,} days"
        return f"the {len(days):,} days of the sampled readings would lie far apart, {over}"
    return None


def _is_iso(form: str) -> bool:
    """Returns whether a format tells year, month and day in this order: nobody writes the day before the
    month after a whole year."""
    told = [it.directive for it in tokens_of(form) if it.directive in ("Y", "m", "d")]
    return told == ["Y", "m", "d"]


def _are_firsts(days: Times) -> bool:
    """Returns whether days, counted from 1970 on, are all the first of a month: one a month is usual."""
    dates = days.astype("datetime64[D]")
    return bool((dates == dates.astype("datetime64[M]")).all())


def _per_step(read: AsRead, step: int) -> float:
    """Returns how many readings a series has in a step of time, in milliseconds, that has any."""
    columns = read.decoded.columns
    pairs = np.column_stack([columns.series_of_readings, columns.time // step])
    return len(pairs) / max(1, len(np.unique(pairs, axis=0)))


def _first_slot_doubts(read: AsRead) -> Iterator[Doubt]:
    first = getattr(read.policy, "first_slot", None)
    if first is None or read.is_sound.all():
        return
    way = read.under(first_slot=1 - first)
    mended = int((way.is_sound & ~read.is_sound).sum())
    is_alone = mended < 2 <= len(read.batch) and not _is_dense(read)  # one among others may be broken
    if not is_alone and mended >= max(1, _ENOUGH * len(read.batch)) and not _loses(read, way):
        reason = (
            f"first_slot = {first}: {mended:,} of {len(read.batch):,} sampled documents have a slot that is "
            f"none, and fit if the first one is called {1 - first}"
        )
        yield Doubt("slots-shifted", reason, f"Write first_slot = {1 - first}")


def _is_dense(read: AsRead) -> bool:
    """Returns whether some documents hold most of their slots: that none of them has the first is no
    chance."""
    model, lengths = model_of(read.policy), read.decoded.columns.lengths
    slots = model.room(lengths) or 0
    return len(lengths) >= _SOME and float(lengths.mean()) >= slots / 2


def _zone_doubts(read: AsRead) -> Iterator[Doubt]:
    """Yields a zone in which documents of days, weeks or months start at midnight, where they don't in the
    policy's, if it reads documents that the policy's own can't. Only a zone that changes its clocks shows."""
    if not model_of(read.policy).keeps_days:
        return
    starts = np.unique(read.starts[read.starts != NO_TIME])
    zone = read.policy.timezone
    is_varied = len(starts) >= _SOME and len(np.unique(starts % DAY_MS)) > 1
    if not is_varied or _at_midnight(starts, zone) >= _MOST:
        return
    zones = with_midnights(starts.tolist())
    way = read.under(timezone=zones[0]) if zones else read
    if not _loses(read, way) and (way.is_sound & ~read.is_sound).any():
        reason = (
            f'timezone = "{zone}": documents start at midnight in {zones[0]}, not in {zone}, so that days '
            "on which clocks change are read wrong"
        )
        yield Doubt("zone-unlikely", reason, f'Correct timezone, such as timezone = "{zones[0]}"')


def _text_zone_doubts(read: AsRead) -> Iterator[Doubt]:
    """Yields a zone in which days that are told by text have as many slots as their documents, where some
    have more or fewer than days of the policy's zone: clocks there were changed."""
    full = full_text_days(read.policy, read.decoded)
    if full in (None, len(read.batch)) or getattr(read.policy, "slot_time", None) != "elapsed":
        return
    shown = clock_of(read.policy.timezone).shown(read.starts[read.starts != NO_TIME])
    for zone in (name for name, changes in distinct(shown.tolist()).items() if changes):
        way = read.under(timezone=zone)
        if not _loses(read, way) and (full_text_days(way.policy, way.decoded) or 0) > (full or 0):
            reason = (
                f'timezone = "{read.policy.timezone}": some days have an hour more or less than there, as on '
                f"days when clocks are changed in {zone}"
            )
            yield Doubt("zone-unlikely", reason, f'Correct timezone, such as timezone = "{zone}"')
            return


def full_text_days(policy: Policy, decoded: Decoded) -> int | None:
    """Returns how many documents of slots end with the last one of a day, where text tells the days; 0 where
    many don't, or one of a day with an hour more or less. None for other documents."""
    model = model_of(policy)
    if not (model.levels and model.keeps_days and model.own_form.has_texts):
        return None
    clock, lasts = clock_of(policy.timezone), decoded.last[decoded.columns.filled]
    days = clock.shown(lasts) // DAY_MS * DAY_MS
    begins, ends = clock.since(days), clock.since(days + DAY_MS)
    is_full, is_changed = lasts == ends - model.levels[-1].length, ends - begins != DAY_MS
    is_sure = len(lasts) >= _ALIKE and is_full.mean() >= _MOST and is_full[is_changed].all()
    return int(is_full.sum()) if is_sure else 0


def _at_midnight(starts: NDArray[np.int64], zone: str) -> float:
    """Returns the share of these instants at which a day of the zone begins."""
    clock = clock_of(zone)
    return float((clock.since(clock.shown(starts) // DAY_MS * DAY_MS) == starts).mean())


def _change_doubts(read: AsRead) -> Iterator[Doubt]:
    """Yields evidence of slots by the clock that are read as elapsed, or the other way round, on days when
    clocks change."""
    told = getattr(read.policy, "slot_time", None)
    if told is None or not model_of(read.policy).keeps_days or read.policy.timezone == "UTC":
        return
    if told == "elapsed" and (count := _short(read)):
        reason = (
            f"{count:,} of the sampled days of 25 hours end with the same slot as a day of 24: their slots "
            "are probably what the clock shows"
        )
        yield Doubt("days-unlikely", f'slot_time = "elapsed": {reason}', 'Write slot_time = "local"')
    broken = int((~read.is_sound).sum())
    if told == "local" and broken:
        way = read.under(slot_time="elapsed")
        if way.is_sound.all():
            reason = (
                f"{broken:,} sampled documents of days when clocks change don't fit, and do if slots follow "
                "one after the other"
            )
            yield Doubt("days-unlikely", f'slot_time = "local": {reason}', 'Write slot_time = "elapsed"')


def _short(read: AsRead) -> int:
    """Returns how many days of 25 hours are filled up to the last slot of an ordinary day, where all of them
    are, and ordinary days are full; 0 elsewhere."""
    model, decoded = model_of(read.policy), read.decoded
    width, filled = model.levels[-1].length, decoded.columns.filled
    starts, lasts = read.starts[decoded.units[filled]], decoded.last[filled]
    ends = np.array([model.end_of(it) for it in starts.tolist()], dtype=np.int64)
    if not len(ends):
        return 0
    is_day = ends - starts == DAY_MS
    is_long = (ends - starts > DAY_MS) & (ends - starts < 2 * DAY_MS)
    is_short = is_long & (lasts == starts + DAY_MS - width)
    full = lasts[is_day] == ends[is_day] - width
    if len(full) < _ALIKE or full.mean() < _MOST or not (is_long == is_short).all():
        return 0
    return int(is_short.sum())


def _loses(read: AsRead, way: AsRead) -> bool:
    """Returns whether documents fit the policy, and not the other way."""
    return bool((read.is_sound & ~way.is_sound).any())


def _span(times: NDArray[np.int64]) -> int:
    return int(times.max() - times.min()) if len(times) else 0
