"""Stages of programs that are known: what two schedules lead to is one stage, if it remembers the same."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tests.explore.actors import Actor, Stage
from tests.explore.effects import Maker
from tests.explore.memory import remembered


class Origin(NamedTuple):
    """What a stage has of the program's start: its verb, the holder of its lease, and its number."""

    verb: str
    holder: str
    number: int


class KnownStage(Stage):
    """A stage that knows where replies have led. `mark`: the hash of what it remembers."""

    __slots__ = ("_after", "_stages", "mark", "origin")

    _after: dict[Any, KnownStage]
    _stages: Stages
    mark: int
    origin: Origin

    @property
    def actor(self) -> Actor:
        """Returns an actor at this stage."""
        return Actor(self, self.origin.verb, self.origin.number)

    def told(self, reply: Any) -> KnownStage:
        """Returns the stage that a reply leads to."""
        key = reply
        try:
            known = self._after.get(key)
        except TypeError:  # it has no hash
            key = remembered(reply)
            known = self._after.get(key)
        if known is None:
            known = self._stages.known(KnownStage(self._make, self, reply), self.origin)
            self._after[key] = known
        return known


class Stages:
    """All stages that are known, by what they remember."""

    def __init__(self) -> None:
        self._known: dict[int, KnownStage] = {}
        self._first: dict[Any, KnownStage] = {}

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._known)

    def first(self, make: Maker, origin: Origin, now: int, grace: int) -> KnownStage:
        """Returns the first stage of a program."""
        given = origin, now, grace
        if given not in self._first:
            self._first[given] = self.known(KnownStage(partial(make, origin.holder, now, grace)), origin)
        return self._first[given]

    def known(self, stage: KnownStage, origin: Origin) -> KnownStage:
        """Returns the stage that is known to be the same, or else this one."""
        mark = hash(stage.memory)
        found = self._known.setdefault(mark, stage)
        if found is stage:
            stage._after, stage._stages, stage.origin, stage.mark = {}, self, origin, mark
        return found
