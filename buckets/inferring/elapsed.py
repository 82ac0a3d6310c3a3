"""Finds times in samples that count from the start of their bucket, and the units in which they may count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bucketwise.buckets.inferring.fields import as_float, counted_from, hints, is_whole, words_of
from bucketwise.buckets.inferring.proposal import Alternative, Evidence, Proposal
from bucketwise.buckets.inferring.times import Time, units_within
from bucketwise.buckets.inferring.widths import spacing_words

#: Milliseconds of each unit, from long to short.
_UNITS = {"+h": 3_600_000, "+m": 60_000, "+s": 1_000, "+ms": 1}
_NAMES = {"+h": "hours", "+m": "minutes", "+s": "seconds", "+ms": "milliseconds"}
#: What a field of such a time is often called; where another field counts up as well, it comes first.
_NAMED = words_of(
    "t dt time offset delta elapsed rel relative ms millis milliseconds s sec secs second seconds "
    "m min mins minute minutes h hr hour hours at"
)


@dataclass(frozen=True)
class Elapsed:
    """Fields whose numbers count from `start`, a bucket's own time, with the units that fit; none where they
    only number the samples."""

    start: Time
    used: list[str]
    ways: list[Alternative]

    def times(self, columns: Sequence[Sequence[Any]], owners: Sequence[int]) -> list[int | None]:
        """Returns the times of samples by the likeliest unit. `columns`: what the fields hold; `owners`: the
        number of each sample's document."""
        units = self.ways[0].keys["sample_time_unit"]
        steps = [_UNITS[it] for it in ([units] if isinstance(units, str) else units)]
        return [
            None if (start := self.start.values[owner]) is None or None in row else start + _total(row, steps)
            for owner, *row in zip(owners, *columns, strict=True)
        ]

    def put(self, proposal: Proposal) -> None:
        """Puts the bucket's start and the units into the proposal."""
        proposal.keys |= {"start_field": self.start.path, **self.start.keys()}
        proposal.alternatives = self.ways
        if len(self.ways) == 1:
            proposal.notes.add_evidence("sample_time_unit", self.ways[0].why)


def elapsed_in(
    fields: Mapping[str, Sequence[Any]], owners: Sequence[int], evidence: Evidence
) -> Elapsed | None:
    """Returns the fields of samples that count up from the start of each bucket. `owners`: the number of each
    sample's document."""
    starts = [it for it in evidence.times if it.form.unit != "objectid" and not it.paths]
    if not starts:
        return None
    within = units_within(fields)
    if within and _counts_up(list(zip(*(fields[it] for it in within), strict=True)), owners):
        units = [f"+{it}" for it in within.values()]
        why = f"they grow together, as {' and '.join(_NAMES[it] for it in units)} do"
        return Elapsed(starts[0], list(within), [Alternative({"sample_time_unit": units}, why)])
    rising = [path for path, held in fields.items() if _is_rising(path, held, owners)]
    rising.sort(key=lambda it: not hints(it, _NAMED))
    if not rising:
        return None
    path, held, gaps = rising[0], fields[rising[0]], _gaps(starts[0], evidence)
    ways = _units(held, owners, gaps)
    return Elapsed(starts[0], [path], [] if _are_places(held, list(gaps.values()), ways) else ways)


def _total(row: Sequence[Any], steps: Sequence[int]) -> int:
    return sum(int(as_float(it) * step) for it, step in zip(row, steps, strict=True))


def _is_rising(path: str, held: Sequence[Any], owners: Sequence[int]) -> bool:
    """Returns whether numbers count up from about zero in each document: fractions where they are called like
    a time."""
    is_told = all(map(is_whole, held)) or (
        hints(path, _NAMED) and all(isinstance(it, int | float) and math.isfinite(it) for it in held)
    )
    return is_told and min(held) >= 0 and _counts_up(held, owners)


def _are_places(held: Sequence[Any], gaps: Sequence[int], ways: Sequence[Alternative]) -> bool:
    """Returns whether numbers only number the samples: they count one by one from 1, or from 0 as far as
    fills the time to the next document in none of the units."""
    first = counted_from(held)
    if first not in (0, 1) or not gaps:
        return False
    width, rest = divmod(int(median(gaps)), int(max(held)) - first + 1)
    is_unit = width in [_UNITS[it.keys["sample_time_unit"]] for it in ways]
    return first == 1 or not (is_unit or rest or width % _UNITS["+s"])


def _counts_up(rows: Sequence[Any], owners: Sequence[int]) -> bool:
    """Returns whether rows grow within each document, and mostly start anew in the next."""
    pairs = list(pairwise(zip(owners, rows, strict=True)))
    try:
        grows = all(a[1] < b[1] for a, b in pairs if a[0] == b[0])
    except TypeError:
        return False
    within = sum(a[0] == b[0] for a, b in pairs)
    falls = [b[1] <= a[1] for a, b in pairs if a[0] != b[0]]
    return grows and within >= _LEAST and 2 * sum(falls) >= len(falls)


#: Pairs of neighbours that have to grow.
_LEAST = 3


def _units(held: Sequence[Any], owners: Sequence[int], gaps: Mapping[int, int]) -> list[Alternative]:
    """Returns the units in which numbers may count, with what speaks for each. `gaps`: see `_gaps`."""
    reach = {unit: int(max(held) * ms) for unit, ms in _UNITS.items()}
    if not gaps:
        fitting = [it for it, ms in reach.items() if ms < _LONGEST]
        return [_way(it, reach[it], None) for it in fitting] or [_way("+ms", reach["+ms"], None)]
    lasts = dict(zip(owners, held, strict=True))  # numbers grow in each document
    filled = median([lasts[it] / gap for it, gap in gaps.items() if lasts.get(it)] or [0])
    fitting = [it for it, ms in _UNITS.items() if filled * ms <= _OVER]
    reaching = [it for it in fitting if _REACH * filled * _UNITS[it] >= 1]
    is_filled = any(_FULL <= filled * _UNITS[it] <= 1 / _FULL for it in reaching)
    if reaching and not is_filled:  # they may be far from each other
        reaching = fitting[fitting.index(reaching[0]) :][: len(reaching) + 1]
    if reaching and "+s" in fitting and not all(map(is_whole, held)):  # mostly, fractions are of seconds
        reaching = [it for it in fitting if it in (*reaching, "+s")]
    gap = sorted(gaps.values())[len(gaps) // 4]
    return [_way(it, reach[it], gap) for it in reaching or fitting or ["+ms"]]


#: A bucket that is longer than this does not tell its unit by its length.
_LONGEST = 8 * 86_400_000
#: In most buckets the last sample comes after this part of the time to the next one of the series, and before
#: so many times of it are over: buckets that are closed by size, or late, reach over the next one.
_REACH, _OVER = 20, 2
#: Share of that time from which on buckets leave nothing out, and the other way round.
_FULL = 0.9


def _way(unit: str, reach: int, gap: int | None) -> Alternative:
    last = f"as {_NAMES[unit]} the last sample comes {_length(reach)} after its bucket's start"
    apart = "" if gap is None else f"; documents of a series come {spacing_words(gap)} apart"
    return Alternative({"sample_time_unit": unit}, last + apart)


def _length(ms: int) -> str:
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms} ms"


def _gaps(start: Time, evidence: Evidence) -> dict[int, int]:
    """Returns how long after each document the next one of its series comes, by the document's number."""
    texts = [held for held in evidence.single.values() if all(isinstance(it, str | int) for it in held)]
    starts: dict[str, list[tuple[int, int]]] = {}
    for number, at in enumerate(start.values):
        if at is not None:
            key = repr([it[number] for it in texts if len(set(it)) <= len(it) // 2])
            starts.setdefault(key, []).append((at, number))
    pairs = [pair for it in starts.values() for pair in pairwise(sorted(it))]
    return {number: after - at for (at, number), (after, _) in pairs if after > at}
