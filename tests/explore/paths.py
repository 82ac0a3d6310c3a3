"""The paths of the model: what each program may do next, as schedules that were explored have shown.

What a program does and others see has a word, as "put file"; the rest of what it does has none. A trace, the
words of a real run, is a path if a program of the model could have said them in this order.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import patch

from tests.explore.actors import Actor
from tests.explore.copied import IN_COPY, Change
from tests.explore.explorer import Event, Scope, State
from tests.explore.kept import FOLDER, learned, sources
from tests.explore.world import HOUR, Effect, World

#: Where a program stands: functions and lines, the outermost first; nothing once it has ended.
Place = tuple[tuple[str, int], ...]
#: Objects of the store, as effects and as words name them.
_KINDS = {"file": "file", "manifest": "manifest", "kept": "kept", "link": "link", "aside": "link"}
#: The words of effects, by how their names begin. Not every roll-up has something to look at again.
EFFECTS = {
    "puts the file": "put file",
    "puts the manifest": "put manifest",
    "puts the kept": "put kept",
    "puts the link": "put link",
    "puts the aside": "put link",
    "puts the hold": "put hold",
    "deletes the file": "delete file",
    "deletes the manifest": "delete manifest",
    "deletes the kept": "delete kept",
    "deletes the hold": "delete hold",
    "begins to remodel": "task begun",
    "makes the target": "target made",
    "notes the target": "task made",
    "inserts": "insert",
    "looks at what is written": "read written",
    "notes that all is written": "done",
    "reaches": "reached",
    "pauses": "pause",
    "resumes": "resume",
    "notes that it begins": "begin",
    "notes that f": "due",
    "marks": "dropped",
    "rolls up again": "read summaries",
    "commits: write summaries": "summaries",
    "commits: register": "receipt",
    "commits: note what is gone": "receipt",
    "commits: note what is pinned": "pins",
    "commits: delete originals": "delete",
    "commits: write copies": "copy",
    "commits: copy later versions": "copy late",
    "commits: merge later versions": "merge",
    "commits: note what is rolled up again": "followed",
    "commits: replace": "exchange",
    "commits: place tombstones": "tombstones",
    "commits: note what has ended": "noted end",
    "commits: end buckets": "end buckets",
    "commits: settle day": "end day",
    "commits: end ": "end",
    "commits: lift": "lift",
    "commits: place a hold": "hold",
    "commits: restore": "restore",
    "commits: release": "unpin",
    "commits: erase archived": "erase archived",
    "commits: erase versions": "erase versions",
    "commits: erase": "erase",
    **{f"writes down a change of the {kind}": f"begin change of {it}" for kind, it in _KINDS.items()},
    **{f"crosses off a change of the {kind}": f"end change of {it}" for kind, it in _KINDS.items()},
    "crosses off changes": "end changes",
    "notes that the copy": "filling",
    "commits: note the schedule": "schedule",
    "moves the file": "move",
    "puts the table": "put table",
    "puts the point": "put table",
    "commits: note the table": "table",
    "deletes the table": "delete table",
    "commits: note the class": "moved",
}
#: Where it is known what lies in the store, and in its copy.
_OF_COPIES = ("put_compared", "catch_up", "damage", "put_back", "fill")
#: Reads that have to be: of what was put, and of what is relied on.
READS = {
    ("put_sound", "file"): "read file",
    ("put_sound", "kept"): "read kept",
    ("put_sound", "link"): "read link",
    ("put_sound", "hold"): "read hold",
    ("make_manifest", "file"): "look at file",
    ("make_manifest", "manifest"): "read manifest",
    ("delete_originals", "file"): "check file",
    ("delete_originals", "manifest"): "look at manifest",
    ("move_file", "file"): "look at file",
    **{(name, kind): f"read {it}" for name in _OF_COPIES for kind, it in (*_KINDS.items(), ("hold", "hold"))},
}


def word(effect: Effect, place: Place) -> str | None:
    """Returns the word of an effect; None where it has none."""
    name = effect.name.removeprefix(IN_COPY).replace("puts back the", "puts the")
    if name.startswith("reads the "):
        kind = name.split()[2]
        found = next((READS[it, kind] for it, _ in reversed(place) if (it, kind) in READS), None)
    else:
        found = next((it for start, it in EFFECTS.items() if name.startswith(start)), None)
    return f"copy {found}" if found and effect.name.startswith(IN_COPY) else found


def _place(actor: Actor) -> Place:
    """Returns where an actor stands. What is done to the marker has no words, and so places of its own."""
    is_wordless = actor.next is not None and "the marker of" in actor.next.name
    return (*actor.stage.place, ("marker", 0)) if is_wordless else actor.stage.place


class Paths:
    """What follows what. `starts`: where a verb begins, once it has the lease. `beside_a_copy`: of runs whose
    store has one, and no others."""

    def __init__(self, *, beside_a_copy: bool = False) -> None:
        self._beside_a_copy = beside_a_copy
        self.starts: defaultdict[str, set[Place]] = defaultdict(set)
        self._moves: defaultdict[Place, set[tuple[str | None, Place]]] = defaultdict(set)

    def explore(self, scope: Scope, seeds: Iterable[int]) -> None:
        """Learns from random schedules, most of which begin with some commits of two days."""
        for seed in seeds:
            chooser = random.Random(seed)
            state = State(chooser.choice((0, HOUR)), scope)
            with self._learning():
                for event in _FULL * (seed % 4):
                    state.happen(event)
                for _ in range(40):
                    events = list(state.events())
                    weights = [_WEIGHTS.get(it[0], 0.5) for it in events]
                    state.happen(chooser.choices(events, weights)[0])
            self.follow(state)

    def explore_crashes(
        self,
        before: Sequence[Event],
        verb: str,
        grace: int = HOUR,
        kind: str = "ending",
        meanwhile: Sequence[Event] = (),
    ) -> None:
        """Learns from a program that is killed at each of its steps, and from the runs that follow.
        `meanwhile`: what happens then instead, while it stands still; it goes on."""
        for steps in count():
            state = State(grace, Scope(kind=kind))
            with self._learning():
                for event in (*before, ("start", "A", verb, 0), *[("step", "A", 1)] * steps):
                    state.happen(event)
            if not state.actors:
                return
            self.follow(state, (*meanwhile, ("step", "A", 1000)) if meanwhile else ())

    def explore_caught_up(self, verb: str) -> None:
        """Learns from a program after a run that was killed while each of two threads put a file of another
        commit into the store and its copy."""
        state = State(0, Scope(kind="copied"))
        for event in _MARKING:
            state.happen(event)
        for at, name in enumerate(("f1-0", "f1-1")):
            state.world.put(("file", name), ())
            state.world.write({("change", (0, 1, at)): Change((("file", name),), deleted=False)})
        self.follow(state, (("start", "A", verb, 0), ("step", "A", 1000)))

    def follow(self, state: State, events: Iterable[Event] = ()) -> None:
        """Learns from these, and from what follows until all is done."""
        with self._learning():
            for event in events:
                state.happen(event)
            for _ in state.finish():
                pass

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Notes what all actors do meanwhile."""
        step = Actor.step

        def learning(actor: Actor, world: World, *given: Any) -> Any:
            if self._beside_a_copy and not world.has_copy:
                return step(actor, world, *given)
            assert actor.next is not None
            here = _place(actor)
            said, is_first = word(actor.next, here), actor.stage.is_first
            reply = step(actor, world, *given)
            if reply is None and said is not None and _is_read({said}):
                said = None  # nobody sees a read of what is not there
            there = _place(actor)
            if len(here) == 1 and len(there) > 1:
                self.starts[there[1][0]].add(there)
            elif len(here) > 1 and is_first:
                self.starts[here[1][0]].add(here)
            self._moves[here].add((said, there))
            return reply

        with patch.object(Actor, "step", learning):
            yield

    def fault(self, verb: str, trace: Sequence[frozenset[str]]) -> str | None:
        """Returns what a trace does that no path has; None where it is one. Each step is given by all words
        that it may be: what is read more often than it has to be is no fault, nor is what is done in several
        pieces."""
        assert self.starts[verb], f"the model has no program {verb}"
        here, last = self._silently(self.starts[verb], ()), frozenset[str]()
        for number, words in enumerate(trace):
            moves = [it for place in here for it in self._moves[place] if it[0] in words]
            may_repeat = _is_read(words) or bool(last.intersection(words))
            if moves:
                said = frozenset(str(it) for it, _ in moves)
                has_read = any(_is_read({it}) for it in last)
                unsure = {it for it in last if not has_read and words & _UNSURE.get(it, frozenset())}
                last = said | unsure | last.intersection(_PIECES if words & _PIECES else words)
                there = self._silently((to for _, to in moves), said)
                here = there | (here if may_repeat else set())
            elif not may_repeat:
                before = ", ".join("/".join(sorted(it)) for it in trace[max(0, number - 8) : number])
                could = sorted({said for place in here for said, _ in self._moves[place] if said})
                return f"{verb}: after [{before}] it did {sorted(words)}; the model could {could}"
        return None

    def _silently(self, places: Iterable[Place], said: Collection[str]) -> set[Place]:
        """Returns these places, and all that are reached from there without a word, or with one that was just
        said."""
        found, waiting = set[Place](), list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += [to for it, to in self._moves[place] if it is None or it in said]
        return found


#: A roll-up reads and writes the summaries of one level after another.
_PIECES = frozenset({"read summaries", "summaries"})
#: A file is several objects. Where nothing tells whether one was put, it is read, once, before the next one.
_UNSURE = {"put file": frozenset({"read file", "check file"})}


def _is_read(words: Collection[str]) -> bool:
    return all(it.removeprefix("copy ").startswith(("read", "look", "check")) for it in words)


_WEIGHTS = {"step": 3, "write": 1, "kill": 0.5, "start": 2, "hold": 0.2}


#: Both buckets, each of a day of its own, and a run that archives them.
_FULL = (
    ("write", "insert", 1, 0),
    ("write", "insert", 2, 1),
    ("start", "A", "archive", 0),
    ("step", "A", 1000),
)
#: The run that archives them will not be the first: an odd one copies ahead.
_SECOND = (("start", "A", "archive", 0), ("step", "A", 1000), *_FULL[:2])
#: Both are copies of one commit.
_TOGETHER = (("write", "insert", 1, 0), ("write", "insert", 2, 0), *_FULL[2:])
#: One has changed in its grace, and somebody has deleted the other.
_CHANGED = (*_TOGETHER, ("write", "grow", 1), ("write", "delete", 2), ("tick", 1))
#: A copy that was outdated was kept, and what took its place is under a tombstone that is due.
_KEPT = (
    ("tick", 24),
    *_TOGETHER,
    ("write", "grow", 1),
    *(("tick", 1), ("start", "A", "run", 0), ("step", "A", 1000)) * 2,
    ("tick", 1),
)
#: Two commits of a day were merged into one, and lie beside it until their delay is over.
_MERGED = (
    *(("write", "insert", 1, 0), ("start", "A", "archive", 0), ("step", "A", 1000)),
    *(("write", "insert", 2, 0), ("start", "A", "archive", 0), ("step", "A", 1000)),
    *(("start", "A", "compact", 0), ("step", "A", 1000)),
)
#: Both are archived, and under tombstones: not due yet; and due.
_BURIED = (*_FULL, *(("tick", 24),) * 2, ("start", "A", "run", 0), ("step", "A", 1000))
_DUE = (*_BURIED, ("tick", 1))
#: One of two commits of a day is in a table.
_LISTED = (
    *(("write", "insert", 1, 0), ("start", "A", "run", 0), ("step", "A", 1000)),
    *(("write", "insert", 2, 0), ("start", "A", "archive", 0), ("step", "A", 1000)),
)
#: The first run that writes to a store and its copy was killed when it had said so.
_MARKING = (("start", "A", "run", 0), ("step", "A", 8), ("kill", "A"), ("tick", 1))
#: And one between a file and its manifest.
LEFT = (
    *(("write", "insert", 1, 0), ("start", "A", "archive", 0), ("step", "A", 42)),
    *(("kill", "A"), ("tick", 1)),
)
#: Both are archived, and old enough to move to another storage class.
_OLD = (*_FULL, *[("tick", 24)] * 3)
#: Both are archived online, and a reading of each has another value by now; and then copies of these wait.
_RETAKEN = (
    *_FULL,
    *(("tick", 1), ("start", "A", "archive", 0), ("step", "A", 1000)),
    *(("write", "retake", 1), ("write", "retake", 2)),
)
_RETAKEN_AND_COPIED = (*_RETAKEN, ("start", "A", "archive", 0), ("step", "A", 1000), ("tick", 1))
#: Another run takes the lease, and does all.
_BY_ANOTHER = (("tick", 1), ("start", "B", "remodel", 0), ("step", "B", 1000))
_RUN_BY_ANOTHER = (("tick", 1), ("start", "B", "run", 0), ("step", "B", 1000))
_LENGTHS = (0, 4, 1000)


@cache
def explored() -> Paths:
    """Returns the paths of all programs."""
    found = learned(FOLDER, "paths", sources(), _explored)
    assert isinstance(found, Paths)
    return found


def _explored() -> Paths:
    paths, there = Paths(), tuple[Event, ...]()
    for others in ((), ("compact",), ("restore", "unpin"), ("erase",)):
        paths.explore(Scope(("archive", *others), (0,), _LENGTHS), range(150))
    paths.explore(Scope(("archive", "run", "restore", "erase"), (0,), _LENGTHS, kind="ending"), range(300))
    paths.explore_crashes(_KEPT, "run")
    for before in (_FULL, _CHANGED, _MERGED):
        paths.explore_crashes(before, "erase", 0)
    for verb in ("archive", "run"):
        paths.explore_crashes(_CHANGED, verb)
        paths.explore_crashes(_FULL[:2], verb, 0)
    for change in ("grow", "replace", "move", "delete"):
        for there in (_FULL[:2], _SECOND, _TOGETHER[:2], _CHANGED):
            for grace in (0, HOUR):
                paths.explore_crashes(there, "run", grace, meanwhile=[("write", change, 1)])
        for grace in (0, HOUR):
            paths.explore_crashes(_TOGETHER[:2], "archive", grace, "online", [("write", change, 1)])
    paths.explore(Scope(("run", "compact"), (0,), _LENGTHS, kind="lake"), range(40))
    for verb in ("run", "compact"):
        paths.explore_crashes(_LISTED, verb, 0, "lake")
    paths.explore(Scope(("run",), (0,), _LENGTHS, kind="moving alone"), range(30))
    for count_of_late in range(3):
        paths.explore_crashes((*_OLD, *_FULL[:count_of_late]), "run", 0, "moving alone")
    paths.explore(Scope(("archive",), (0,), _LENGTHS, kind="online"), range(300))
    paths.explore_crashes(_RETAKEN, "archive", 0, "online")
    for late in (_RETAKEN, _RETAKEN_AND_COPIED):
        paths.explore_crashes(late, "archive", HOUR, "online")
    for kind in ("ending", "ending online"):
        paths.explore_crashes(_BURIED[:-2], "run", 0, kind)
        paths.explore_crashes(_DUE, "run", 0, kind)
        for verb in ("undelete", "hold", "pause", "resume"):
            paths.explore_crashes(_BURIED, verb, 0, kind)
    for kind in ("remodelled", "remodelled natively"):
        paths.explore_crashes((), "remodel", 0, kind)
        paths.explore_crashes((), "remodel", 0, kind, _BY_ANOTHER)
    for verb in ("rollup", "backfill"):
        paths.explore_crashes(_CHANGED, verb)
        paths.explore_crashes(_FULL[:2], verb)
    verbs = ("archive", "run", "undelete", "erase")
    paths.explore(Scope(verbs, (0,), _LENGTHS, kind="ending online"), range(200))
    for there in (_FULL[:2], _FULL, _CHANGED):
        paths.explore_crashes(there, "erase", HOUR, "ending online")
    paths.explore_crashes(_RETAKEN_AND_COPIED, "erase", HOUR, "ending online")
    return paths


@cache
def explored_beside_a_copy() -> Paths:
    """Returns the paths of programs of an offline archive whose store has a copy."""
    found = learned(FOLDER, "copied-paths", sources(), _explored_beside_a_copy)
    assert isinstance(found, Paths)
    return found


def _explored_beside_a_copy() -> Paths:
    paths = Paths(beside_a_copy=True)
    for kind in ("copied", "copied later"):
        paths.explore(Scope(("archive", "run", "repair", "copy"), (0,), _LENGTHS, kind=kind), range(60))
    for kind, verbs in (("copied", ("archive", "run", "repair", "copy")), ("moving", ("run",))):
        for verb in verbs:
            paths.explore_crashes(_MARKING, verb, 0, kind)
    for verb in ("archive", "run", "repair", "copy"):
        paths.explore_caught_up(verb)
    paths.explore_crashes(LEFT, "archive", 0, "copied")
    for verb in ("archive", "run"):
        paths.explore_crashes(_FULL[:2], verb, 0, "copied")
        paths.explore_crashes(_CHANGED, verb, HOUR, "copied")
    lost = [("rot", f"copy {kind}", f"f1-{at}") for at in (0, 1) for kind in ("file", "manifest")]
    for verb in ("run", "repair"):
        paths.explore_crashes((*_FULL, *lost), verb, 0, "copied")
        paths.explore_crashes((_FULL[0], *_FULL[2:], *lost[:2]), verb, 0, "copied")
    paths.explore_crashes((*_FULL, ("name",)), "copy", 0, "copied later")
    for before in (_FULL[:2], _MERGED[:-2]):  # what comes to the copy too late is cleared
        paths.explore_crashes(before, "run", 0, "copied", _RUN_BY_ANOTHER)
    paths.explore(Scope(("run",), (0,), _LENGTHS, kind="moving"), range(30))
    paths.explore_crashes(_OLD, "run", 0, "moving")
    return paths
