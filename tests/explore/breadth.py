"""Explores all schedules, breadth-first, each state once; of what commutes, one order.

A level is one turn: an event, or as many steps of one actor as one likes. From each state in which no actor
is at work, clean runs follow as well.

What makes it small: a program counts as what it remembers (`memory.py`), and not as what it was told; where a
program works makes no difference; and steps that commute are taken in one order (`reduction.py`). What makes
it fast: what becomes of a scene, and of a program, is found once. What makes it fit: of a state that is known
there is a hash of 64 bits, of one that waits for its turn the way to it, and all else is forgotten now and
then. (Of a hundred million states, two have the same hash once in four thousand searches.)
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

from tests.explore.explorer import (
    CLONE_SLOTS,
    SLOTS,
    WRONG,
    Event,
    Failure,
    Scope,
    State,
    holder_of,
    lasting_of,
    repeat,
)
from tests.explore.marks import Marks
from tests.explore.reduction import Reduction
from tests.explore.stages import KnownStage, Origin, Stages
from tests.explore.world import Frozen

PLACES = (*SLOTS, *CLONE_SLOTS)
#: States that a process takes at a time, and how many scenes and stages it remembers at most.
CHUNK, MOST = 200, 100_000


class Scene:
    """All but the actors: databases and the store, as a `State` in which nobody is at work; what is wrong
    with them; and the marks of the scenes that have come of it."""

    __slots__ = ("after", "mark", "state", "wrong")

    def __init__(self, state: State, mark: int) -> None:
        self.state, self.mark = state, mark
        self.wrong: str | None = state.broken()
        self.after: dict[Any, Any] = {}

    @property
    def end(self) -> int:
        """Returns a hash of what is kept and gone, whoever had the lease."""
        lasting = [(lasting_of(it), it.gone, it.archived, it.rolled) for it in self.state.worlds]
        return hash(tuple(lasting))


class Point(NamedTuple):
    """A state: the scene, the stages of those who are at work at each of the places, what has happened, and
    the way here, two bytes a turn: the number of an event, and how many steps it is."""

    scene: Scene
    stages: tuple[KnownStage | None, ...]
    happened: Frozen
    way: bytes = b""

    def with_stage(self, at: int, stage: KnownStage | None) -> Point:
        """Returns the state with an actor at another stage; None: with none at this place."""
        return self._replace(stages=(*self.stages[:at], stage, *self.stages[at + 1 :]))

    @property
    def mark(self) -> int:
        """Returns a hash of what is equal for states from which the same may follow."""
        at_work = frozenset([it.mark for it in self.stages if it is not None])
        return hash((self.scene.mark, at_work, self.happened))


class Search:
    """A search through the states of a scope. `reduces`: of what commutes, it takes one order. `size`: see
    `Marks`."""

    def __init__(self, scope: Scope, grace: int = 0, *, reduces: bool = True, size: int = 20) -> None:
        self.scope, self.grace = scope, grace
        self.ends: set[int] | None = None  # what is left where all have ended, where somebody asks
        self._marks = Marks(size)  # of states, of steps from states, and of runs that come to rest
        self._reduction = Reduction(scope) if reduces else None
        self._view = State(grace, scope)
        self._told: list[Event] | None = None  # all that happens, where somebody asks
        self._forget()

    def _forget(self) -> None:
        """Forgets what can be found again."""
        self._stages = Stages()
        self._scenes: dict[int, Scene] = {}
        gc.collect()

    def first(self) -> Point:
        """Returns the state in which nothing has happened."""
        return Point(self._scene(State(self.grace, self.scope)), (None,) * len(PLACES), Frozen())

    def _scene(self, state: State) -> Scene:
        mark = hash((state.world.key(), state.clone and state.clone.key()))
        if mark not in self._scenes:
            self._scenes[mark] = Scene(state, mark)
        return self._scenes[mark]

    # The ways that wait

    def further(self, ways: bytes, turns: int) -> tuple[bytes, str | None]:
        """Returns the ways to the states that are new after one more turn, given those of so many turns; and
        what is wrong with the last one."""
        if max(len(self._scenes), len(self._stages)) > MOST:
            self._forget()
        found = list[bytes]()
        for here in self._at_the_ends(ways, turns):
            for point in self._turn(here):
                if self._marks.add(point.mark):
                    found.append(point.way)
                    if (wrong := self.wrong(point)) is not None:
                        return b"".join(found), wrong
        return b"".join(found), None

    def _at_the_ends(self, ways: bytes, turns: int) -> Iterator[Point]:
        """Yields the states to which these ways lead. Each goes on from where it parts with the last one."""
        trail = [self.first()]
        for start in range(0, len(ways), 2 * turns) if turns else (0,):
            way, same = ways[start : start + 2 * turns], 0
            while same + 1 < len(trail) and way.startswith(trail[same + 1].way):
                same += 1
            before = trail[same + 1] if same + 1 < len(trail) else None
            del trail[same + 1 :]
            for turn in range(same, turns):
                trail.append(self._turned(trail[turn], way[: 2 * turn + 2], before))
                before = None
            yield trail[-1]

    def _turned(self, point: Point, way: bytes, before: Point | None = None) -> Point:
        """Returns the state after one more turn on a way. `before`: where another one led."""
        number, length = way[-2:]
        event = list(self._seen(point).events())[number]
        if not length:
            found = self.after(point, event)
            assert found is not None
            return found._replace(way=way)
        if before is not None and before.way[-2] == number and 0 < before.way[-1] <= length:
            point, length = before, length - before.way[-1]
        for _ in range(length):
            point = self._stepped(point, PLACES.index(event[1]))
        return point._replace(way=way)

    # What follows

    def _turn(self, point: Point) -> Iterator[Point]:
        """Yields the states that one more turn leads to; but not what others have gone on from as well."""
        for number, event in enumerate(list(self._seen(point).events())):
            if self._is_put_off(point, event):
                continue
            if event[0] == "step":
                yield from self._walk(point, event, number)
            elif (found := self.after(point, event)) is not None:
                yield found._replace(way=point.way + bytes((number, 0)))

    def _walk(self, point: Point, event: Event, number: int) -> Iterator[Point]:
        """Yields the states after each step of an actor."""
        at, here, length = PLACES.index(event[1]), point, 0
        while (stage := here.stages[at]) is not None and not self._is_put_off(here, event):
            if not self._marks.add(hash((here.mark, stage.mark))):
                return
            here, length = self._stepped(here, at), length + 1
            yield here._replace(way=point.way + bytes((number, length)))

    def _is_put_off(self, point: Point, event: Event) -> bool:
        return self._reduction is not None and self._reduction.is_put_off(point.stages, point.happened, event)

    def after(self, point: Point, event: Event) -> Point | None:
        """Returns the state after an event that is no step; None where it can't happen."""
        kind = event[0]
        at = PLACES.index(event[1]) if kind in ("start", "kill", "late") else None
        scene = point.scene if kind == "kill" else self._scene_after(point, event, at)
        if scene is None:
            return None
        self._note(event)
        happened = point.happened
        if kind in self.scope.most:
            happened = happened.but({kind: happened.get(kind, 0) + 1})
        point = point._replace(scene=scene, happened=happened)
        if at is not None:
            point = point.with_stage(at, self._first(scene.state, *event[1:]) if kind == "start" else None)
            if kind == "start" and self._reduction is not None and self._reduction.begins(happened):
                point = self._step(point, at)
        return self._settled(point)

    def _scene_after(self, point: Point, event: Event, at: int | None) -> Scene | None:
        """Returns the scene after an event; None where it can't happen."""
        key = event if at is None else (event[0], point.stages[at])
        if (scene := self._scenes.get(point.scene.after.get(key, 0))) is not None:
            return scene
        state = self._seen(point).copy()
        if state.happen(event) is None:
            return None
        state.actors, state.happened = {}, Frozen()
        scene = self._scene(state)
        point.scene.after[key] = scene.mark
        return scene

    def _first(self, state: State, slot: str, verb: str, skew: int) -> KnownStage:
        world = state.at(slot)
        origin = Origin(verb, holder_of(slot, world), world.started)
        return self._stages.first(state.kind.programs[verb], origin, world.now + skew, self.grace)

    def _stepped(self, point: Point, at: int) -> Point:
        return self._settled(self._step(point, at))

    def _step(self, point: Point, at: int) -> Point:
        """Returns the state after a step of an actor."""
        stage = point.stages[at]
        assert stage is not None
        mark, further = point.scene.after.get(stage, (0, stage))
        scene = self._scenes.get(mark)
        if scene is None:
            state, actor = point.scene.state.copy(), stage.actor
            world = state.at(PLACES[at])
            actor.step(world)
            state.share(world)
            scene, further = self._scene(state), actor.stage
            point.scene.after[stage] = scene.mark, further
        self._note(("step", PLACES[at], 1))
        return point._replace(scene=scene).with_stage(at, further if further.next is not None else None)

    def _settled(self, point: Point) -> Point:
        """Returns the state once all that commutes with whatever may come has been done as well, or something
        is wrong."""
        there: Point | None = point
        while there is not None:
            point, there = there, None
            if self._reduction is not None and point.scene.wrong is None:
                there = next(self._commuting(self._reduction, point), None)
        return point

    def _commuting(self, reduction: Reduction, point: Point) -> Iterator[Point]:
        """Yields the state after a step that commutes with whatever may come."""
        for at, stage in enumerate(point.stages):
            if stage is not None and reduction.may_commute(point, PLACES[at], stage):
                there = self._step(point, at)
                if reduction.commutes(point, stage, changes=there.scene is not point.scene):
                    yield there
                elif self._told is not None:
                    self._told.pop()

    def _seen(self, point: Point) -> State:
        """Returns the state as others see it. The next call changes it."""
        view, there = self._view, point.scene.state
        view.world, view.clone, view.happened = there.world, there.clone, point.happened
        at_work = zip(PLACES, point.stages, strict=True)
        view.actors = {name: it.actor for name, it in at_work if it is not None}
        return view

    # What is wrong

    def wrong(self, point: Point) -> str | None:
        """Returns which promise is broken, in a state or by the clean runs that follow."""
        scene = point.scene
        if scene.wrong is not None or any(point.stages):
            return scene.wrong
        if self.ends is not None:
            self.ends.add(scene.end)
        if self._marks.add(hash(("ends", scene.mark))):
            for line in scene.state.copy().finish(lambda mark: self._marks.add(hash(("rests", mark)))):
                if line.startswith(WRONG):
                    return line
        return None

    def schedule(self, way: bytes) -> list[Event]:
        """Returns the events of a way, of which a step is one."""
        self._told, point = [], self.first()
        for turn in range(0, len(way), 2):
            point = self._turned(point, way[: turn + 2])
        told, self._told = self._told, None
        return told

    def _note(self, event: Event) -> None:
        if self._told is not None:
            self._told.append(event)


class Level(NamedTuple):
    """What came of a level: its number, how many states are known by then, the bytes of memory of the process
    that has most, and what fails."""

    number: int
    states: int
    memory: int
    failure: Failure | None


def exhaustive(search: Search, depth: int, processes: int = 1) -> Iterator[Level]:
    """Explores all schedules of so many turns. Yields each level, and ends with one that fails, or where
    nothing more may happen."""
    states, waiting = 1, [b""]
    with _each(search, processes) as each:
        for number in range(1, depth + 1):
            memory, further = 0, list[bytes]()
            for ways, wrong, used in each([(it, number - 1) for it in waiting]):
                states += len(ways) // (2 * number)
                memory = max(memory, used)
                if wrong is not None:
                    yield Level(number, states, memory, _failure(search, ways[-2 * number :], wrong))
                    return
                further.append(ways)
            yield Level(number, states, memory, None)
            if not (waiting := list(_chunks(further, 2 * number * CHUNK))):
                return


def _failure(search: Search, way: bytes, wrong: str) -> Failure:
    """Returns the schedule, as whoever repeats it sees it fail."""
    found = repeat(search.schedule(way), search.grace, search.scope.kind)
    assert found is not None, f"not repeated: {wrong}"
    return found


def _chunks(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yields these ways again, as many at a time as a process takes."""
    rest = b""
    for part in parts:
        rest += part
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
    if rest:
        yield rest


_Task = tuple[bytes, int]
_Found = tuple[bytes, str | None, int]
_mine: Search


@contextmanager
def _each(search: Search, processes: int) -> Iterator[Callable[[list[_Task]], Iterable[_Found]]]:
    """Gives a function that explores further from each of these, in this process or in several."""
    if processes == 1:
        _begin(search)
        yield lambda tasks: map(_further, tasks)
        return
    with ProcessPoolExecutor(processes, get_context("fork"), _begin, (search,)) as pool:
        yield lambda tasks: pool.map(_further, tasks)
        pool.shutdown(cancel_futures=True)


def _begin(search: Search) -> None:
    global _mine
    _mine = search


def _further(task: _Task) -> _Found:
    return *_mine.further(*task), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
