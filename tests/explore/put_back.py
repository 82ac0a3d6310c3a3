"""Faults of the past, put back one at a time: the explorer has to find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from bucketwise.archivers import decisions
from tests.explore import actors, effects, online, runs
from tests.explore.effects import Steps
from tests.explore.world import Effect, World

compared, exchange, acquire = decisions.compared, runs.exchange, effects.acquire


class Wrong(NamedTuple):
    """What was wrong: where, and what stood there."""

    place: Any
    name: str
    wrong: Callable[..., Any]


class Fault(NamedTuple):
    """A fault, in words; what was wrong; and the seed of a schedule that finds it."""

    what: str
    patches: tuple[Wrong, ...]
    seed: int = 1


def _fault(what: str, *patches: tuple[Any, str, Callable[..., Any]], seed: int = 1) -> Fault:
    return Fault(what, tuple(Wrong(*it) for it in patches), seed)


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
        yield from runs.drop(manifest.commit)
    yield from exchange(run, replaced, successor, **named)


def taken_for_clean(holder: str) -> Effect:
    """Acquires the lease, and takes those before for clean."""
    right = acquire(holder)

    def do(world: World) -> Any:
        found = right.do(world)
        return found and found._replace(is_clean=True)

    return right._replace(do=do)


def not_in_a_grace(run: Any, receipt: Any) -> bool:
    """Looks for old copies of moved buckets only where nothing waits."""
    return receipt.state == "open" and not run.grace


_NEAR_ONLY = (runs, "is_looked_at", not_in_a_grace)
FAULTS = {
    "deletes-by-id": _fault(
        "a delete took whatever had the `_id`",
        (decisions, "compared", by_id),
        seed=1,
    ),
    "no-guard": _fault(
        "transactions of a run that had lost its lease went through",
        (effects, "guard", lambda _lease, _before: {}),
        seed=1088,
    ),
    "moved-counts-twice": _fault(
        "a bucket that moved in its grace counted twice once its newer copy's original had gone",
        (decisions, "with_older_copy", none),
        _NEAR_ONLY,
        seed=2,
    ),
    "moved-and-deleted": _fault(
        "a bucket that moved in its grace, was copied again and then deleted by somebody counted twice",
        _NEAR_ONLY,
        seed=23,
    ),
    "later-one-hides": _fault(
        "a document that took the `_id` of a deleted bucket hid it",
        (decisions, "counting", by_id_alone),
        seed=1,
    ),
    "not-kept": _fault(
        "a copy that left its commit was dropped",
        (runs, "keep", nothing),
        seed=1,
    ),
    "not-rolled-up": _fault(
        "originals were deleted before late readings were rolled up",
        (runs, "roll_up", at_once),
        seed=4,
    ),
    "deletes-unrecorded": _fault(
        "the record of a delete was no part of its transaction",
        (runs, "no_longer_live", lambda _before, _name, _gone: {}),
        seed=2,
    ),
    "drops-first": _fault(
        "a commit was dropped before its successor was registered",
        (runs, "exchange", dropped_first),
        seed=2,
    ),
    "taken-for-clean": _fault(
        "what a crash had left was not looked for",
        (actors, "acquire", taken_for_clean),
        seed=11,
    ),
    "merging-dropped": _fault(
        "online, the copy of a later version was dropped where somebody had deleted that in its grace",
        (online, "merged", lambda outcome: outcome.deleted),
        seed=15,
    ),
}


@contextmanager
def put_back(name: str) -> Iterator[Fault]:
    """Puts a fault back for the block."""
    with ExitStack() as stack:
        for it in FAULTS[name].patches:
            stack.enter_context(patch.object(it.place, it.name, it.wrong))
        yield FAULTS[name]
