"""Random schedules, each of a course of its own."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.explore.actors import KINDS, RARE
from tests.explore.explorer import LENGTHS, WRONG, Event, Failure, Scope, State
from tests.explore.world import HOUR

GRACES = (0, HOUR)

#: By the rest of a seed divided by twenty, and by a hundred, kinds that are not chosen otherwise.
_OWN = {
    **{5: "shared", 15: "shared", 7: "ending online", 17: "ending online"},
    **{11: "copied", 13: "copied later", 18: "moving", 10: "lake"},
}
_SELDOM = {38: "remodelled", 58: "remodelled natively"}
_RARE = ("start", "kill", "late", "lose", "stale", "arrive", "tick")


class Course(NamedTuple):
    """What one schedule is like. Those that have less of one thing have more of others."""

    grace: int
    scope: Scope
    weights: dict[str, float]  # kind of event -> how often it is chosen

    @classmethod
    def by(cls, chooser: random.Random, of: str | None = None) -> Course:
        """Returns a random one. `of`: the kind of the archive, where it is given."""
        share = chooser.choice((0, 0, 0.3))  # mostly, runs alone have enough to do
        kind = chooser.choice(("offline", "offline", "offline", "ending", "online"))
        kind = kind if of is None else of
        verbs = [it for it in KINDS[kind].programs if it not in RARE or chooser.random() < share]
        skews, is_faulty = chooser.choice(((0,), (0, HOUR), (-HOUR, HOUR))), chooser.random() < 0.3
        verbs = [*verbs, KINDS[kind].clean]
        scope = Scope(tuple(verbs), skews, LENGTHS, chooser.random() < 0.3, is_faulty, kind)
        rarely = {it: chooser.choice((0.2, 1, 3)) for it in _RARE}
        often = {"step": 3, "write": 0.5, "hold": 0.3, "clone": 0.3, "elsewhere": 0.5, "name": 0.3, "rot": 0}
        return cls(chooser.choice(GRACES), scope, {**often, **rarely})


def random_schedule(seed: int, depth: int, keys: set[int] | None = None) -> Failure | None:
    """Returns what fails in a random schedule of this many events, and in the clean runs that follow. Adds
    the states to `keys`. In each tenth schedule the database may be cloned, in each tenth an online archive
    has an end, and in each tenth the store has a copy."""
    chooser = random.Random(seed)
    course = Course.by(chooser, _SELDOM.get(seed % 100) or _OWN.get(seed % 20))
    state = State(course.grace, course.scope)
    events, story = list[Event](), list[str]()
    for _ in range(depth):
        possible = list(state.events())
        event = chooser.choices(possible, [course.weights[it[0]] for it in possible])[0]
        if (line := state.happen(event)) is None:
            continue
        events.append(event)
        story.append(line)
        if keys is not None:
            keys.add(hash(state.key()))
        if wrong := state.broken():
            return Failure(state.grace, state.scope.kind, events, wrong, story)
    for line in state.finish():
        story.append(line)
        if line.startswith(WRONG):
            return Failure(state.grace, state.scope.kind, events, line, story)
    return None
