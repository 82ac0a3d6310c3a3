"""Faults of the past, put back one at a time: the explorer has to find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from bucketwise.archivers import decisions
from tests.explore import (
    actors,
    binding,
    classes,
    commits,
    copied,
    effects,
    expiry,
    lake,
    online,
    online_expiry,
    recovery,
    remodel,
    runs,
)
from tests.explore.effects import Steps
from tests.explore.explorer import Failure, repeat
from tests.explore.schedules import random_schedule
from tests.explore.world import HOUR, Effect, Manifest, World

compared, ending = decisions.compared, decisions.ending
exchange, acquire, acquired = commits.exchange, effects.acquire, effects.acquired
insert = remodel.insert
is_emptied, settling, changes_of = commits.is_emptied, online_expiry.settling, lake.changes_of


class Wrong(NamedTuple):
    """What was wrong: where, and what stood there."""

    place: Any
    name: str
    wrong: Callable[..., Any]


class Fault(NamedTuple):
    """A fault, in words; what was wrong; and a schedule that finds it: a seed, or its events."""

    what: str
    patches: tuple[Wrong, ...]
    seed: int = 1
    events: tuple[Any, ...] = ()
    kind: str = "offline"
    grace: int = 0

    def found(self) -> Failure | None:
        """Returns what fails in that schedule."""
        if self.events:
            return repeat(self.events, self.grace, self.kind)
        return random_schedule(self.seed, 100)


def _fault(what: str, *patches: tuple[Any, str, Callable[..., Any]], **found: Any) -> Fault:
    return Fault(what, tuple(Wrong(*it) for it in patches), **found)


def nothing(*_given: Any) -> Steps:
    """Takes no step."""
    yield from ()


def at_once(*_given: Any, **_named: Any) -> Steps:
    """Takes no step, and says that all is up to date."""
    yield from ()
    return True


def none(*_given: Any, **_named: Any) -> list[Any]:
    """Returns nothing."""
    return []


def by_id(verified: Any, live: Any) -> decisions.Outcome:
    """Deletes whatever has the `_id`."""
    found = compared(verified, live)
    return decisions.Outcome(sorted([*found.deleted, *found.changed]), [], found.gone)


def by_id_alone(copies: Any, _may_be_live: Any, live: Any) -> list[int]:
    """Counts no copy whose `_id` is live."""
    return [i for i, (name, _) in enumerate(copies) if name not in live]


def dropped_first(run: Any, replaced: Any, successor: Any, **named: Any) -> Steps:
    """Drops commits before the receipts say what replaces them."""
    for manifest, _ in replaced:
        yield from commits.drop(manifest.commit)
    yield from exchange(run, replaced, successor, **named)


def taken_for_clean(holder: str, **given: bool) -> Effect:
    """Acquires the lease, and takes those before for clean."""
    right = acquire(holder, **given)

    def do(world: World) -> Any:
        found = right.do(world)
        return found and found._replace(is_clean=True)

    return right._replace(do=do)


def not_in_a_grace(run: Any, receipt: Any) -> bool:
    """Looks for old copies of moved buckets only where nothing waits."""
    return receipt.state == "open" and not run.grace


def unread(kind: str, name: str, value: Any) -> Steps:
    """Writes, and believes the reply."""
    yield effects.put(kind, name, value)


def as_asked(effect: Effect) -> Steps:
    """Asks the store alone."""
    return (yield effect)


def without_leaving(known: Any) -> lake.Changes:
    """Adds to a table, and takes nothing out of it."""
    return changes_of(known)._replace(leaving=frozenset())


def by_fence(other: Manifest, manifest: Manifest, **_named: Any) -> bool:
    """Takes what was made under a later lease for later, whichever database's leases they are."""
    return other.fence > manifest.fence


def whatever_was(_docs: Any, some: list[int], _live: Any) -> Steps:
    """Takes copies out as was decided before a roll-up."""
    yield from ()
    return some


def directly(db: Any, manifests: Any) -> list[str]:
    """Takes along only what an ended commit itself took over."""
    found = db.of("receipt").items()
    return [name for name, it in found if it.replaced_by == manifests[0].commit and it.state == "replaced"]


def directly_in_place(name: str, replaced_by: Mapping[str, str | None]) -> list[str | None]:
    """Takes a successor for the one that has what it replaced, whatever has become of it."""
    return [replaced_by[name]]


def noted_before(run: Any, number: int) -> Steps:
    """Notes a document, and then writes it."""
    yield remodel.noting("reaches it", documents=number + 1, done=False)
    yield from insert(run, number)


def kept_as_it_was(db: Any, day: int, held: frozenset[int]) -> Any:
    """Notes which holds keep the rest of a day, as they stood when the others of it went."""
    return online_expiry.noting_held(db, day, held) if held else settling(db, day, held)


def _whole(*verbs: str, slot: str = "A") -> Iterator[tuple[Any, ...]]:
    """Yields the events of programs that do all that they do."""
    for verb in verbs:
        yield "start", slot, verb, 0
        yield "step", slot, 1000


_MERGED_TWICE = (
    ("tick", 24),
    ("write", "insert", 1, 0),
    *_whole("archive"),
    ("write", "insert", 2, 0),
    *_whole("archive", "compact"),
    ("write", "insert", 1, 0),
    *_whole("archive", "compact"),
    ("tick", 1),
    *_whole("run"),
    ("tick", 1),
    *_whole("run"),
)
_WAITING = (
    ("write", "insert", 1, 0),
    *_whole("archive"),
    ("write", "insert", 1, 0),
    *_whole("archive", "compact"),
    ("write", "insert", 2, 0),
    *_whole("archive", "compact"),
)
_ADOPTED_BACK = (
    ("clone", True),
    *_whole("archive", "archive"),
    ("elsewhere", "insert", 1, 0),
    ("write", "insert", 1, 0),
    *_whole("archive"),
    *_whole("adopt", "archive", slot="C"),
)
_DROPPED_TWICE = (
    ("write", "insert", 2, 1),
    *_whole("run"),
    ("write", "move", 2),
    ("start", "A", "run", 0),
    ("step", "A", 32),
    ("tick", 1),
    ("start", "B", "run", 0),
    ("step", "B", 10),
    ("step", "A", 3),
    ("step", "B", 1000),
)
_LEFT_AND_DELETED = (
    ("write", "insert", 1, 1),
    ("start", "A", "archive", 0),
    ("step", "A", 21),
    ("write", "move", 1),
    ("step", "A", 19),
    ("write", "delete", 1),
    ("step", "A", 1000),
)
_KEPT_AND_CLEARED = (
    ("start", "A", "archive", 0),
    ("step", "A", 1),
    ("start", "B", "archive", 0),
    ("write", "insert", 1, 0),
    ("tick", 1),
    ("step", "B", 20),
    ("write", "grow", 1),
    ("step", "B", 25),
    ("step", "A", 10),
    ("step", "B", 7),
)
_RELEASED = (
    ("write", "insert", 1, 0),
    *_whole("run"),
    ("tick", 24),
    *_whole("run"),
    ("tick", 1),
    ("hold", "place", 0),
    ("start", "A", "run", 0),
    ("step", "A", 16),
    ("hold", "release", 0),
    ("step", "A", 1000),
)
_LISTED_AND_MERGED = (
    ("write", "insert", 1, 0),
    *_whole("run"),
    ("write", "insert", 2, 0),
    *_whole("archive", "compact"),
)
_LATE_IN_A_COPY = (
    ("write", "insert", 1, 0),
    ("start", "A", "archive", 0),
    ("step", "A", 38),
    ("tick", 1),
    *_whole("archive", slot="B"),
    ("step", "A", 1000),
)
_LATE_IN_THE_STORE = (
    ("write", "insert", 1, 0),
    ("start", "A", "archive", 0),
    ("step", "A", 51),
    ("late", "A"),
    ("tick", 1),
    ("start", "B", "archive", 0),
    ("step", "B", 8),
    ("arrive", 0),
    ("step", "B", 1000),
)
_NEAR_ONLY = (runs, "is_looked_at", not_in_a_grace)
FAULTS = {
    "deletes-by-id": _fault(
        "a delete took whatever had the `_id`",
        (decisions, "compared", by_id),
        seed=14,
    ),
    "no-guard": _fault(
        "transactions of a run that had lost its lease went through",
        (effects, "guard", lambda _lease, _before: {}),
        seed=2874,
    ),
    "moved-counts-twice": _fault(
        "a bucket that moved in its grace counted twice once its newer copy's original had gone",
        (decisions, "with_older_copy", none),
        _NEAR_ONLY,
        seed=49,
    ),
    "moved-and-deleted": _fault(
        "a bucket that moved in its grace, was copied again and then deleted by somebody counted twice",
        _NEAR_ONLY,
        seed=49,
    ),
    "left-and-deleted": _fault(
        "a bucket that had moved, and was deleted while its old day was rolled up, stayed in its summary",
        (runs, "as_they_were", whatever_was),
        events=_LEFT_AND_DELETED,
    ),
    "later-one-hides": _fault(
        "a document that took the `_id` of a deleted bucket hid it",
        (decisions, "counting", by_id_alone),
        seed=1,
    ),
    "not-kept": _fault(
        "a copy that left its commit was dropped",
        (commits, "keep", nothing),
        seed=12,
    ),
    "kept-by-a-newer": _fault(
        "a run that had lost its lease cleared what a newer one had just kept of a copy",
        (decisions, "left_over", lambda files, _fence: [key for key, _ in files]),
        events=_KEPT_AND_CLEARED,
    ),
    "not-rolled-up": _fault(
        "originals were deleted before late readings were rolled up",
        (runs, "roll_up", at_once),
        seed=3,
    ),
    "deletes-unrecorded": _fault(
        "the record of a delete was no part of its transaction",
        (runs, "no_longer_live", lambda _before, _name, _gone: {}),
        seed=6,
    ),
    "drops-first": _fault(
        "a commit was dropped before its successor was registered",
        (commits, "exchange", dropped_first),
        seed=39,
    ),
    "taken-for-clean": _fault(
        "what a crash had left was not looked for",
        (actors, "acquire", taken_for_clean),
        seed=8,
    ),
    "ended-in-part": _fault(
        "when an archive ended that was merged twice, its first commits stayed, and were read again",
        (expiry, "taken_over", directly),
        events=_MERGED_TWICE,
        kind="ending",
    ),
    "emptied-stays": _fault(
        "what had left a commit in which nothing was left stayed for good",
        (commits, "is_emptied", lambda _receipt: False),
        seed=21,
    ),
    "emptied-twice": _fault(
        "what had left a commit in which nothing was left stayed for good, where two runs had dropped that",
        (commits, "is_emptied", lambda receipt: receipt.state != "emptied" and is_emptied(receipt)),
        events=_DROPPED_TWICE,
        kind="ending",
        grace=HOUR,
    ),
    "ended-while-held": _fault(
        "a hold that was placed after a tombstone did not keep what lies under it",
        (expiry, "holding", lambda _db, _manifests: frozenset()),
        seed=16,
    ),
    "ended-online-while-held": _fault(
        "online, a hold that was placed after a tombstone did not keep what lies under it",
        (online_expiry, "holding", lambda _db, _name: frozenset()),
        seed=207,
    ),
    "ended-online-while-live": _fault(
        "online, what had been copied, and not deleted yet, ended in the archive",
        (decisions, "ending", lambda names, held, _waiting: ending(names, held, ())),
        seed=37,
    ),
    "ended-unnoted": _fault(
        "online, nothing told that summaries of what had ended can't be made again",
        (online_expiry, "noting_end", lambda _day: {}),
        seed=7,
    ),
    "reached-first": _fault(
        "a rewrite of a collection noted documents before they were written",
        (remodel, "insert", noted_before),
        events=(("start", "A", "remodel", 0), ("step", "A", 7), ("kill", "A")),
        kind="remodelled",
    ),
    "works-while-paused": _fault(
        "a run began though its policy was paused",
        (effects, "acquired", lambda *given: acquired(*given[:3], False)),
        seed=17,
    ),
    "held-by-none": _fault(
        "online, what a hold had kept stayed for good, where that was released before the day was settled",
        (online_expiry, "settling", kept_as_it_was),
        events=_RELEASED,
        kind="ending online",
    ),
    "ended-while-live": _fault(
        "what had been restored ended in the archive",
        (expiry, "may_end", lambda receipt: receipt.state in commits.CURRENT),
        seed=964,
    ),
    "not-read-back": _fault(
        "the store was believed that it had what was put there",
        (commits, "put_sound", unread),
        (runs, "check_files", nothing),
        (commits, "look_at_files", nothing),
        seed=119,
    ),
    "listing-believed": _fault(
        "files were cleared of a commit that has a receipt, and that a listing left out",
        (recovery, "check_unregistered", lambda _left, _receipts: None),
        seed=204,
    ),
    "clone-writes": _fault(
        "a clone wrote to the archive of its original",
        (binding, "judge", lambda _lineage, _listed: None),
        (binding, "check_ours", lambda _checked: None),
        seed=325,
    ),
    "adopts-first": _fault(
        "an adoption changed the owner before it found that a commit was missing",
        (binding, "check_adoptable", nothing),
        seed=815,
    ),
    "adopted-unsummarised": _fault(
        "what an adoption had registered was never rolled up",
        (recovery, "note_left", nothing),
        seed=1635,
    ),
    "adopted-by-fence": _fault(
        "of two databases' buckets with one `_id`, an adoption took out the one with the earlier lease",
        (recovery, "is_later", by_fence),
        events=_ADOPTED_BACK,
        kind="shared",
    ),
    "successor-dropped": _fault(
        "an adoption halted where another database had dropped what was merged twice",
        (decisions, "successors", directly_in_place),
        events=(*_WAITING, ("clone", False)),
        kind="shared",
    ),
    "successor-lost": _fault(
        "runs halted where a merged commit was lost that had been merged again",
        (decisions, "successors", directly_in_place),
        events=(*_WAITING, ("rot", "file", "f3-0")),
        kind="copied",
    ),
    "adopted-in-part": _fault(
        "an adoption did not look for what another database had dropped",
        (recovery, "nothing_is_left", lambda run, **_named: run.lease.is_clean),
        seed=41255,
    ),
    "merge-not-taken-back": _fault(
        "an adoption dropped what had been merged into a commit that another database had dropped",
        (recovery, "take_merges_back", nothing),
        seed=53875,
    ),
    "deleted-before-copied": _fault(
        "originals were deleted of what lay in the store, and not in its copy",
        (copied, "put_compared", nothing),
        (copied, "get_from_either", as_asked),
        events=(("write", "insert", 1, 0), *_whole("run")),
        kind="copied",
    ),
    "late-in-a-copy": _fault(
        "what a run without its lease put into a copy of the store stayed there",
        (recovery, "clear_copy", nothing),
        events=_LATE_IN_A_COPY,
        kind="copied",
    ),
    "adopted-uncopied": _fault(
        "originals were deleted of a commit whose manifest had come too late, and to the store alone",
        (recovery, "copy_again", nothing),
        events=_LATE_IN_THE_STORE,
        kind="copied",
    ),
    "moved-unasked": _fault(
        "a receipt told another storage class than that in which a file was",
        (classes, "move_file", nothing),
        events=(("write", "insert", 1, 0), *_whole("run"), *[("tick", 24)] * 3, *_whole("run")),
        kind="moving",
    ),
    "listed-twice": _fault(
        "a table went on listing what another commit in it had replaced",
        (lake, "changes_of", without_leaving),
        events=_LISTED_AND_MERGED,
        kind="lake",
    ),
    "merging-dropped": _fault(
        "online, the copy of a later version was dropped where somebody had deleted that in its grace",
        (online, "merged", lambda outcome: outcome.deleted),
        seed=134,
    ),
}


@contextmanager
def put_back(name: str) -> Iterator[Fault]:
    """Puts a fault back for the block."""
    with ExitStack() as stack:
        for it in FAULTS[name].patches:
            stack.enter_context(patch.object(it.place, it.name, it.wrong))
        yield FAULTS[name]
