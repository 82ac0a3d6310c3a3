"""How long each state lasted, and how often it changed."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from bucketwise.buckets.fields.distinct import distinct_doubles, distinct_numbers
from bucketwise.buckets.fields.values import number_text
from bucketwise.rollups.statistics.base import (
    Column,
    FieldReadings,
    MomentsState,
    Stored,
    VarintReader,
    VarintWriter,
)
from bucketwise.rollups.statistics.steps import Reading, StepArrays, Steps, StepsState

#: Changes, and the milliseconds of each state that lasted; None: there are more than are kept.
StateAmount = tuple[int, dict[Any, int] | None]
MOST_STATES = 64
_DOUBLE = struct.Struct("<d")


class TimeInState(Steps[StateAmount]):
    """Changes and seconds. A state lasts from its reading to the next one. A change counts where the step to
    another state ends."""

    columns = (
        Column("changes", "whole", is_derived=True),
        Column("seconds", "seconds", is_derived=True),
        Column("states_over", "flag", is_derived=True),
    )
    table = ("changes", "seconds")
    looks_ahead = True
    zero = (0, {})
    code = 4

    def amounts(self, steps: StepArrays) -> list[StateAmount]:
        """Returns what the inner steps of each group amount to."""
        values, time, is_step = steps.values, steps.time, steps.inner[:-1]
        differs = values[1:] != values[:-1]
        changed = steps.groups_of(np.flatnonzero(is_step & differs))
        changes = np.bincount(changed, minlength=len(steps.starts)).tolist()
        runs = np.append(0, np.flatnonzero(differs | ~is_step) + 1)  # of what stays the same
        ends = np.append(runs[1:], len(values)) - 1
        lasted = time[ends + steps.inner[ends]] - time[runs]
        lasts = lasted > 0
        runs, lasted = runs[lasts], lasted[lasts]
        states, state = distinct_doubles(values[runs])
        pairs = steps.groups_of(runs) * len(states) + state
        cells, cell = distinct_numbers(pairs, len(changes) * len(states))
        sums = np.bincount(cell, lasted).astype(np.int64)  # exact: no range of time has 2**53 ms
        found: list[dict[Any, int] | None] = [{} for _ in changes]
        groups, numbers = np.divmod(np.array(cells, dtype=np.int64), max(1, len(states)))
        for of, value, ms in zip(groups.tolist(), states[numbers].tolist(), sums.tolist(), strict=True):
            kept = found[of]
            assert kept is not None
            kept[value] = ms
        return [(n, _limited(kept)) for n, kept in zip(changes, found, strict=True)]

    def step(self, one: Reading, other: Reading) -> StateAmount:
        """Returns what one whole step amounts to."""
        lasting = other[0] - one[0]
        return int(one[1] != other[1]), {one[1]: lasting} if lasting else {}

    def part(self, one: Reading, other: Reading, window: tuple[int, int]) -> StateAmount:
        """Returns the time in the window, and the change if it is in it."""
        changes = int(one[1] != other[1] and window[0] <= other[0] < window[1])
        lasting = min(other[0], window[1]) - max(one[0], window[0])
        return changes, {one[1]: lasting} if lasting > 0 else {}

    def add(self, one: StateAmount, other: StateAmount) -> StateAmount:
        """Returns both together."""
        changes = one[0] + other[0]
        if one[1] is None or other[1] is None:
            return changes, None
        merged = dict(one[1])
        for value, lasting in other[1].items():
            merged[value] = merged.get(value, 0) + lasting
        return changes, _limited(merged)

    def shown(self, state: Any, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key. `seconds` is null where there are more states than are kept."""
        changes, lasting = state[4] if state else self.zero
        seconds = None
        if lasting is not None:
            seconds = {self.key(value): ms / 1000 for value, ms in sorted(lasting.items())}
        return {"changes": changes, "seconds": seconds, "states_over": lasting is None}

    @staticmethod
    def key(value: Any) -> str:
        """Returns the key of a state in `seconds`."""
        return number_text(value)

    def pack_amount(self, amount: StateAmount, writer: VarintWriter) -> None:
        """Writes the changes, and each state with its time, ascending."""
        changes, lasting = amount
        writer.number(changes)
        if lasting is None:
            writer.number(0)
            return
        writer.number(1 + len(lasting))
        for value, ms in sorted(lasting.items()):
            writer.string(_DOUBLE.pack(value))
            writer.number(ms)

    def unpack_amount(self, reader: VarintReader) -> StateAmount:
        """Returns what `pack_amount` wrote."""
        changes, count = reader.number(), reader.number()
        if not count:
            return changes, None
        found = {}
        for _ in range(count - 1):
            packed = reader.string()
            if len(packed) != _DOUBLE.size:
                raise ValueError(f"a state of {len(packed)} bytes")
            found[_DOUBLE.unpack(packed)[0]] = reader.number()
        return changes, found


def _limited(lasting: dict[float, int] | None) -> dict[float, int] | None:
    return lasting if lasting is not None and len(lasting) <= MOST_STATES else None


class TimeInTextState(TimeInState):
    """Changes and seconds where texts are states. The value of a reading is the name of its state."""

    has_texts = True
    code = 5

    def states(self, readings: FieldReadings) -> list[StepsState]:
        """Returns the state of each cell."""
        if readings.states is None:
            return [self.empty] * readings.cells
        names = readings.states.names
        return [self._named(state, names) for state in super().states(readings.states.places)]

    @staticmethod
    def _named(state: StepsState, names: Sequence[str]) -> StepsState:
        """Returns a state with the names of the states in place of their numbers."""
        if not state:
            return state

        def named(reading: Reading | None) -> Any:
            return None if reading is None else (reading[0], names[int(reading[1])])

        before, first, last, after, (changes, lasting) = state
        if lasting is not None:
            lasting = {names[int(place)]: ms for place, ms in lasting.items()}
        return named(before), named(first), named(last), named(after), (changes, lasting)

    def shown(self, state: Any, moments: MomentsState) -> Mapping[str, Any]:
        """Returns the value of each key. `changes` is null where no reading tells a state."""
        found = super().shown(state, moments)
        return found if state else {**found, "changes": None}

    def holding(self, name: str) -> dict[str, Any]:
        """Returns a query for the summaries that hold a reading of a value field."""
        return {f"{name}.changes": {"$ne": None}}

    @staticmethod
    def key(value: str) -> str:
        """Returns the key of a state in `seconds`. A number is its own. Else it has no dot, no NUL, no dollar
        sign in front, and is not empty: these are written as in a URL, and so is `%`. An empty text is
        `%`."""
        if _is_number(value):
            return value
        text = "".join(f"%{ord(it):02X}" if it in "%.\0" else it for it in value) or "%"
        return f"%24{text[1:]}" if text[0] == "$" else text

    def pack(self, state: StepsState, writer: VarintWriter, lacks: Set[str]) -> None:  # noqa: ARG002
        """Writes how it was made; the names of the states, ascending; the readings, the changes, and how long
        each state lasted, by their places among these."""
        if not state:
            writer.number(0)
            return
        before, first, last, after, (changes, lasting) = state
        held = {it[1] for it in (before, first, last, after) if it is not None}
        places = {name: place for place, name in enumerate(sorted(held.union(lasting or ())))}
        writer.number(self.code)
        writer.number(self.max_gap)
        writer.number(len(places))
        for name in places:
            writer.string(name.encode())
        writer.signed(first[0])
        writer.number(places[first[1]])
        writer.number(last[0] - first[0])
        writer.number(places[last[1]])
        for neighbour, own in ((before, first), (after, last)):
            writer.number(0 if neighbour is None else 1 + places[neighbour[1]])
            if neighbour is not None:
                writer.number(abs(neighbour[0] - own[0]))
        writer.number(changes)
        writer.number(0 if lasting is None else 1 + len(lasting))
        for name, ms in sorted((lasting or {}).items()):
            writer.number(places[name])
            writer.number(ms)

    def unpack(self, stored: Stored) -> StepsState:
        """Returns the state of a summary's value field."""
        reader = stored.reader
        if not (code := reader.number()):
            return self.empty
        if (code, reader.number()) != (self.code, self.max_gap):
            raise ValueError("`kind` or `max_gap` have changed since")
        names = [reader.string().decode() for _ in range(reader.number())]

        def name() -> str:
            return self._at(names, reader.number())

        first = reader.signed(), name()
        last = first[0] + reader.number(), name()

        def neighbour(own: int, sign: int) -> Reading | None:
            place = reader.number()
            return (own + sign * reader.number(), self._at(names, place - 1)) if place else None

        before, after = neighbour(first[0], -1), neighbour(last[0], 1)
        changes, count = reader.number(), reader.number()
        lasting = {name(): reader.number() for _ in range(count - 1)} if count else None
        return before, first, last, after, (changes, lasting)

    @staticmethod
    def _at(names: Sequence[str], place: int) -> str:
        if place >= len(names):
            raise ValueError(f"there is no state {place}")
        return names[place]


def _is_number(name: str) -> bool:
    try:
        return number_text(float(name)) == name
    except ValueError:
        return False
