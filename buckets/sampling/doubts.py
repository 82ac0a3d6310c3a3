"""Evidence, in a sample, that a policy reads times other than they are meant.

A key of the policy is doubted where another value of it reads more of the documents, or puts them where
documents of a series lie: one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.fields.clocks import clock_of
from bucketwise.buckets.fields.times import DAY_MS, NO_TIME
from bucketwise.buckets.fields.zones import with_midnights
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.reading import AsRead, Doubt
from bucketwise.buckets.sampling.spacing import overlap, spacing, unit_doubt
from bucketwise.config.times import tokens_of

#: Fewer documents that only another value of a key reads may be broken ones.
_ENOUGH = 0.05
#: Most of the documents; and so many of them that are alike are no chance.
_MOST, _ALIKE = 0.9, 10
#: Times that lie so many times closer together are rather the ones that are meant.
_CLOSER = 5


def doubt_of(read: AsRead, now_ms: int | None) -> Doubt | None:
    """Returns the strongest evidence against a policy in sampled documents; None where there is none.
    `now_ms`: the present, if it may be known."""
    return next(_doubts(read, now_ms), None)


def _doubts(read: AsRead, now_ms: int | None) -> Iterator[Doubt]:
    if not len(read.batch):
        return
    yield from _of_formats(read, now_ms)
    yield from _of_first_slot(read)
    yield from _of_zone(read)
    yield from _of_changes(read)
    if not read.policy.sparse_ok:
        found = (overlap(read), spacing(read), unit_doubt(read))
        yield from (it for it in found if it is not None)


def _of_formats(read: AsRead, now_ms: int | None) -> Iterator[Doubt]:
    """Yields formats that tell day, month and year in another order."""
    for key in ("time_format", "sample_time_format"):
        text = getattr(read.policy, key, None)
        ways = [(it, read.under(**{key: it})) for it in _reordered(text)] if text else []
        sound = [(it, way) for it, way in ways if not _loses(read, way)]
        for it, way in sorted(sound, key=lambda it: (-it[1].is_sound.sum(), _span(it[1].times))):
            if (reason := _reason_for(read, way, now_ms)) is not None:
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


def _reason_for(read: AsRead, way: AsRead, now_ms: int | None) -> str | None:
    """Returns what speaks for another order of day and month, which loses no document; None if nothing
    does."""
    mended, own, other = int((way.is_sound & ~read.is_sound).sum()), _span(read.times), _span(way.times)
    if mended >= _ENOUGH * len(read.batch) and (2 * other <= 3 * own + DAY_MS or not len(read.times)):
        return f"{mended:,} of {len(read.batch):,} sampled documents have no such time"
    if read.policy.sparse_ok or _CLOSER * other > own:
        return None
    ahead = 0 if now_ms is None else int((read.times > now_ms + DAY_MS).sum())
    if ahead and not (way.times > now_ms + DAY_MS).any():  # type: ignore[operator]
        return f"{ahead:,} of {len(read.times):,} sampled readings would lie in the future"
    days = len(np.unique(read.times // DAY_MS))
    if 2 < days < len(read.times):
        return f"the {days:,} days of the sampled readings would lie far apart, over {own // DAY_MS:,} days"
    return None


def _of_first_slot(read: AsRead) -> Iterator[Doubt]:
    first = getattr(read.policy, "first_slot", None)
    if first is None or read.is_sound.all():
        return
    way = read.under(first_slot=1 - first)
    mended = int((way.is_sound & ~read.is_sound).sum())
    is_alone = mended < 2 <= len(read.batch)  # one among others may be broken
    if not is_alone and mended >= max(1, _ENOUGH * len(read.batch)) and not _loses(read, way):
        reason = (
            f"first_slot = {first}: {mended:,} of {len(read.batch):,} sampled documents have a slot that is "
            f"none, and fit if the first one is called {1 - first}"
        )
        yield Doubt("slots-shifted", reason, f"Write first_slot = {1 - first}")


def _of_zone(read: AsRead) -> Iterator[Doubt]:
    """Yields a zone in which documents of days, weeks or months start at midnight, where they don't in the
    policy's. Only a zone that changes its clocks shows."""
    if not model_of(read.policy).keeps_days:
        return
    starts = np.unique(read.starts[read.starts != NO_TIME])
    zone = read.policy.timezone
    if len(np.unique(starts % DAY_MS)) < 2 or _at_midnight(starts, zone) >= _MOST:
        return
    zones = with_midnights(starts.tolist())
    if zones:
        reason = (
            f'timezone = "{zone}": documents start at midnight in {zones[0]}, not in {zone}, so that days '
            "on which clocks change are read wrong"
        )
        yield Doubt("zone-unlikely", reason, f'Correct timezone, such as timezone = "{zones[0]}"')


def _at_midnight(starts: NDArray[np.int64], zone: str) -> float:
    return float((clock_of(zone).shown(starts) % DAY_MS == 0).mean())


def _of_changes(read: AsRead) -> Iterator[Doubt]:
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
