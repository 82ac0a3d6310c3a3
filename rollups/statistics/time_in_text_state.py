"""How long each state lasted, and how often it changed, where texts are states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from bucketwise.buckets.fields.values import number_text
from bucketwise.rollups.statistics.base import FieldReadings, MomentsState, Stored, VarintWriter
from bucketwise.rollups.statistics.steps import Reading, StepsState
from bucketwise.rollups.statistics.time_in_state import TimeInState


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
