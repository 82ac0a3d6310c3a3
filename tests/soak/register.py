"""What the application has written, and what was done to it on purpose.

No two readings have the same value: it tells which reading it is, wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Document = dict[str, Any]


class Reading(NamedTuple):
    """`time`: milliseconds. `value`: none like it was ever written."""

    series: str
    time: int
    value: float


@dataclass
class Unit:
    """A bucket, as the application knows it: its readings, and its document as first written; None once it
    was changed, so that what a restore brings back is not known to the byte."""

    document: bytes | None
    readings: dict[float, Reading] = field(default_factory=dict)


@dataclass
class Register:
    """Of one policy. Each reading that was written has to be there (`standing`), may be there, as an archive
    may have had it before it was changed or deleted (`loose`), or must not be there (`erased`)."""

    units: dict[Any, Unit] = field(default_factory=dict)
    standing: dict[float, Reading] = field(default_factory=dict)
    loose: dict[float, Reading] = field(default_factory=dict)
    erased: set[float] = field(default_factory=set)

    def inserted(self, identity: Any, document: bytes, readings: Iterable[Reading]) -> None:
        unit = self.units.setdefault(identity, Unit(document))
        if unit.readings:  # an `_id` that was taken before
            unit.document = None
        self._add(unit, readings)

    def changed(self, identity: Any, readings: Iterable[Reading]) -> None:
        """The live document has these readings now. Those of the same times are replaced."""
        unit = self.units[identity]
        unit.document = None
        found = list(readings)
        times = {it.time for it in found} - {it.time for it in found if it.value in unit.readings}
        self._loosen(unit, [it.value for it in unit.readings.values() if it.time in times])
        self._add(unit, found)

    def replaced(self, identity: Any, readings: Iterable[Reading]) -> None:
        """The live document has these readings now, and none else."""
        unit = self.units[identity]
        unit.document = None
        found = list(readings)
        self._loosen(unit, unit.readings.keys() - {it.value for it in found})
        self._add(unit, found)

    def deleted(self, identity: Any, readings: Iterable[Reading]) -> None:
        """The application deleted a live document with these readings."""
        unit = self.units[identity]
        unit.document = None
        self._loosen(unit, [it.value for it in readings])

    def erase(self, series: str) -> None:
        """A series was erased."""
        for some in (self.standing, self.loose):
            for it in [it for it in some.values() if it.series == series]:
                del some[it.value]
                self.erased.add(it.value)

    def _add(self, unit: Unit, readings: Iterable[Reading]) -> None:
        for it in readings:
            unit.readings[it.value] = it
            self.standing[it.value] = it
            self.loose.pop(it.value, None)

    def _loosen(self, unit: Unit, values: Iterable[float]) -> None:
        for value in list(values):
            unit.readings.pop(value, None)
            if (found := self.standing.pop(value, None)) is not None:
                self.loose[value] = found

    @property
    def written(self) -> int:
        """How many readings were ever written."""
        return len(self.standing) + len(self.loose) + len(self.erased)
