"""An Iceberg table that lists the files of the commits that stand: what `archivers/lake/sync.py` does at the
end of a run. Where it is, MongoDB tells, in the transaction that marks the commits that are in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.explore.commits import CURRENT, Run, Writes
from tests.explore.effects import Steps, checked, delete, get, put, read, required, transaction
from tests.explore.world import Frozen, Halt, World

#: The last snapshot: the name of its metadata.
LAST = ("lake", 0)
_MARK = "in lake"


class Changes(NamedTuple):
    """The commits that a table is to list from now on, and those that it is not to list any more."""

    joining: frozenset[str]
    leaving: frozenset[str]


def sync(run: Run) -> Steps:
    """Makes one snapshot of all that came and went since the last one. The table is written first, and then
    its record."""
    known = yield read("lake", "receipt", _MARK)
    last: str | None = known.get(LAST)
    changes, listed = changes_of(known), frozenset[str]()
    if last is not None:
        listed = yield get("table", last)
        if listed is None:
            raise Halt("the table is missing")
    if changes.joining or changes.leaving:
        for name in sorted(changes.leaving):
            yield get("link", name)
        for name in sorted(changes.joining):
            yield from required("manifest", name)
        yield from checked(run.lease)
        last = yield from write_table(run, (listed | changes.joining) - changes.leaving)
        yield from note(run, last, changes)
        old = [it for it in known.of("lake").values() if it != last]
        if old:
            yield delete("table", *old)
    if last is not None and (yield get("point", "it")) != last:
        yield put("point", "it", last)


def changes_of(known: Frozen) -> Changes:
    """Returns what a table lacks, and what it has too many, by the marks of receipts."""
    standing = standing_in(known)
    marked = set(known.of(_MARK))
    return Changes(frozenset(standing - marked), frozenset(marked - standing))


def standing_in(db: Frozen) -> set[str]:
    """Returns the commits that stand."""
    return {name for name, it in db.of("receipt").items() if it.state in CURRENT}


def write_table(run: Run, listed: frozenset[str]) -> Steps:
    """Writes a snapshot in several objects. Returns its name."""
    name = f"t{run.lease.fence}-{next(run.names)}"
    for _ in range(2):
        yield put("table", name, listed)
        yield get("table", name)
    return name


def note(run: Run, name: str, changes: Changes) -> Steps:
    """Notes where the table is, and which commits are in it."""
    writes: Writes = {LAST: name}
    writes |= {(_MARK, it): True for it in changes.joining} | {(_MARK, it): None for it in changes.leaving}
    yield from transaction(run.lease, "note the table", lambda _: (writes, None), is_blind=True)


# What must hold


def listed_twice(world: World) -> Iterator[str]:
    """Yields what whoever reads the table would find twice."""
    listed = world.store.get(("table", world.db.get(LAST)), frozenset())
    for name in listed:
        manifest = world.store.get(("manifest", name)) or world.store.get(("link", name))
        for it in listed & frozenset(manifest.replaces if manifest else ()):
            yield f"the table lists {it}, and {name} that replaced it"


def not_listed(world: World) -> Iterator[str]:
    """Yields how the table differs from what stands, once runs have followed."""
    listed = world.store.get(("table", world.db.get(LAST)), frozenset())
    standing = standing_in(world.db)
    if listed != standing:
        yield f"the table lists {sorted(listed)}, and {sorted(standing)} stand"
    if world.store.get(("point", "it")) != world.db.get(LAST):
        yield "the table is not where it is said to be"
