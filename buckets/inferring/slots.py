"""Proposals of the model `slots`: a document for a span of time, with a slot for each unit of it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bucketwise.buckets.fields.clocks import clock_of, distinct, with_midnights
from bucketwise.buckets.inferring.fields import listed, non_null
from bucketwise.buckets.inferring.held import Held
from bucketwise.buckets.inferring.proposal import (
    SOLE,
    Alternative,
    Evidence,
    Proposal,
    choose_clock,
    choose_series,
    choose_time,
    choose_values,
    names_of,
)
from bucketwise.buckets.inferring.times import Time
from bucketwise.buckets.inferring.unread import unread
from bucketwise.buckets.inferring.values import usable
from bucketwise.buckets.inferring.widths import (
    DAY,
    HOUR,
    NEARLY_FULL,
    Places,
    Spacing,
    Width,
    emptiness,
    spacing_words,
    widths_of,
)


class _Levels(NamedTuple):
    """Slots inside slots: how many each level has, how long a bucket is, and how a policy says it."""

    slots: tuple[int, ...]
    length: int
    keys: dict[str, Any]
    words: str


_LEVELS = [
    _Levels((24, 60), DAY, {"slot_levels": ["hour", "minute"]}, "minutes in hours"),
    _Levels((60, 60), HOUR, {"slot_levels": ["minute", "second"]}, "seconds in minutes"),
    _Levels((24, 3600), DAY, {"slot_levels": ["hour", "second"]}, "seconds in hours"),
    _Levels(
        (1440, 60), DAY, {"slot_levels": ["minute", "second"], "span": "day"}, "seconds in minutes of a day"
    ),
    _Levels((24, 60, 60), DAY, {"slot_levels": ["hour", "minute", "second"]}, "seconds in minutes in hours"),
]
_RUNNING = [
    _Levels(
        (24, 1440),
        DAY,
        {"slot_levels": ["hour", "minute"], "slot_keys": "running"},
        "minutes in hours, with keys that count on through the day",
    ),
    _Levels(
        (60, 3600),
        HOUR,
        {"slot_levels": ["minute", "second"], "slot_keys": "running"},
        "seconds in minutes, with keys that count on through the hour",
    ),
]


@dataclass(frozen=True)
class _Kind:
    """What slots may be: keys of a policy with what speaks for them, and whether a bucket is of days."""

    keys: dict[str, Any]
    why: str
    is_of_days: bool

    @property
    def is_shown(self) -> bool:
        """Returns whether keys are what a clock shows."""
        return self.keys.get("slot_keys") == "clock"


def propose(evidence: Evidence, samples: Container[str] = ()) -> Iterator[Proposal]:
    """Yields a proposal for each kind of slots, with all fields that have it. `samples`: arrays that hold
    samples with times of their own."""
    found = {path: Held.of(it) for path, it in evidence.fields.several.items() if path not in samples}
    likely = {path: it for path, it in found.items() if it.is_likely and it.columns(path)}
    for time in evidence.times:
        names = names_of(evidence, [])
        draft = Proposal({}, "")
        choose_clock(evidence.single, draft)
        names.pop(draft.keys.get("local_offset_field", ""), None)
        choose_series(names, time.values, evidence, time.path, draft)
        spacing = _spacing(time, [names[it] for it in draft.keys["series_fields"]])
        found_kinds = [(it, kinds) for it in _alike(likely, spacing) if (kinds := _kinds_of(it, spacing))]
        for fields, kinds in found_kinds:
            yield _proposal(fields, kinds, time, evidence)
        if found_kinds:
            return


def _spacing(time: Time, series: Sequence[Sequence[Any]]) -> Spacing:
    """Returns where buckets start, and how far those of a series are apart."""
    starts: dict[str, set[int]] = {}
    for number, start in enumerate(time.values):
        if start is not None:
            starts.setdefault(repr([it[number] for it in series]), set()).add(start)
    gaps = sorted(b - a for of_series in starts.values() for a, b in pairwise(sorted(of_series)))
    all_starts = sorted({it for of_series in starts.values() for it in of_series})
    return Spacing(all_starts, gaps[len(gaps) // 4] if gaps else None, time.is_day)


def _alike(likely: Mapping[str, Held], spacing: Spacing) -> Iterator[dict[str, Held]]:
    """Yields the fields whose slots are of one kind: those with clock times, those on each depth, and on one
    level those with different slots of which a bucket has all."""
    groups: dict[Any, dict[str, Held]] = {}
    scarce: dict[str, Held] = {}
    for path, held in likely.items():
        if held.depth > 1:
            groups.setdefault((held.depth, held.is_running), {})[path] = held
        elif held.clock is not None:
            groups.setdefault(("clock", held.clock), {})[path] = held
        else:
            widths = widths_of(held.places, spacing)
            full = [it for it in widths if emptiness(it, held.places) < NEARLY_FULL]
            if full:
                groups.setdefault(("full", full[0].slot, full[0].span), {})[path] = held
            else:
                scarce[path] = held
    rest = groups.setdefault("rest", {})
    for path, held in scarce.items():
        fitting = [
            fields
            for key, fields in groups.items()
            if key[0] == "full" and held.places.highest <= max(it.places.highest for it in fields.values())
        ]
        (fitting[-1] if fitting else rest)[path] = held
    yield from (it for it in groups.values() if it)


def _kinds_of(fields: Mapping[str, Held], spacing: Spacing) -> list[_Kind]:
    """Returns what these slots may be, the likeliest first."""
    first = next(iter(fields.values()))
    if first.depth > 1:
        return _of_levels(fields, spacing)
    numbers = [_kind(it, spacing) for it in widths_of(_places(fields), spacing)]
    clock = first.clock
    if clock is None or not (spacing.may_be(DAY) and spacing.reaches(DAY)):
        return numbers
    keys = {"slot": clock.keys.get("slot", "hour"), "span": "day", "slot_keys": "clock"}
    shown = _Kind(keys, f"{clock.words}: their keys are what a clock shows", is_of_days=True)
    return [shown] if first.is_surely_clock else [shown, *numbers]


def _places(fields: Mapping[str, Held]) -> Places:
    """Returns the slots of several fields together."""
    held = [it.places for it in fields.values()]
    return Places(
        min(it.lowest for it in held),
        max(it.highest for it in held),
        [one for it in held for one in it.each],
        any(it.is_keyed for it in held),
    )


def _kind(width: Width, spacing: Spacing) -> _Kind:
    """Returns slots of a width, with what speaks for them."""
    is_of_days = width.span % DAY == 0
    if spacing.gap is None:
        why = f"{width.words}; no series has documents next to each other"
        return _Kind(width.keys, why, is_of_days)
    apart = f"documents of a series come {spacing_words(spacing.gap)} apart"
    if spacing.reaches(width.span):
        return _Kind(width.keys, f"{width.words}; {apart}", is_of_days)
    return _Kind(
        {**width.keys, "sparse_ok": True}, f"{width.words}, and nothing in between; {apart}", is_of_days
    )


def _of_levels(fields: Mapping[str, Held], spacing: Spacing) -> list[_Kind]:
    """Returns what slots inside slots may be: with fewest slots, then the longest bucket."""
    first = next(iter(fields.values()))
    tops = [max(it) for it in zip(*(held.levels for held in fields.values()), strict=True)]
    fitting, called = _levels_of(first, tops, spacing), 0
    if not fitting and all(min(held.lowest[: held.depth]) > 0 for held in fields.values()):
        fitting, called = _levels_of(first, [it - 1 for it in tops], spacing), 1
    fitting = [it for it in fitting if spacing.reaches(it.length)] or fitting
    kinds = sorted(fitting, key=lambda it: (it.slots, -it.length))[:1]
    more: dict[str, Any] = {"first_slot": 1} if called else {}
    words = ", the first of them called 1" if called else ""
    return [
        _Kind(
            {**it.keys, **more, **({} if spacing.reaches(it.length) else {"sparse_ok": True})},
            f"{it.words}{words}",
            it.length == DAY,
        )
        for it in kinds
    ]


def _levels_of(first: Held, highest: Sequence[int], spacing: Spacing) -> list[_Levels]:
    """Returns the levels that have so many slots. `highest`: the place of the last slot of each."""
    return [
        kind
        for kind in (_RUNNING if first.is_running else _LEVELS)
        if len(kind.slots) == len(highest)
        and all(place < count for place, count in zip(highest, kind.slots, strict=True))
        and spacing.may_be(kind.length)
        and (spacing.gap is None or kind.length - HOUR <= spacing.gap)
    ]


def _proposal(fields: Mapping[str, Held], kinds: Sequence[_Kind], time: Time, evidence: Evidence) -> Proposal:
    columns = {path: it for name, held in fields.items() for path, it in held.columns(name).items()}
    alike: dict[int, list[str]] = {}
    for name, held in fields.items():
        alike.setdefault(held.sizes.most_common(1)[0][0], []).append(name)
    what = "; ".join(f"{size:,} slots under {listed(named)}" for size, named in alike.items())
    proposal = Proposal({"model": "slots"}, what, refusal=unread(time, (), (), evidence))
    notes = proposal.notes
    choose_time(time, evidence, proposal)
    forms, clocks = proposal.alternatives, proposal.clocks
    choose_clock(evidence.single, proposal)
    proposal.clocks = SOLE
    proposal.alternatives = [
        Alternative({**form.keys, **kind.keys, **clock.keys}, "; ".join(filter(None, (kind.why, clock.why))))
        for kind in kinds
        for form in forms
        for clock in (_of_days(time, proposal.keys, kind.is_shown) if kind.is_of_days else clocks)
    ]
    if len(kinds) == 1:
        notes.add_evidence(next(it for it in ("slot", "slot_levels") if it in kinds[0].keys), kinds[0].why)
    names = names_of(evidence, [])
    names.pop(proposal.keys.get("local_offset_field", ""), None)
    choose_series(names, time.values, evidence, time.path, proposal)
    choose_values(columns, usable(list(columns), notes), proposal)
    floats = [
        it for it, held in evidence.fields.single.items() if any(isinstance(value, float) for value in held)
    ]
    if floats:
        notes.add_evidence("value_fields", f"outside of slots there are also {listed(floats[:5])}")
    return proposal


def _of_days(time: Time, keys: Mapping[str, Any], are_shown: bool) -> Sequence[Alternative]:
    """Returns the clocks that the days of buckets may follow, and whether slots are what these show.
    `are_shown`: they are, by their names."""
    starts = sorted(set(non_null(time.values)))
    if not time.is_local:
        zones = with_midnights(starts)
        shown = [int(it) for zone in zones[:1] for it in clock_of(zone).shown(np.array(starts))]
        changing = distinct(shown)
        zones = zones[:1] if zones[:1] == ["UTC"] else zones
    elif "timezone" in keys:
        changing = distinct(starts)
        zones = [keys["timezone"]]
    else:
        changing = distinct(starts)
        zones = list(changing)
    if zones in ([], ["UTC"]) and not time.is_local:
        return SOLE
    return [
        Alternative({"timezone": zone, **more}, _CHANGED if changing.get(zone) else "")
        for zone in zones
        for more in _by(zone, are_shown, changing.get(zone, True))
    ]


_CHANGED = "clocks there were changed on one of these days"


def _by(zone: str, are_shown: bool, changes: bool) -> list[dict[str, str]]:
    """Returns how slots go on after a change of the clock, where there is any."""
    if are_shown:
        return [{}] if zone == "UTC" else [{"slot_time": "local"}]
    return [{}, {"slot_time": "local"}] if changes else [{}]
