"""The promises of docs/reliability.md, held against a world from outside."""

from __future__ import annotations

from collections.abc import Iterator

from tests.explore.world import Doc, World, counting, in_archive, shown


def broken_now(world: World) -> Iterator[str]:
    """Yields what is wrong after a step: whatever was written counts once, and what was archived is kept."""
    yield from world.broken
    found = counting(world.db, world.store)
    there = set(found)
    for doc in {*world.docs.values(), *world.gone} - there:
        if (doc.id, doc.born) not in world.erasing:
            yield f"lost: {shown(doc)}"
    first: dict[tuple[int, int], Doc] = {}
    for doc in found:
        if (other := first.setdefault((doc.id, doc.born), doc)) is not doc:
            yield f"counts twice: {shown(other)}, and {shown(doc)}"
    kept = {it for (kind, _), docs in world.store.items() if kind in ("file", "kept") for it in docs}
    kept |= in_archive(world.db)
    for doc in world.archived - kept:
        if (doc.id, doc.born) not in world.erasing and not any(_contains(it, doc) for it in kept):
            yield f"no longer kept: {shown(doc)}"


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
        if kind in ("file", "manifest") and not is_current:
            yield f"left over: the {kind} of {name}"
    for (kind, name), docs in world.store.items():
        for doc in docs if kind in ("file", "kept") else ():
            if (doc.id, doc.born) in world.erased:
                yield f"not erased: {shown(doc)}, in the {kind} of {name}"
    held = {it.id for it in world.docs.values() if it.day in frozen}
    copies = world.archived | in_archive(world.db)
    later = {it.day for it in copies if it.id in held}  # told once the hold is released
    found = counting(world.db, world.store)
    for day, summary in world.db.of("summary").items():
        there = frozenset(number for it in found if it.day == day for number in it.readings)
        if there != summary.readings and day not in later:
            yield f"day {day} has readings {sorted(there)}, and its summary {sorted(summary.readings)}"
