"""Proposals of the model `slots`: a document for a span of time, with a slot for each unit of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bucketwise.buckets.fields.clocks import clock_of, distinct, with_midnights
from bucketwise.buckets.inferring.fields import (
    CLOCK,
    Fields,
    counted_from,
    has_slots,
    is_number,
    listed,
    non_null,
)
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
from bucketwise.buckets.inferring.texts import is_time_of_day
from bucketwise.buckets.inferring.times import Time
from bucketwise.buckets.inferring.unread import unread
from bucketwise.buckets.inferring.values import usable, written_in
from bucketwise.buckets.inferring.widths import (
    DAY,
    HOUR,
    MINUTE,
    NEARLY_FULL,
    SECOND,
    Places,
    Spacing,
    Width,
    emptiness,
    spacing_words,
    widths_of,
)

#: A shorter array of numbers is more likely a point on a map.
_MIN_PLACES = 4
_COMPACT_DIGITS = 4
#: So many different keys of four digits are not all times of a clock by chance; and a day has fewer minutes.
_MANY, _MINUTES = 10, 1_440
#: Keys of a lower level by those above it: so many are in one where they count on.
_PER_OUTER = 60


@dataclass
class Held:
    """The contents of one field in all documents."""

    lowest: list[int] = field(default_factory=list)  # key, level by level
    highest: list[int] = field(default_factory=list)
    each: list[int] = field(default_factory=list)  # the highest key of each document, on the outer level
    depths: Counter[int] = field(default_factory=Counter)
    values: list[Any] = field(default_factory=list)  # of all slots
    sizes: Counter[int] = field(default_factory=Counter)  # slots in a document
    texts: set[str] = field(default_factory=set)  # the keys of the outer level, as they are written
    is_keyed: bool = False
    runs_on: bool = True  # the keys of the second level count on through the bucket

    @classmethod
    def of(cls, held: Iterable[Any]) -> Held:
        """Returns the contents of the sub-documents or arrays of a field."""
        found = cls()
        for of_document in non_null(held):
            before = len(found.values)
            top = found._add(of_document)
            found.sizes[len(found.values) - before] += 1
            if top >= 0:
                found.each.append(top)
        return found

    def _add(self, held: Any, depth: int = 0, outer: int = 0) -> int:
        """Adds a sub-document or an array of slots, and returns its highest key."""
        if len(self.highest) == depth:
            self.lowest.append(10**9)
            self.highest.append(-1)
        if isinstance(held, dict):
            self.is_keyed = True
            self.texts |= set(held) if depth == 0 else set()
            pairs: Iterable[tuple[int, Any]] = [(_number(key), it) for key, it in held.items()]
            top = -1
        else:
            pairs, top = enumerate(held), len(held) - 1
        for key, value in pairs:
            if value is None or value == {} or value == []:
                continue
            top = max(top, key)
            self.lowest[depth] = min(self.lowest[depth], key)
            if depth == 1 and key // _PER_OUTER != outer:
                self.runs_on = False
            if depth < 2 and (isinstance(value, list) or has_slots(value)):
                self._add(value, depth + 1, key)
            else:
                self.depths[depth + 1] += 1
                self.values.append(value)
        self.highest[depth] = max(self.highest[depth], top)
        return top

    @property
    def depth(self) -> int:
        """Returns how many levels of slots there are."""
        return next(iter(self.depths))

    @property
    def levels(self) -> list[int]:
        """Returns the highest key of each level down to the values."""
        return self.highest[: self.depth]

    @property
    def is_likely(self) -> bool:
        """Returns whether these are slots, and not a few numbers that belong together."""
        return len(self.depths) == 1 and (self.is_keyed or max(self.highest) + 1 >= _MIN_PLACES)

    @property
    def places(self) -> Places:
        """Returns the slots of the outer level."""
        return Places(self.lowest[0], self.highest[0], self.each, self.is_keyed)

    @property
    def is_running(self) -> bool:
        """Returns whether the keys of the second level count on from one outer slot to the next."""
        return self.depth == 2 and self.runs_on and self.highest[1] >= _PER_OUTER

    @property
    def clock(self) -> Width | None:
        """Returns the slots of a day whose keys are what a clock shows; None where they are numbers."""
        seconds = [_shown(it) for it in self.texts]
        if self.depth != 1 or len(seconds) < 2 or None in seconds:
            return None
        step = math.gcd(*(it for it in seconds if it is not None)) * SECOND
        widths = [it for it in (12 * HOUR, 6 * HOUR, *_CLOCK_WIDTHS) if step % it == 0]
        return Width(widths[0], DAY)

    @property
    def is_surely_clock(self) -> bool:
        """Returns whether the keys of a clock can't be numbers."""
        return any(":" in it for it in self.texts) or len(self.texts) >= _MANY or self.highest[0] >= _MINUTES

    def columns(self, field: str) -> dict[str, list[Any]]:
        """Returns the value fields, with what they hold."""
        if self._are_values(self.values):
            return {field: self.values}
        inner = Fields.of(it for it in self.values if isinstance(it, dict))
        if 2 * len(inner.documents) <= len(self.values):
            return {}
        if not self.is_keyed and any(map(_is_out_of_place, inner.single.values())):
            return {}
        columns = {path: it for path, it in inner.single.items() if self._are_values(it)}
        counting = {path for path, it in columns.items() if counted_from(it) in (0, 1)}
        names = columns.keys() - counting or columns
        return {f"{field}.*.{path}": it for path, it in columns.items() if path in names}

    def _are_values(self, held: Sequence[Any]) -> bool:
        """Returns whether most of these are numbers, or all of them in another form."""
        if 2 * sum(map(is_number, held)) > len(non_null(held)):
            return True
        written = written_in(held)
        return written is not None and (written.is_sure or self.is_keyed)


#: Widths of slots that a clock names.
_CLOCK_WIDTHS = [
    *(HOUR * it for it in (4, 3, 2, 1)),
    *(MINUTE * it for it in (30, 20, 15, 12, 10, 6, 5, 4, 3, 2, 1)),
    *(SECOND * it for it in (30, 20, 15, 10, 5, 2, 1)),
]


def _is_out_of_place(held: Sequence[Any]) -> bool:
    """Returns whether these are times of day that don't go on from midnight in even steps, as places do."""
    texts = [str(it) for it in non_null(held)]
    if not is_time_of_day(texts):
        return False
    seconds = [_shown(it) for it in texts]
    step = next((it for it in seconds if it), 0)
    return any(it not in (0, (before or 0) + step) for before, it in pairwise([-step, *seconds]))


def _number(key: str) -> int:
    return int(key) if key.isdigit() else _shown(key) or 0


def _shown(key: str) -> int | None:
    """Returns the second of the day that a clock shows so; None for another text."""
    if shown := CLOCK.fullmatch(key):
        hour, minute, second = (int(it or 0) for it in shown.groups())
        return hour * 3600 + minute * 60 + second
    hour, minute = (int(key[:2]), int(key[2:])) if len(key) == _COMPACT_DIGITS and key.isdigit() else (24, 60)
    return hour * 3600 + minute * 60 if hour < 24 and minute < 60 else None


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
        changing = distinct(time.all_told)
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
