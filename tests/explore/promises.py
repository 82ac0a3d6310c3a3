"""The promises of docs/reliability.md, held against a world from outside."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

from bucketwise.archivers import decisions
from tests.explore.classes import misplaced
from tests.explore.copied import differing
from tests.explore.lake import listed_twice
from tests.explore.remodel import not_remodelled
from tests.explore.world import Doc, World, counting, has_ended, in_archive, place_of, shown


def broken_now(world: World) -> Iterator[str]:
    """Yields what is wrong after a step: whatever was written counts once, and what was archived is kept."""
    yield from world.broken
    yield from not_remodelled(world)
    if world.owner not in (None, world.name) or world.is_adopting:
        return  # its archive is another database's, or not yet all its own
    at = world.db, world.store, world.gone, world.archived, world.erasing  # and what depends on these
    if not world.broken and all(map(operator.is_, at, world.sound)):
        return  # nothing has changed since it was looked at
    fault = None
    for fault in _broken(world):
        yield fault
    if fault is None:
        world.sound = at


def _broken(world: World) -> Iterator[str]:
    found = [it for versions in counting(world.db, world.readable) for it in versions]
    there = set(found)
    for doc in {*world.docs.values(), *world.gone} - there:
        if (doc.id, doc.born) not in world.erasing:
            yield f"lost: {shown(doc)}"
    first: dict[tuple[int, int], Doc] = {}
    for doc in found:
        other = first.setdefault((doc.id, doc.born), doc)
        if other is not doc and (doc.id, doc.born) not in world.forked:
            yield f"counts twice: {shown(other)}, and {shown(doc)}"
    kept = {it for (kind, _), docs in world.readable.items() if kind in ("file", "kept") for it in docs}
    kept |= in_archive(world.db)
    for doc in world.archived - kept:
        may_go = (doc.id, doc.born) in world.erasing or any(_ended_with(it, doc) for it in world.expired)
        if not may_go and not any(_contains(it, doc) for it in kept):
            yield f"no longer kept: {shown(doc)}"
    if world.expired:
        yield from _read_again(world)
    yield from misplaced(world)
    yield from listed_twice(world)


def _latest_on(day: int, found: Iterable[Sequence[Doc]]) -> frozenset[int]:
    """Returns the readings of a day that are to count: of each place in a bucket the one that was written
    last, which has the highest number."""
    counted = set[int]()
    for versions in found:
        at: dict[int, int] = {}
        for number in (it for doc in versions if doc.day == day for it in doc.readings):
            at[place_of(number)] = max(number, at.get(place_of(number), 0))
        counted.update(at.values())
    return frozenset(counted)


def _ended_with(ended: Doc, older: Doc) -> bool:
    """Returns whether a bucket is an earlier state of one that has ended."""
    return (ended.id, ended.born) == (older.id, older.born) and older.rev <= ended.rev


def _read_again(world: World) -> Iterator[str]:
    """Yields what has ended, and whoever reads manifests alone finds again."""
    receipts, found = world.db.of("receipt"), list(world.store.of("manifest").values())
    for manifest in decisions.standing(found, found):
        receipt = receipts.get(manifest.commit)
        if receipt is not None and receipt.state == "replaced" and not receipt.ended:
            for doc in world.expired.intersection(world.store.get(("file", manifest.commit), ())):
                yield f"ended and is read again: {shown(doc)}"


def _contains(newer: Doc, older: Doc) -> bool:
    """Returns whether a bucket is a later state of another one, with all of its readings."""
    return (newer.id, newer.born) == (older.id, older.born) and older.readings <= newer.readings


def broken_at_rest(world: World) -> Iterator[str]:
    """Yields what is wrong once clean runs have followed: the work is finished, and nothing is left over."""
    yield from broken_now(world)
    kept = world.db.of("pin").keys()
    frozen = {day for days in world.db.of("hold").values() for day in days}
    for doc in world.docs.values():
        if doc.id not in kept and doc.day not in frozen:
            yield f"not archived: {shown(doc)}"
    receipts = world.db.of("receipt")
    for kind, name in world.store:
        is_current = name in receipts and receipts[name].state in ("open", "closed")
        if kind.removeprefix("copy ") in ("file", "manifest") and not is_current:
            yield f"left over: the {kind} of {name}"
    yield from differing(world)
    for (kind, name), docs in world.store.items():
        for doc in docs if kind.removeprefix("copy ") in ("file", "kept") else ():
            if (doc.id, doc.born) in world.erased:
                yield f"not erased: {shown(doc)}, in the {kind} of {name}"
    for doc in in_archive(world.db):
        if (doc.id, doc.born) in world.erased:
            yield f"not erased: {shown(doc)}, in the archive or beside it"
    held = {it.id for it in world.docs.values() if it.day in frozen}
    copies = world.archived | in_archive(world.db)
    later = {it.day for it in copies if it.id in held}  # told once the hold is released
    found = counting(world.db, world.readable)
    erasing = [it for it in copies if (it.id, it.born) in world.erasing]
    told = frozenset(number for it in erasing for number in it.readings)  # until its erasure is called again
    for day, summary in world.db.of("summary").items():
        there = _latest_on(day, found)
        if there - told != summary.readings - told and day not in later and not has_ended(day, world.db):
            yield f"day {day} has readings {sorted(there)}, and its summary {sorted(summary.readings)}"
