"""The actors: a writer, whose writes are one step each, and programs, which may die between two steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from types import GeneratorType
from typing import Any, Literal, NamedTuple

from tests.explore import expiry, online_expiry
from tests.explore.binding import adopting, bound
from tests.explore.classes import move, not_moved
from tests.explore.commits import Run
from tests.explore.copied import fill, mend, mirrored, repair
from tests.explore.effects import Held, Maker, Steps, acquire, release
from tests.explore.expiry import expire
from tests.explore.lake import not_listed, sync
from tests.explore.leaseless import hold, pause, resume, undelete
from tests.explore.memory import remembered
from tests.explore.online import archive_online
from tests.explore.online_erasure import erase_online
from tests.explore.online_expiry import run_online
from tests.explore.others import compact, erase, merge_all, restore, unpin
from tests.explore.recovery import recover
from tests.explore.remodel import remodel
from tests.explore.rollups import backfill, rollup
from tests.explore.runs import roll_up, settle, sweep
from tests.explore.world import DAYS, IDS, PLACES, Doc, Effect, Failed, Halt, Lost, Paused, World, place_of


def as_it_is(_run: Run, work: Steps) -> Steps:
    """Does some work."""
    return work


def under_lease(
    work: Callable[[Run], Steps],
    within: Callable[[Run, Steps], Steps] = as_it_is,
    *,
    is_pausable: bool = False,
) -> Maker:
    """Returns a program that works while it holds the lease. `within`: what stands between it and the store.
    `is_pausable`: and until it is paused."""

    def program(holder: str, now: int, grace: int) -> Steps:
        lease: Held | None = yield acquire(holder, is_pausable=is_pausable)
        if lease is None:
            return "11: another run holds the lease, or it is paused"
        run = Run(lease, now, grace)
        yield from within(run, work(run))
        yield release(lease, is_clean=run.is_clean)
        return "0"

    return program


def without_lease(work: Callable[[int], Steps]) -> Maker:
    """Returns a program that needs no lease, and works while others have it."""

    def program(_holder: str, now: int, _grace: int) -> Steps:
        yield from work(now)
        return "0"

    return program


def archive(run: Run) -> Steps:
    """The verb `archive`."""
    yield from recover(run)
    yield from roll_up(run, DAYS)
    yield from settle(run)
    yield from sweep(run)


def archive_and_merge(run: Run) -> Steps:
    """What each `run` begins with."""
    yield from archive(run)
    yield from merge_all(run)


def run(run: Run) -> Steps:
    """The verb `run`, of a policy whose archive ends."""
    yield from archive_and_merge(run)
    yield from expire(run)


def run_and_look(run: Run) -> Steps:
    """The verb `run`, of a policy whose store has a copy: with its daily look, at all at once."""
    yield from archive_and_merge(run)
    yield from mend(run)


def run_and_move(run: Run) -> Steps:
    """The same, of a policy whose parts move to another storage class."""
    yield from archive_and_merge(run)
    yield from move(run)
    yield from mend(run)


def compact_and_sync(run: Run) -> Steps:
    """The verb `compact`, of a policy with an Iceberg table."""
    yield from compact(run)
    yield from sync(run)


def run_and_sync(run: Run) -> Steps:
    """The verb `run`, of a policy with an Iceberg table."""
    yield from archive_and_merge(run)
    yield from sync(run)


PROGRAMS: dict[str, Maker] = {
    it.__name__: under_lease(it, is_pausable=it in (archive, compact))
    for it in (archive, compact, restore, unpin, erase)
}
_COPIED = {
    **{it.__name__: under_lease(it, mirrored) for it in (archive, compact, restore, unpin, erase, repair)},
    "run": under_lease(run_and_look, mirrored),
    "copy": under_lease(fill),
}
_MOVING = {**_COPIED, "run": under_lease(run_and_move, mirrored)}

#: What else there is where an archive has an end.
ENDING: dict[str, Maker] = {it.__name__: without_lease(it) for it in (undelete, hold, pause, resume)}
ROLLING: dict[str, Maker] = {it.__name__: under_lease(it, is_pausable=True) for it in (rollup, backfill)}
#: What is chosen now and then.
RARE = frozenset({*PROGRAMS, *ENDING, *ROLLING})


class Kind(NamedTuple):
    """A kind of archive: its programs, the one that finishes what is left, how often in a row, how many hours
    pass at a time, what its database tells of it from the first, and whether it has writers. `copy`: whether
    the store has one, which is required. `unfinished`: what yields the work that is left once clean runs have
    followed."""

    programs: dict[str, Maker]
    clean: str
    cleans: int = 3
    hours: tuple[int, ...] = (1,)
    settings: tuple[str, ...] = ()
    has_writers: bool = True
    copy: Literal["none", "from the first", "later"] = "none"
    unfinished: tuple[Callable[[World], Iterator[str]], ...] = ()


_DAYS = (1, 24)
_MOVES = Kind(_MOVING, "run", 5, _DAYS, unfinished=(not_moved,))
KINDS = {
    "offline": Kind(PROGRAMS, "archive"),
    "ending": Kind(
        {**PROGRAMS, **ENDING, **ROLLING, "run": under_lease(run, is_pausable=True)},
        "run",
        5,
        _DAYS,
        unfinished=(expiry.not_ended,),
    ),
    "shared": Kind(
        {**{it.__name__: bound(it) for it in (archive, compact, restore)}, "adopt": adopting}, "archive"
    ),
    "online": Kind({"archive": under_lease(archive_online)}, "archive", settings=("online",)),
    "ending online": Kind(
        {
            **ENDING,
            "archive": under_lease(archive_online, is_pausable=True),
            "run": under_lease(run_online, is_pausable=True),
            "erase": under_lease(erase_online),
        },
        "run",
        5,
        _DAYS,
        ("online", "ends"),
        unfinished=(online_expiry.not_ended,),
    ),
    "copied": Kind(_COPIED, "run", 5, copy="from the first"),
    "copied later": Kind(_COPIED, "run", 5, copy="later"),
    "moving": _MOVES._replace(copy="from the first"),
    "moving alone": _MOVES,
    "lake": Kind(
        {**PROGRAMS, "compact": under_lease(compact_and_sync), "run": under_lease(run_and_sync)},
        "run",
        5,
        unfinished=(not_listed,),
    ),
    "remodelled": Kind({"remodel": under_lease(remodel)}, "remodel", has_writers=False),
    "remodelled natively": Kind(
        {"remodel": under_lease(remodel)}, "remodel", settings=("native",), has_writers=False
    ),
}


class Stage:
    """A program at one of its steps: what it is about to do (`next`), or how it has ended (`end`). Each reply
    takes it to another stage, and leaves this one as it is."""

    __slots__ = ("_before", "_make", "_reply", "_steps", "end", "next")

    def __init__(self, make: Callable[[], Steps], before: Stage | None = None, reply: Any = None) -> None:
        self._make, self._before, self._reply = make, before, reply
        self.next: Effect | None = None
        self.end: str | None = None
        self._steps: Steps | None = make() if before is None else before._taken()
        try:
            self.next = self._steps.send(reply)
        except StopIteration as done:
            self.end = str(done.value)
        except Lost:
            self.end = "11: it has lost its lease"
        except Paused:
            self.end = "it is paused"
        except Failed as error:
            self.end = f"1: {error}"
        except Halt as error:
            self.end = f"5: {error}"
        except Exception as error:  # noqa: BLE001 - a schedule that comes to this is told like any other
            self.end = f"a defect: {error!r}"

    def told(self, reply: Any) -> Stage:
        """Returns the stage that a reply leads to."""
        return type(self)(self._make, self, reply)

    @property
    def memory(self) -> Hashable:
        """Returns what is equal for stages from which a program does the same."""
        return self.end or remembered((self.next, self._standing()))

    @property
    def is_first(self) -> bool:
        """Returns whether it has done nothing yet."""
        return self._before is None

    @property
    def place(self) -> tuple[tuple[str, int], ...]:
        """Returns where it stands: functions and lines, the outermost first; nothing once it has ended."""
        return () if self.next is None else tuple(_places(self._standing()))

    def _standing(self) -> Steps:
        """Returns the program as it stands here. Where it has gone on since, another one is told the same."""
        if self._steps is None:
            replies, stage = list[Any](), self
            while stage._before is not None:
                replies.append(stage._reply)
                stage = stage._before
            self._steps = self._make()
            for reply in (None, *reversed(replies)):
                self._steps.send(reply)
        return self._steps

    def _taken(self) -> Steps:
        """Returns the program, which goes on from here."""
        steps, self._steps = self._standing(), None
        return steps


def _places(steps: Any) -> Iterator[tuple[str, int]]:
    """Yields where a program stands. What is mirrored stands where its work does, and then where that is done
    in the copy."""
    while isinstance(steps, GeneratorType) and steps.gi_frame is not None:
        work = steps.gi_frame.f_locals["work"] if steps.gi_code is mirrored.__code__ else None
        if work is None:
            yield steps.gi_code.co_name, steps.gi_frame.f_lineno
        else:
            yield from _places(work)
        steps = None if steps.gi_yieldfrom is work else steps.gi_yieldfrom


class Actor:
    """A program under way, its verb, and which of all it is that have started."""

    def __init__(self, stage: Stage, verb: str = "", number: int = 0) -> None:
        self.stage, self.verb, self.number = stage, verb, number

    @property
    def next(self) -> Effect | None:
        """Returns what it is about to do; None once it has ended."""
        return self.stage.next

    @property
    def end(self) -> str | None:
        """Returns how it has ended."""
        return self.stage.end

    def step(self, world: World, do: Callable[[World, Effect], Any] | None = None) -> Any:
        """Does it, or what stands in for it. Returns the reply."""
        effect = self.next
        assert effect is not None
        reply = effect.do(world) if do is None else do(world, effect)
        self.stage = self.stage.told(reply)
        return reply

    def copy(self) -> Actor:
        """Returns a copy."""
        return Actor(self.stage, self.verb, self.number)


def writes(world: World) -> Iterator[tuple[Any, ...]]:
    """Yields what a writer may do."""
    docs, gone = world.docs, {it.id for it in world.gone}
    for identity in IDS:
        archived: tuple[Doc, ...] | None = world.db.get(("into", identity))
        if identity in docs:
            yield from ((verb, identity) for verb in ("grow", "replace", "move", "delete"))
        else:
            yield from (("insert", identity, day) for day in DAYS)
            if identity in gone and not is_retaken(archived):
                yield "put back", identity
        is_on_its_day = archived and (identity not in docs or docs[identity].day == archived[-1].day)
        if is_on_its_day and identity not in world.returned:
            yield "retake", identity


def is_retaken(archived: Iterable[Doc] | None) -> bool:
    """Returns whether a reading has taken the place of another. Who puts a bucket back then puts back what
    was written before, and it counts: what is to count could not be told from numbers."""
    return any(number >= PLACES for it in archived or () for number in it.readings)


def write(world: World, verb: str, identity: int, *day: int) -> str:
    """Does one of these. Returns what became of the bucket."""
    before = world.docs.get(identity)
    world.written += 1
    number = world.written
    after: Doc | None
    if verb == "insert":
        after = Doc(identity, number, number, day[0], frozenset({number}))
        world.returned -= {identity}
    elif verb == "put back":
        after = max((it for it in world.gone if it.id == identity), key=lambda it: it.rev)
        world.gone -= {after}
        world.returned |= {identity}
    elif verb == "retake":
        after = _retaken(world.db["into", identity][-1], before, number)
    elif verb == "delete":
        after = None
        world.returned -= {identity}
    else:
        assert before is not None
        after = _changed(world, verb, before, number)
    world.write({("doc", identity): after})
    world.touch(*{it.day for it in (before, after) if it is not None}, *(() if after else _open_days(world)))
    return "gone" if after is None else f"day {after.day}, readings {sorted(after.readings)}"


def _open_days(world: World) -> set[int]:
    """Returns the days of copies that count once their bucket is deleted, wherever that was by then."""
    names = [name for name, it in world.db.of("receipt").items() if it.state == "open"]
    manifests = [world.store[key] for key in (("manifest", it) for it in names) if key in world.store]
    copies = [world.db["into", name] for name in world.db.of("copied")]
    return {day for it in manifests for day in it.days} | {it.day for docs in copies for it in docs}


def _retaken(archived: Doc, before: Doc | None, number: int) -> Doc:
    """Returns a bucket with a reading that takes the place of an archived one, as an upsert makes it."""
    place = place_of(min(archived.readings))
    kept = [] if before is None else [it for it in before.readings if place_of(it) != place]
    doc = Doc(archived.id, number, number, archived.day, frozenset()) if before is None else before
    return doc._replace(rev=number, readings=frozenset([*kept, number * PLACES + place]))


def _changed(world: World, verb: str, before: Doc, number: int) -> Doc:
    if before.id in world.returned:  # to whoever compares, another bucket with its `_id`
        world.returned -= {before.id}
        return Doc(before.id, number, number, before.day, frozenset({number}))
    day = 1 - before.day if verb == "move" else before.day
    readings = frozenset({number}) if verb == "replace" else before.readings | {number}
    return before._replace(rev=number, day=day, readings=readings)
