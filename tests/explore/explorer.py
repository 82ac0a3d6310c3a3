"""Explores the world: random schedules of events, all schedules breadth-first, and the shortest that fails.

A schedule is a list of events. What each does depends on the state alone, so that a schedule can be repeated,
and shortened by leaving events out: those that can't happen any more are passed over.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tests.explore.actors import KINDS, PROGRAMS, Actor, Kind, write, writes
from tests.explore.expiry import not_ended
from tests.explore.others import hold, holds
from tests.explore.promises import broken_at_rest, broken_now
from tests.explore.world import HOUR, Effect, Frozen, World

Event = tuple[Any, ...]
SLOTS = ("A", "B")
#: Steps that an actor takes at once; 0: until the store may fail it.
LENGTHS = (0, 1, 4, 1000)


@dataclass(frozen=True)
class Scope:
    """What may happen: programs that may start, by clocks that are so far ahead; how many steps an actor
    takes at once; whether holds are placed; whether the store loses writes, and lists what was; the kind of
    the archive; and how often an event of a kind may happen, where that is limited."""

    verbs: tuple[str, ...] = tuple(PROGRAMS)
    skews: tuple[int, ...] = (0, HOUR)
    lengths: tuple[int, ...] = LENGTHS
    holds: bool = True
    is_faulty: bool = True
    kind: str = "offline"
    most: Frozen = field(default_factory=Frozen)


EVERYTHING = Scope()


@dataclass
class State:
    """A world, its actors, and what may still happen."""

    grace: int = 0
    scope: Scope = EVERYTHING
    world: World = field(default_factory=World)
    actors: dict[str, Actor] = field(default_factory=dict)
    happened: Frozen = field(default_factory=Frozen)  # kind of event -> how often, where that is limited

    def __post_init__(self) -> None:
        if self.scope.kind == "online" and not self.world.db:
            self.world.write({("online", 0): True})

    @property
    def _kind(self) -> Kind:
        return KINDS[self.scope.kind]

    def copy(self) -> State:
        """Returns a copy."""
        actors = {name: it.copy() for name, it in self.actors.items()}
        return State(self.grace, self.scope, self.world.copy(), actors, self.happened)

    def key(self) -> tuple[Any, ...]:
        """Returns what is equal for states from which the same may follow."""
        actors = tuple(sorted((name, hash(it)) for name, it in self.actors.items()))
        return self.world.key(), actors, self.happened

    def events(self) -> Iterator[Event]:
        """Yields what may happen next."""
        most = self.scope.most
        for event in self._all_events():
            if event[0] not in most or self.happened.get(event[0], 0) < most[event[0]]:
                yield event

    def _all_events(self) -> Iterator[Event]:
        scope = self.scope
        for slot in SLOTS:
            if (actor := self.actors.get(slot)) is None:
                yield from (("start", slot, verb, skew) for verb in scope.verbs for skew in scope.skews)
            else:
                yield from (("step", slot, length) for length in scope.lengths)
                yield "kill", slot
                if actor.next is not None and actor.next.put is not None:
                    yield "late", slot
                    if scope.is_faulty:
                        yield "lose", slot
                elif actor.next is not None and actor.next.lists and scope.is_faulty:
                    yield "stale", slot
        yield from (("write", *it) for it in writes(self.world))
        if scope.holds:
            yield from (("hold", *it) for it in holds(self.world))
        yield from (("arrive", i) for i in range(len(self.world.flying)))
        yield from (("tick", hours) for hours in self._kind.hours)

    def happen(self, event: Event) -> str | None:
        """Lets an event happen. Returns its line in a story; None where it can't happen."""
        kind, *rest = event
        happen: dict[str, Any] = {
            "start": self._start, "step": self._step, "kill": self._kill, "late": self._late,
            "lose": self._lose, "stale": self._stale,
            "write": self._write, "hold": self._hold, "arrive": self._arrive, "tick": self._tick,
        }  # fmt: skip
        line: str | None = happen[kind](*rest)
        if line is not None and kind in self.scope.most:
            self.happened = self.happened.but({kind: self.happened.get(kind, 0) + 1})
        return line

    def _start(self, slot: str, verb: str, skew: int) -> str | None:
        if slot in self.actors:
            return None
        now = self.world.now + skew
        self.world.started += 1
        holder = f"{slot}{self.world.started}"
        self.actors[slot] = Actor(partial(self._kind.programs[verb], holder, now, self.grace))
        clock = f", by a clock that is an hour {'ahead' if skew > 0 else 'behind'}" if skew else ""
        return f"{slot} starts to {verb}{clock}"

    def _step(self, slot: str, length: int) -> str | None:
        if slot not in self.actors:
            return None
        lines: list[str] = []
        for _ in range(length or 1000):
            actor = self.actors[slot]
            assert actor.next is not None
            if lines and not length and actor.next.may_fail:
                break
            name = actor.next.name
            reply = actor.step(self.world)
            is_short = isinstance(reply, bool | str) or len(str(reply)) <= 60
            answer = "" if reply in (None, True) or not is_short else f": {reply}"
            lines.append(f"{slot} {name}{answer}{self._end(slot)}")
            if slot not in self.actors:
                break
            if next(broken_now(self.world), None):
                break
        return "\n".join(lines)

    def _kill(self, slot: str) -> str | None:
        return None if self.actors.pop(slot, None) is None else f"{slot} is killed"

    def _late(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or actor.next.put is None:
            return None
        self.world.flying += (actor.next.put,)
        del self.actors[slot]
        return f"{slot} {actor.next.name}, which is still on its way, and is killed"

    def _lose(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or actor.next.put is None:
            return None
        name = actor.next.name
        actor.step(self.world, lambda _world, _effect: None)
        return f"{slot} {name}, which is acknowledged, and lost{self._end(slot)}"

    def _stale(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or not actor.next.lists:
            return None
        name = actor.next.name
        actor.step(self.world, _as_before)
        return f"{slot} {name}, as of before the last change of the store{self._end(slot)}"

    def _end(self, slot: str) -> str:
        """Takes away an actor that has ended. Returns how, for its line."""
        if (end := self.actors[slot].end) is None:
            return ""
        del self.actors[slot]
        return f", and ends with {end}"

    def _arrive(self, place: int) -> str | None:
        if place >= len(self.world.flying):
            return None
        key, value = self.world.flying[place]
        self.world.flying = self.world.flying[:place] + self.world.flying[place + 1 :]
        self.world.put(key, value)
        return f"the {key[0]} of {key[1]} arrives"

    def _write(self, verb: str, identity: int, *day: int) -> str | None:
        if (verb, identity, *day) not in writes(self.world):
            return None
        return f"a writer: {verb} {identity}: {write(self.world, verb, identity, *day)}"

    def _hold(self, verb: str, day: int) -> str | None:
        return hold(self.world, verb, day) if (verb, day) in holds(self.world) else None

    def _tick(self, hours: int) -> str | None:
        if hours not in self._kind.hours:
            return None
        self.world.now += hours * HOUR
        return f"{hours} h pass"

    def finish(self) -> Iterator[str]:
        """Has all writes arrive and all actors die. Clean runs follow, the last of which has nothing to do.
        Yields their lines; the last one says what is wrong, if anything is."""
        while self.world.flying:
            yield self._arrive(0) or ""
        for slot in list(self.actors):
            yield self._kill(slot) or ""
        before, kind = None, self._kind
        self.world.now += 2 * (kind.hours[-1] - 1) * HOUR
        for number in range(kind.cleans):
            self.world.now += 3 * HOUR
            before = _lasting(self.world)
            clean = partial(kind.programs[kind.clean], f"clean {number}", self.world.now, self.grace)
            actor = Actor(clean)
            while actor.next is not None:
                yield f"clean run {number + 1} {actor.next.name}"
                actor.step(self.world)
                if wrong := next(broken_now(self.world), None):
                    yield wrong
                    return
            if actor.end != "0":
                yield f"a clean run ends with {actor.end}"
                return
        if before != _lasting(self.world):
            yield "the last clean run changes something"
        yield from broken_at_rest(self.world)
        if kind.clean == "run":
            yield from not_ended(self.world)


def _as_before(world: World, effect: Effect) -> Any:
    now, world.store = world.store, world.before
    reply = effect.do(world)
    world.store = now
    return reply


def _lasting(world: World) -> tuple[Any, ...]:
    return {key: value for key, value in world.db.items() if key[0] != "lease"}, world.store


#: How what is wrong begins.
WRONG = (
    "lost", "counts twice", "deleted", "ended", "no longer kept", "not archived", "not ended", "left over",
    "not erased", "day ", "a clean run ", "the last",
)  # fmt: skip


@dataclass
class Failure:
    """A schedule that breaks a promise."""

    grace: int
    kind: str  # of the archive
    events: list[Event]
    wrong: str
    story: list[str]


def repeat(events: Sequence[Event], grace: int = 0, kind: str = "offline") -> Failure | None:
    """Lets the events of a schedule happen, those that can. Returns what fails."""
    state, done, story = State(grace, Scope(kind=kind)), list[Event](), list[str]()
    for event in events:
        if (line := state.happen(event)) is None:
            continue
        done.append(event)
        story.append(line)
        if wrong := next(broken_now(state.world), None):
            return Failure(grace, kind, done, wrong, story)
    for line in state.finish():
        story.append(line)
        if line.startswith(WRONG):
            return Failure(grace, kind, done, line, story[:-1])
    return None


def shortest(failure: Failure) -> Failure:
    """Returns a schedule that fails in the same way, of which no event can be left out."""
    kind, size = failure.wrong.split()[0], len(failure.events) // 2
    while size:
        at, before = 0, failure
        while at < len(failure.events):
            fewer = failure.events[:at] + failure.events[at + size :]
            found = repeat(fewer, failure.grace, failure.kind)
            if found is not None and found.wrong.split()[0] == kind:
                failure = found
            else:
                at += size
        if size > 1 or failure is before:
            size //= 2
    return failure


GRACES = (0, HOUR)


_RARE = ("start", "kill", "late", "lose", "stale", "arrive", "tick")


class Course(NamedTuple):
    """What one schedule is like. Those that have less of one thing have more of others."""

    grace: int
    scope: Scope
    weights: dict[str, float]  # kind of event -> how often it is chosen

    @classmethod
    def by(cls, chooser: random.Random) -> Course:
        """Returns a random one."""
        share = chooser.choice((0, 0, 0.3))  # mostly, runs alone have enough to do
        kind = chooser.choice(("offline", "offline", "offline", "ending", "online"))
        verbs = [it for it in KINDS[kind].programs if it not in PROGRAMS or chooser.random() < share]
        skews, is_faulty = chooser.choice(((0,), (0, HOUR), (-HOUR, HOUR))), chooser.random() < 0.3
        verbs = [*verbs, KINDS[kind].clean]
        scope = Scope(tuple(verbs), skews, LENGTHS, chooser.random() < 0.3, is_faulty, kind)
        rarely = {it: chooser.choice((0.2, 1, 3)) for it in _RARE}
        return cls(chooser.choice(GRACES), scope, {"step": 3, "write": 0.5, "hold": 0.3, **rarely})


def random_schedule(seed: int, depth: int, keys: set[int] | None = None) -> Failure | None:
    """Returns what fails in a random schedule of this many events, and in the clean runs that follow. Adds
    the states to `keys`."""
    chooser = random.Random(seed)
    course = Course.by(chooser)
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
        if wrong := next(broken_now(state.world), None):
            return Failure(state.grace, state.scope.kind, events, wrong, story)
    for line in state.finish():
        story.append(line)
        if line.startswith(WRONG):
            return Failure(state.grace, state.scope.kind, events, line, story)
    return None


def exhaustive(depth: int, scope: Scope, grace: int = 0) -> Iterator[tuple[int, int, Failure | None]]:
    """Explores all schedules breadth-first, each state once. A level is one turn: an event, or as many steps
    of one actor as one likes. From each state in which no actor is at work, clean runs follow as well. Yields
    each level, how many states are known, and what fails."""
    seen, waiting = {hash(State(grace, scope).key())}, [(State(grace, scope), list[Event]())]
    for level in range(1, depth + 1):
        further: list[tuple[State, list[Event]]] = []
        for state, events in waiting:
            for event in list(state.events()):
                for other, turn in _turns(state, event):
                    if (key := hash(other.key())) in seen:
                        continue
                    seen.add(key)
                    if next(broken_now(other.world), None) or _ends_badly(other):
                        yield level, len(seen), repeat([*events, turn], grace)
                        return
                    further.append((other, [*events, turn]))
        waiting = further
        yield level, len(seen), None


def _ends_badly(state: State) -> bool:
    return not state.actors and any(line.startswith(WRONG) for line in state.copy().finish())


def _turns(state: State, event: Event) -> Iterator[tuple[State, Event]]:
    """Yields the states after an event; where an actor takes steps, after each of them."""
    other = state.copy()
    if other.happen(event) is None:
        return
    yield other, event
    kind, *rest = event
    if kind != "step":
        return
    slot, length = rest
    while slot in other.actors:
        other, length = other.copy(), length + 1
        other.happen(("step", slot, 1))
        yield other, ("step", slot, length)
