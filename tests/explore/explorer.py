"""Explores the world: schedules of events, all of them breadth-first, and the shortest that fails.

A schedule is a list of events. What each does depends on the state alone, so that a schedule can be repeated,
and shortened by leaving events out: those that can't happen any more are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from tests.explore.actors import KINDS, PROGRAMS, Actor, Kind, Stage, write, writes
from tests.explore.copied import MARKER, losable, needed
from tests.explore.leaseless import resuming
from tests.explore.others import hold, holds
from tests.explore.promises import broken_at_rest, broken_now
from tests.explore.recovery import yet_to_come
from tests.explore.remodel import TWICE
from tests.explore.world import HOUR, Effect, Frozen, World, shown

Event = tuple[Any, ...]
#: Where actors work: in the database, and in its clone.
SLOTS = ("A", "B")
CLONE_SLOTS = ("C",)
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
    clone: World | None = None  # another database, which has the same store
    actors: dict[str, Actor] = field(default_factory=dict)
    happened: Frozen = field(default_factory=Frozen)  # kind of event -> how often, where that is limited

    def __post_init__(self) -> None:
        if self.kind.settings and not self.world.db:
            self.world.write({(it, 0): True for it in self.kind.settings})
        self.world.has_copy |= self.kind.copy == "from the first"

    @property
    def kind(self) -> Kind:
        """Returns the kind of the archive."""
        return KINDS[self.scope.kind]

    def copy(self) -> State:
        """Returns a copy."""
        actors = {name: it.copy() for name, it in self.actors.items()}
        clone = None if self.clone is None else self.clone.copy()
        return State(self.grace, self.scope, self.world.copy(), clone, actors, self.happened)

    def key(self) -> tuple[Any, ...]:
        """Returns what is equal for states from which the same may follow."""
        actors = frozenset(hash(it.stage.memory) for it in self.actors.values())
        return self.world.key(), self.clone and self.clone.key(), actors, self.happened

    @property
    def worlds(self) -> Iterator[World]:
        """Yields the databases."""
        yield self.world
        if self.clone is not None:
            yield self.clone

    def at(self, slot: str) -> World:
        """Returns the database in which an actor works."""
        if slot in SLOTS:
            return self.world
        assert self.clone is not None
        return self.clone

    @property
    def _may_clone(self) -> bool:
        return self.scope.kind == "shared" and self.clone is None and not self.world.flying

    def _may_start(self, slot: str, verb: str) -> bool:
        """Returns whether a program may begin. Who adopts has stopped all runs of the other database; and
        one that was at work when the clone was made ends before anything begins there."""
        if self.clone is None:
            return slot in SLOTS
        if slot in CLONE_SLOTS and any(it.number <= self.world.cloned_after for it in self.actors.values()):
            return False
        others = [it for name, it in self.actors.items() if (name in SLOTS) != (slot in SLOTS)]
        is_alone = not others and not self.world.flying
        return is_alone if verb == "adopt" else all(it.verb != "adopt" for it in others)

    def broken(self) -> str | None:
        """Returns what is wrong with the databases after a step; None where nothing is."""
        if self.clone is None:
            return next(broken_now(self.world), None)
        found = (wrong for world in self.worlds for wrong in broken_now(world))
        return next(chain(found, self._lost_between()), None)

    def _lost_between(self) -> Iterator[str]:
        """Yields what one database has archived after they parted, and nobody has."""
        for world in self.worlds:
            files = (docs for (kind, _), docs in world.store.items() if kind in ("file", "kept"))
            there = {(it.id, it.born) for docs in files for it in docs}
            for doc in world.gone:
                if doc.born > world.cloned_at and (doc.id, doc.born) not in there:
                    yield f"lost: {shown(doc)}, that the {world.name} has archived"

    def events(self) -> Iterator[Event]:
        """Yields what may happen next."""
        for event in self._all_events():
            if self.may_happen(event[0]):
                yield event

    def may_happen(self, kind: str) -> bool:
        """Returns whether events of a kind have not happened as often as they may."""
        most = self.scope.most
        return kind not in most or self.happened.get(kind, 0) < most[kind]

    def _all_events(self) -> Iterator[Event]:
        scope = self.scope
        for slot in (*SLOTS, *(CLONE_SLOTS if self.clone is not None else ())):
            if (actor := self.actors.get(slot)) is None:
                verbs = [it for it in scope.verbs if self._may_start(slot, it)]
                yield from (("start", slot, verb, skew) for verb in verbs for skew in scope.skews)
            else:
                yield from (("step", slot, length) for length in scope.lengths)
                yield "kill", slot
                if actor.next is not None and actor.next.put is not None:
                    if actor.next.put[0] != MARKER:  # a copy without one halts runs, until somebody looks
                        yield "late", slot
                    if scope.is_faulty:
                        yield "lose", slot
                elif actor.next is not None and actor.next.lists and scope.is_faulty:
                    yield "stale", slot
        if self.may_happen("write") and self.kind.has_writers:
            yield from (("write", *it) for it in writes(self.world))
        if scope.holds:
            yield from (("hold", *it) for it in holds(self.world))
        yield from (("arrive", i) for i in range(len(self.world.flying)))
        yield from (("tick", hours) for hours in self.kind.hours)
        if self.world.has_copy and scope.is_faulty:
            yield from (("rot", *it) for it in losable(self.world))
        elif self.kind.copy == "later" and not self.actors:
            yield ("name",)
        if self.clone is not None:
            if self.may_happen("elsewhere"):
                yield from (("elsewhere", *it) for it in writes(self.clone))
        elif self._may_clone:
            yield from (("clone", it) for it in (False, True))

    def happen(self, event: Event) -> str | None:
        """Lets an event happen. Returns its line in a story; None where it can't happen."""
        kind, *rest = event
        happen: dict[str, Any] = {
            "start": self._start, "step": self._step, "kill": self._kill, "late": self._late,
            "lose": self._lose, "stale": self._stale,
            "write": self._write, "hold": self._hold, "arrive": self._arrive, "tick": self._tick,
            "clone": self._clone, "elsewhere": self._write_elsewhere, "rot": self._rot, "name": self._name,
        }  # fmt: skip
        line: str | None = happen[kind](*rest)
        if line is not None and kind in self.scope.most:
            self.happened = self.happened.but({kind: self.happened.get(kind, 0) + 1})
        return line

    def _start(self, slot: str, verb: str, skew: int) -> str | None:
        if slot in self.actors or not self._may_start(slot, verb):
            return None
        world = self.at(slot)
        now = world.now + skew
        world.started += 1
        self.share(world)
        make = partial(self.kind.programs[verb], holder_of(slot, world), now, self.grace)
        self.actors[slot] = Actor(Stage(make), verb, world.started)
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
            reply = actor.step(self.at(slot))
            self.share(self.at(slot))
            is_short = isinstance(reply, bool | str) or len(str(reply)) <= 60
            answer = "" if reply in (None, True) or not is_short else f": {reply}"
            lines.append(f"{slot} {name}{answer}{self._end(slot)}")
            if slot not in self.actors:
                break
            if self.broken():
                break
        return "\n".join(lines)

    def _kill(self, slot: str) -> str | None:
        return None if self.actors.pop(slot, None) is None else f"{slot} is killed"

    def _late(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or actor.next.put is None or actor.next.put[0] == MARKER:
            return None
        self.world.flying += (actor.next.put,)
        self.share(self.world)
        del self.actors[slot]
        return f"{slot} {actor.next.name}, which is still on its way, and is killed"

    def _lose(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or actor.next.put is None:
            return None
        name, (key, _) = actor.next.name, actor.next.put
        actor.step(self.at(slot), lambda _world, _effect: None)
        if self.world.has_copy:
            self.world.lost |= {key}
        return f"{slot} {name}, which is acknowledged, and lost{self._end(slot)}"

    def _stale(self, slot: str) -> str | None:
        actor = self.actors.get(slot)
        if actor is None or actor.next is None or not actor.next.lists:
            return None
        name = actor.next.name
        actor.step(self.at(slot), _as_before)
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
        self.share(self.world)
        return f"the {key[0]} of {key[1]} arrives"

    def _write(self, verb: str, identity: int, *day: int) -> str | None:
        if (verb, identity, *day) not in writes(self.world):
            return None
        line = f"a writer: {verb} {identity}: {write(self.world, verb, identity, *day)}"
        self.share(self.world)
        return line

    def _hold(self, verb: str, day: int) -> str | None:
        return hold(self.world, verb, day) if (verb, day) in holds(self.world) else None

    def _tick(self, hours: int) -> str | None:
        if hours not in self.kind.hours:
            return None
        self.world.now += hours * HOUR
        self.share(self.world)
        return f"{hours} h pass"

    def _rot(self, kind: str, name: str) -> str | None:
        if (kind, name) not in losable(self.world):
            return None
        self.world.lose((kind, name))
        return f"the {kind} of {name} is lost"

    def _name(self) -> str | None:
        """Names the copy in the policy file, while nobody is at work."""
        if self.actors or self.world.has_copy or self.kind.copy != "later":
            return None
        self.world.has_copy = True
        return "the store has a copy from now on"

    def _clone(self, is_told_apart: bool) -> str | None:
        if not self._may_clone:
            return None
        if self.actors:  # what has changed since one read it may be archived as it was
            self.world.forked |= {(it.id, it.born) for it in self.world.docs.values()}
        self.clone = self.world.clone(is_told_apart=is_told_apart)
        return f"the database is cloned, {'from a dump' if is_told_apart else 'and nothing tells it apart'}"

    def _write_elsewhere(self, verb: str, identity: int, *day: int) -> str | None:
        if self.clone is None or (verb, identity, *day) not in writes(self.clone):
            return None
        line = f"a writer, in the clone: {verb} {identity}: {write(self.clone, verb, identity, *day)}"
        self.share(self.clone)
        return line

    def share(self, at: World) -> None:
        """Has the other database see what was done at one."""
        for other in self.worlds:
            if other is not at:
                at.share(other)
                if at.took_over:
                    at.take_over(other)

    def finish(self, is_new: Callable[[int], bool] = lambda _: True) -> Iterator[str]:
        """Has all writes arrive and all actors die. Clean runs follow, the last of which has nothing to do.
        Yields their lines; the last one says what is wrong, if anything is. `is_new`: whether they have not
        gone on well already from where they are, given its hash."""
        while self.world.flying:
            yield self._arrive(0) or ""
        for slot in list(self.actors):
            yield self._kill(slot) or ""
        resuming(self.world)
        if self.world.store.of("hold").keys() - self.world.db.of("hold"):  # somebody places it again
            yield from self._clean(self.world, "hold")
        kind = self.kind
        self.world.now += 2 * (kind.hours[-1] - 1) * HOUR
        if self.clone is None:
            yield from self._come_to_rest(self.world, is_new)
        else:
            yield from self._settle_both(self.world, self.clone)

    def _settle_both(self, first: World, clone: World) -> Iterator[str]:
        """Has the one that owns the archive come to rest. Then the other one is refused, takes the archive
        over and comes to rest, and the former owner is refused."""
        owner, other = (clone, first) if first.owner == clone.name else (first, clone)
        for one, another in ((owner, other), (other, owner)):
            end = yield from self._clean(one, "adopt")
            if is_given_up(end):  # and nothing was changed: the owner goes on
                yield from self._come_to_rest(another)
                return
            if end != "0":
                yield f"a clean run ends with {end}, that adopts"
                return
            yield from self._come_to_rest(one)
            yield from self._refused(another)

    def _refused(self, world: World) -> Iterator[str]:
        if world.owner is None:
            return
        before = world.docs, world.store
        end = yield from self._clean(world, self.kind.clean)
        if not end.startswith(("0", "5")):
            yield f"a clean run where another database owns the archive ends with {end}"
        if (world.docs, world.store) != before:
            yield "a clean run changes what another database owns"

    def _clean(self, world: World, verb: str) -> Generator[str, None, str]:
        """Has a run come to its end. Yields its lines. Returns how it ends."""
        world.now += 3 * HOUR
        self.share(world)
        name = f"{'C ' if world.name == 'clone' else ''}clean {world.now // HOUR}"
        actor = Actor(Stage(partial(self.kind.programs[verb], name, world.now, self.grace)))
        while actor.next is not None:
            yield f"a clean run ({name}) {actor.next.name}"
            actor.step(world)
            self.share(world)
            if wrong := self.broken():
                yield wrong
                break
        return actor.end or "what is wrong"

    def _come_to_rest(self, world: World, is_new: Callable[[int], bool] = lambda _: True) -> Iterator[str]:
        before, kind = None, self.kind
        for verb in needed(world):
            yield from self._clean(world, verb)
        for number in range(kind.cleans + yet_to_come(world)):
            if not is_new(hash((number, world.key()))):
                return
            before = lasting_of(world)
            end = yield from self._clean(world, kind.clean)
            if end == f"1: {TWICE}" and "native" in kind.settings:
                return
            if end != "0":
                yield f"a clean run ends with {end}"
                return
        if before != lasting_of(world):
            yield "the last clean run changes something"
        yield from broken_at_rest(world)
        for unfinished in kind.unfinished:
            yield from unfinished(world)


def holder_of(slot: str, world: World) -> str:
    """Returns the name of the program that has just started, which tells whether it works in the clone."""
    return f"{'C' if slot in CLONE_SLOTS else 'R'}{world.started}"


def is_given_up(end: str) -> bool:
    """Returns whether a person has to decide: another database's run has dropped a commit from which
    originals had been deleted here."""
    return end.startswith("5: the manifest of ") and end.endswith(" is missing")


def _as_before(world: World, effect: Effect) -> Any:
    now, world.store = world.store, world.before
    reply = effect.do(world)
    world.store = now
    return reply


def lasting_of(world: World) -> tuple[Frozen, Frozen]:
    """Returns what runs have left but for what is new with each: its lease, and its fence."""
    own = ("lease", "fence")
    return Frozen({key: value for key, value in world.db.items() if key[0] not in own}), world.store


#: How what is wrong begins.
WRONG = (
    "lost", "counts twice", "deleted", "ended", "no longer kept", "not archived", "not ended", "left over",
    "not erased", "the table", "not moved", "another class", "differs", "day ", "a clean run ends",
    "a clean run changes", "a clean run where", "the last", "two own", "begins", "remodelled",
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
        if wrong := state.broken():
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
