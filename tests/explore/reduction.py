"""What commutes: of several orders in which the same comes out, the search takes one.

Each rule says why it misses no state that differs in what is kept, gone or promised. `test_breadth.py` holds
the search with these rules against the one without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.explore.effects import has
from tests.explore.explorer import SLOTS, Event, Scope, State
from tests.explore.stages import KnownStage
from tests.explore.world import Frozen

if TYPE_CHECKING:
    from tests.explore.breadth import Point

Stages = Sequence[KnownStage | None]


class Reduction:
    """The rules, in a scope."""

    def __init__(self, scope: Scope) -> None:
        self._most = scope.most
        #: Nothing but writers, runs and the clock: what is said of these does not hold of a clone, which
        #: has a lease of its own, of holds, which commits conflict with, and of a store that tells what was.
        self._is_plain = scope.kind != "shared" and not scope.holds and not scope.is_faulty

    def _may_happen(self, happened: Frozen, kind: str) -> bool:
        return kind not in self._most or happened.get(kind, 0) < self._most[kind]

    def is_put_off(self, stages: Stages, happened: Frozen, event: Event) -> bool:
        """Returns whether an event need not be tried, since it will be later.

        The start of a program reads the clock, and that is all. So it can be put off until right before its
        first command, or before an hour passes: while a program has done nothing and an hour may pass, only
        these, and other starts, are tried. And what is killed before its first command leaves what there is
        without it.
        """
        first = [it is not None and it.is_first for it in stages]
        if not self._is_plain or not any(first):
            return False
        if event[0] == "kill":
            return first[SLOTS.index(event[1])]
        if event[0] in ("start", "tick") or not self._may_happen(happened, "tick"):
            return False
        return event[0] != "step" or not first[SLOTS.index(event[1])]

    def begins(self, happened: Frozen) -> bool:
        """Returns whether a program takes its first command as it starts: where no hour can pass in between,
        its start can be put off until then."""
        return self._is_plain and not self._may_happen(happened, "tick")

    def may_commute(self, point: Point, slot: str, stage: KnownStage) -> bool:
        """Returns whether the next command of a program commutes with all that may come, as long as it
        changes nothing: where it is void, or the program is alone and sees what no writer changes."""
        if self._is_void(point.scene.state, slot, stage):
            return True
        if not self._is_alone(point, stage):
            return False
        is_blind = stage.next is not None and stage.next.is_blind
        return is_blind or not self._may_happen(point.happened, "write")

    def commutes(self, point: Point, stage: KnownStage, *, changes: bool) -> bool:
        """Returns whether such a command does. `changes`: it changes something.

        What changes nothing leaves to a kill what a kill before it would have left. What does change
        something is a place for a kill; only where nothing else may come, it is taken at once.
        """
        return not changes or (
            sum(it is not None for it in point.stages) == 1
            and self._is_alone(point, stage)
            and not any(self._may_happen(point.happened, it) for it in ("write", "kill", "late"))
        )

    def _is_void(self, state: State, slot: str, stage: KnownStage) -> bool:
        """Returns whether the next command does nothing, whenever it is: another one has its lease, and
        fences only grow. It has the same reply now as later."""
        lease = stage.next and stage.next.lease
        return lease is not None and not has(state.at(slot).db, lease)

    def _is_alone(self, point: Point, stage: KnownStage) -> bool:
        """Returns whether nobody but a writer can do anything to what a program sees until it goes on: it
        has the lease, and nobody can take that. There is no other program and can be none; or no hour can
        pass, so that the lease lasts, and all others have yet to ask for it, in vain."""
        world = point.scene.state.world
        lease = world.db.get(("lease", 0))
        if not self._is_plain or world.flying or lease is None or lease["holder"] != stage.origin.holder:
            return False
        others = [it for it in point.stages if it is not None and it is not stage]
        if not others and not self._may_happen(point.happened, "start"):
            return True
        lasts = lease["expires_at"] > world.now and not self._may_happen(point.happened, "tick")
        return lasts and all(it.is_first for it in others)
