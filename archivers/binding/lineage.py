"""The lineage of an archive: a number that every run moves before it writes there first.

In the database a step is recorded before its object is put into the store. So the store may be ahead by a
step that was begun, after a crash; ahead by any other, somebody else has written there; behind, it is an
older state of itself. Two databases that nothing else tells apart have one number until the first of them
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bucketwise.archivers.format.names import DIGITS

Document = dict[str, Any]
#: Steps that are remembered though their objects are not in the store: those of so many runs that crashed.
MOST_BEGUN = 16
_KEY = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9a-z]+)\.json")


class Step(NamedTuple):
    """One step: its number, and the run that made it."""

    number: int
    run: str


@dataclass(frozen=True)
class Lineage:
    """What a database has recorded. `begun`: its last steps, and the one that the store had when the last of
    them began. `done`: the number of the last one that was in the store; 0 before the first."""

    begun: tuple[Step, ...] = ()
    done: int = 0

    @classmethod
    def of(cls, told: Document | None) -> Lineage:
        """Returns the lineage that a record tells of; an empty one without a record."""
        if told is None:
            return cls()
        return cls(tuple(Step(it["number"], it["run"]) for it in told["begun"]), told["done"])

    @property
    def body(self) -> Document:
        """Returns the fields of a record."""
        return {"begun": [it._asdict() for it in self.begun], "done": self.done}

    def is_behind(self, listed: Iterable[Step]) -> bool:
        """Returns whether the store lacks the last step that was in it."""
        return self.done > max((it.number for it in listed), default=0)

    def foreign(self, listed: Iterable[Step]) -> list[Step]:
        """Returns the steps in the store that this database has not begun. Of those before the oldest that it
        remembers, nothing is known: they were its own when it went on from them."""
        oldest = min((it.number for it in self.begun), default=0) if self.done else 0
        return sorted(it for it in listed if it not in self.begun and it.number >= oldest)

    def next(self, listed: Iterable[Step], run: str) -> Step:
        """Returns the step that comes after all others."""
        return Step(max((it.number for it in (*listed, *self.begun)), default=0) + 1, run)

    def begin(self, step: Step, there: Sequence[Step] = ()) -> Lineage:
        """Returns the lineage with a step begun. `there`: its own in the store, which stay known."""
        others = [it for it in self.begun if it not in there]
        return Lineage((*sorted({*there, *others[-MOST_BEGUN:]}), step), self.done)

    def finish(self, step: Step) -> Lineage:
        """Returns the lineage once a step's object is in the store."""
        return Lineage(self.begun, step.number)


def lineage_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all steps."""
    return f"{policy}/meta/lineage/"


def step_key(policy: str, step: Step) -> str:
    """Returns the key of a step's object."""
    return f"{lineage_prefix(policy)}{step.number:0{DIGITS}d}-{step.run}.json"


def step_of(policy: str, key: str) -> Step | None:
    """Returns the step that a key is of; None where no run has put such an object."""
    match = _KEY.fullmatch(key.removeprefix(lineage_prefix(policy)))
    return Step(int(match[1]), match[2]) if match else None
