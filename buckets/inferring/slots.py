"""Proposals of the model `slots`: a document for a span of time, with a slot for each unit of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bucketwise.buckets.inferring.fields import Fields, has_slots, is_number, listed, non_null
from bucketwise.buckets.inferring.proposal import (
    NEARLY_ALL,
    Evidence,
    Proposal,
    ask_of_other_times,
    choose_clock,
    choose_series,
    names_of,
)
from bucketwise.buckets.inferring.times import Time
from bucketwise.buckets.inferring.values import usable

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_QUARTER = 15 * _MINUTE
#: A shorter array of numbers is more likely a point on a map.
_MIN_PLACES = 4
#: Starts that are needed to tell how far buckets are apart.
_MIN_STARTS = 3


class _Units(NamedTuple):
    """Slots of one kind: how many there are on each level, how long a bucket is, and how a policy says it."""

    slots: tuple[int, ...]
    length: int
    keys: dict[str, Any]
    words: str


#: Units; those with equally many slots from short to long.
_UNITS = [
    _Units((24,), _DAY, {"slot_levels": ["hour"]}, "hours of a day"),
    _Units((60,), _MINUTE, {"slot": "second"}, "seconds of a minute"),
    _Units((60,), _HOUR, {"slot": "minute"}, "minutes of an hour"),
    _Units((1440,), _DAY, {"slot_levels": ["minute"], "span": "day"}, "minutes of a day"),
    _Units((3600,), _HOUR, {"slot_levels": ["second"], "span": "hour"}, "seconds of an hour"),
    _Units((86400,), _DAY, {"slot_levels": ["second"], "span": "day"}, "seconds of a day"),
    _Units((24, 60), _DAY, {"slot_levels": ["hour", "minute"]}, "minutes in hours"),
    _Units((60, 60), _HOUR, {"slot_levels": ["minute", "second"]}, "seconds in minutes"),
    _Units((24, 3600), _DAY, {"slot_levels": ["hour", "second"]}, "seconds in hours"),
    _Units(
        (1440, 60), _DAY, {"slot_levels": ["minute", "second"], "span": "day"}, "seconds in minutes of a day"
    ),
    _Units((24, 60, 60), _DAY, {"slot_levels": ["hour", "minute", "second"]}, "seconds in minutes in hours"),
]


@dataclass
class _Slots:
    """The contents of one field in all documents."""

    highest: list[int] = field(default_factory=list)  # key, level by level
    depths: Counter[int] = field(default_factory=Counter)
    values: list[Any] = field(default_factory=list)  # of all slots
    sizes: Counter[int] = field(default_factory=Counter)  # slots in a document
    is_keyed: bool = False

    def add(self, held: Any, depth: int = 0) -> None:
        """Adds a sub-document or an array of slots."""
        if len(self.highest) == depth:
            self.highest.append(-1)
        self.is_keyed |= isinstance(held, dict)
        pairs = enumerate(held) if isinstance(held, list) else ((int(key), it) for key, it in held.items())
        for key, value in pairs:
            if value is None or value == {} or value == []:
                continue
            self.highest[depth] = max(self.highest[depth], key)
            if depth < 2 and (isinstance(value, list) or has_slots(value)):
                self.add(value, depth + 1)
            else:
                self.depths[depth + 1] += 1
                self.values.append(value)

    @property
    def levels(self) -> list[int]:
        """Returns the highest key of each level down to the values."""
        return self.highest[: next(iter(self.depths))]

    @property
    def is_likely(self) -> bool:
        """Returns whether these are slots, and not a few numbers that belong together."""
        return len(self.depths) == 1 and (self.is_keyed or max(self.highest) >= _MIN_PLACES)

    def paths(self, field: str) -> list[str]:
        """Returns the value fields."""
        numbers = sum(map(is_number, self.values))
        if 2 * numbers > len(self.values):
            return [field]
        inner = Fields.of(it for it in self.values if isinstance(it, dict))
        if 2 * len(inner.documents) <= len(self.values):
            return []
        return [
            f"{field}.*.{path}"
            for path, it in inner.single.items()
            if 2 * sum(map(is_number, it)) > len(non_null(it))
        ]


def propose(evidence: Evidence, samples: Container[str] = ()) -> Iterator[Proposal]:
    """Yields a proposal for each depth of slots, with all fields that have it. `samples`: arrays that hold
    samples with times of their own."""
    found: dict[int, dict[str, _Slots]] = {}
    for path, held in evidence.fields.several.items():
        if path in samples:
            continue
        slots = _Slots()
        for of_document in non_null(held):
            before = len(slots.values)
            slots.add(of_document)
            slots.sizes[len(slots.values) - before] += 1
        if slots.is_likely and slots.paths(path):
            found.setdefault(next(iter(slots.depths)), {})[path] = slots
    for fields in found.values():
        for time in evidence.times:
            kinds = _units(fields, time)
            if kinds:
                yield _proposal(fields, kinds, time, evidence)
                break


def _units(fields: dict[str, _Slots], time: Time) -> list[_Units]:
    """Returns the kinds that these slots may be, the likeliest first: with fewest slots, then the longest."""
    highest = [max(it) for it in zip(*(slots.levels for slots in fields.values()), strict=True)]
    starts = sorted(set(non_null(time.values)))
    fitting = [
        kind
        for kind in _UNITS
        if len(kind.slots) == len(highest)
        and all(key < count for key, count in zip(highest, kind.slots, strict=True))
        and _are_starts(starts, kind.length)
    ]
    return sorted(fitting, key=lambda it: (it.slots, -it.length))


def _are_starts(starts: list[int], length: int) -> bool:
    """Returns whether buckets of this length start at these instants, side by side in any time zone."""
    are_aligned = sum(it % min(length, _QUARTER) == 0 for it in starts) >= NEARLY_ALL * len(starts)
    # Days are up to an hour shorter where clocks change.
    shortest = length - _HOUR if length == _DAY else length
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    are_apart = sum(it >= shortest for it in gaps) >= NEARLY_ALL * len(gaps)
    return (
        are_aligned and are_apart and (len(starts) >= _MIN_STARTS or all(it % length == 0 for it in starts))
    )


def _proposal(fields: dict[str, _Slots], kinds: Sequence[_Units], time: Time, evidence: Evidence) -> Proposal:
    kind, *others = kinds
    paths = [path for name, slots in fields.items() for path in slots.paths(name)]
    alike: dict[int, list[str]] = {}
    for name, slots in fields.items():
        alike.setdefault(slots.sizes.most_common(1)[0][0], []).append(name)
    what = "; ".join(f"{size:,} slots under {listed(named)}" for size, named in alike.items())
    proposal = Proposal({"model": "slots", **kind.keys, "time_field": time.path}, what)
    if time.key is not None:
        proposal.keys["time_unit"] = time.key
    notes = proposal.notes
    first = next(iter(kind.keys))
    notes.add_evidence(first, kind.words)
    rivals = [it.words for it in others if it.slots == kind.slots]
    if rivals and len(set(non_null(time.values))) < _MIN_STARTS:
        notes.add_question(first, f"Are these {kind.words}, or {' or '.join(rivals)}?")
    ask_of_other_times(time, evidence.times, notes, "time_field")
    choose_clock(evidence.single, proposal)
    names = names_of(evidence, [])
    names.pop(proposal.keys.get("local_offset_field", ""), None)
    choose_series(names, time.values, evidence, time.path, proposal)
    proposal.keys["value_fields"] = usable(paths, notes)
    floats = [
        it for it, held in evidence.fields.single.items() if any(isinstance(value, float) for value in held)
    ]
    if floats:
        notes.add_evidence("value_fields", f"outside of slots there are also {listed(floats[:5])}")
    return proposal
