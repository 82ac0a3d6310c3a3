"""Commits of the offline archive, as `archivers/recovering/commits.py` makes, registers, replaces and drops
them: an effect a command or request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from tests.explore.effects import (
    Held,
    Steps,
    checked,
    delete,
    get,
    listing,
    present,
    put,
    put_sound,
    read,
    required,
    transaction,
    write,
)
from tests.explore.world import (
    Doc,
    Effect,
    Frozen,
    Halt,
    Manifest,
    Receipt,
    World,
)

CURRENT = ("open", "closed")
#: Of a dropped commit; of one in which nothing was left, while what has left it may lie beside the archive.
DROPPED = ("dropped", "emptied")


class Bound(Protocol):
    """What binds an archive to the database that writes to it. `mark`: what names of its commits end with."""

    mark: str

    def claim(self, run: Run) -> Steps:
        """Makes sure, once, that the archive is this database's."""

    def check_lineage(self) -> Steps:
        """Raises Halt where somebody else has written there."""


@dataclass
class Run:
    """One run: its lease, and what it keeps in memory."""

    lease: Held
    now: int
    grace: int = 0
    made: set[str] = field(default_factory=set)  # commits
    unsettled: list[set[int]] = field(default_factory=list)  # names of buckets whose commit is not settled
    staying: set[int] = field(default_factory=set)
    deleted_by_others: set[int] = field(default_factory=set)
    names: Iterator[int] = field(default_factory=count)
    changes: Iterator[int] = field(default_factory=count)  # numbers of what it writes down for a copy
    has_copy: bool = False  # the policy file names one
    left_nothing: bool | None = None  # of runs that died; None: it has not looked
    bound: Bound | None = None  # to its deployment

    @property
    def is_clean(self) -> bool:
        """Returns whether a later run need not look for what earlier ones have left."""
        return self.lease.is_clean if self.left_nothing is None else self.left_nothing

    @property
    def ahead(self) -> int:
        """Returns how many copies are made before the one in hand is committed."""
        return self.lease.fence % 2

    def name(self) -> str:
        """Returns the name of a new commit."""
        return f"f{self.lease.fence}-{next(self.names)}{self.bound.mark if self.bound else ''}"

    def claim(self) -> Steps:
        """Claims the archive, once, where it is bound."""
        if self.bound is not None:
            yield from self.bound.claim(self)

    def check_lineage(self) -> Steps:
        """Raises Halt where somebody else has written to the archive, where it is bound."""
        if self.bound is not None:
            yield from self.bound.check_lineage()

    def waits(self, created: int) -> bool:
        """Returns whether what was copied then stays for its grace."""
        return self.grace > 0 and self.now < created + self.grace


# Commits


def fence_of(name: str) -> int:
    """Returns the fence of the run that made a commit."""
    return int(name[1:].partition("-")[0])


def kept_under(key: str) -> tuple[str, int]:
    """Returns of which commit something was kept, and the fence of the run that did."""
    name, _, fence = key.rpartition(".")
    return name, int(fence.rstrip("+"))


def copy(run: Run, docs: Sequence[Doc]) -> Steps:
    """Copies buckets, and reads the copy back. Returns its name."""
    name = run.name()
    yield from put_sound("file", name, tuple(docs))
    return name


Origins = Sequence[tuple[int, int]]


def make_manifest(
    run: Run, name: str, docs: Sequence[Doc], of: Sequence[Manifest] = (), origins: Origins = ()
) -> Steps:
    """Makes a copy a commit, in place of others or of none. Returns its manifest."""
    heads = yield read("heads")
    sequence = heads.get(("heads", 0), 0) + 1
    yield from look_at_files(name)
    first = tuple(origins) or ((sequence, run.lease.fence),) * len(docs)
    taken = tuple(it.commit for it in of)
    created = max((it.created for it in of), default=run.now)
    days = frozenset(it.day for it in docs)
    manifest = Manifest(name, sequence, run.lease.fence, taken, first, created, days)
    yield write(f"notes that it begins {name}", {("begun", name): True})
    yield from checked(run.lease)
    yield put("manifest", name, manifest)
    yield from present("manifest", name)
    return manifest


def receipt_of(manifest: Manifest, live: Iterable[bool]) -> Receipt:
    """Returns the receipt of a commit."""
    flags = tuple(bool(it) for it in live)
    state = "open" if any(flags) else "closed"
    return Receipt(state, flags, manifest.sequence, manifest.created, manifest.days)


def registering(before: Frozen, manifest: Manifest, live: Iterable[bool]) -> Writes:
    """Returns the writes that register a commit."""
    heads = max(before.get(("heads", 0), 0), manifest.sequence)
    name = manifest.commit
    return {("receipt", name): receipt_of(manifest, live), ("heads", 0): heads, ("begun", name): None}


def register(run: Run, manifest: Manifest, live: Iterable[bool]) -> Steps:
    """Registers a commit."""
    flags = tuple(live)

    def body(before: Frozen) -> tuple[Writes, None]:
        return registering(before, manifest, flags), None

    yield from transaction(run.lease, f"register {manifest.commit}", body, is_blind=True)


def rewrite(run: Run, manifest: Manifest, leaving: Collection[int], kept: Collection[int]) -> Steps:
    """Takes buckets out of a commit, as `CommitRegistry.amend` does. Returns what takes its place."""
    name = manifest.commit
    yield from drop_what_it_replaced(run, name)
    docs = yield from required("file", name)
    if kept:
        yield put("aside", name, docs)
        yield from keep(f"{name}.{run.lease.fence}", tuple(docs[i] for i in sorted(kept)))
    staying = [i for i in range(len(docs)) if i not in leaving]
    successor: Manifest | None = None
    if staying:
        rest, origins = [docs[i] for i in staying], [manifest.origins[i] for i in staying]
        copied = yield from copy(run, rest)
        successor = yield from make_manifest(run, copied, rest, [manifest], origins)
    yield from exchange(run, [(manifest, staying)], successor)
    if successor is not None:
        yield from check_files(successor.commit)
        if name in run.made:
            run.made.add(successor.commit)
    yield from drop(name)
    yield mark_dropped(name)
    return successor


Writes = dict[tuple[str, Any], Any]
Staying = Sequence[tuple[Manifest, Sequence[int]]]


def keep(name: str, docs: tuple[Doc, ...]) -> Steps:
    """Keeps copies that are about to leave a commit."""
    yield from put_sound("kept", name, docs)


def exchange(run: Run, replaced: Staying, successor: Manifest | None, *, stays: bool = False) -> Steps:
    """Replaces commits by their successor, in one transaction."""

    def body(before: Frozen) -> tuple[Writes, None]:
        writes: Writes = {}
        live: list[bool] = []
        by = None if successor is None else successor.commit
        for manifest, staying in replaced:
            old: Receipt = before["receipt", manifest.commit]
            live += [old.live[i] for i in staying]
            at = run.now if stays else None
            writes["receipt", manifest.commit] = old._replace(
                state="replaced", replaced_by=by, replaced_at=at, left_under=run.lease.fence
            )
        if successor is not None:
            writes |= registering(before, successor, live)
        return writes, None

    names = ", ".join(it.commit for it, _ in replaced)
    yield from transaction(run.lease, f"replace {names}", body, is_blind=True)


def drop(name: str) -> Steps:
    """Takes a commit out of the store. Its manifest goes first, and stays as a link."""
    found = yield get("manifest", name)._replace(needs=("manifest", name))
    if found is not None:
        yield from put_sound("link", name, found)
        yield delete("manifest", name)
    yield delete("file", name)


def is_emptied(receipt: Receipt) -> bool:
    """Returns whether nothing was left in a commit that goes, or has gone, and its time is not over."""
    is_told = receipt.state in ("replaced", "emptied")
    return is_told and receipt.replaced_by is None and not receipt.ended


def mark_dropped(name: str) -> Effect:
    """Reduces the receipt of a commit."""

    def do(world: World) -> None:
        found: Receipt = world.db["receipt", name]
        dropped = Receipt("dropped", (), found.sequence, 0, found.days, found.replaced_by)
        dropped = dropped._replace(ended=found.ended, left_under=found.left_under)
        if is_emptied(found):
            dropped = dropped._replace(state="emptied", created=found.created, tombstone=found.tombstone)
        world.write({("receipt", name): dropped})

    return Effect(f"marks {name} as dropped", do)


def drop_what_it_replaced(run: Run, name: str) -> Steps:
    """Drops what a commit has taken over, and what that had, before it goes itself."""
    found = yield read("receipt")
    mine, names = [], {name}
    replaced = [(key, it) for key, it in found.of("receipt").items() if it.state == "replaced"]
    for key, receipt in sorted(replaced, key=lambda it: it[1].sequence, reverse=True):
        if receipt.replaced_by in names:
            mine.append(key)
            names.add(key)
    if mine:
        yield from present("manifest", name)
        yield from check_files(name)
    for key in reversed(mine):
        yield from checked(run.lease)
        yield from drop_replaced(key)


def drop_replaced(name: str) -> Steps:
    """Drops a replaced commit, or finishes that. What was kept of one that has ended goes with it."""
    receipt: Receipt = (yield read("receipt"))["receipt", name]
    if receipt.replaced_at is not None:
        due = receipt._replace(replaced_at=None)
        yield write(f"notes that {name} is due", {("receipt", name): due})
    if (yield get("manifest", name)) is not None or (yield get("link", name)) is None:
        yield from required("manifest", name)
        yield from drop(name)
    if receipt.ended and (kept := (yield from kept_of((yield from required("link", name))))):
        yield delete("kept", *kept)
    yield mark_dropped(name)


def with_replaced(manifest: Manifest) -> Steps:
    """Returns a manifest, and those of all commits that it took over. Raises Halt where one is gone."""
    found, waiting = [manifest], list(manifest.replaces)
    receipts = (yield read("receipt")).of("receipt")
    while waiting:
        name = waiting.pop()
        there: Manifest | None = (yield get("manifest", name)) or (yield get("link", name))
        if there is None and name in receipts:
            raise Halt(f"the manifest of {name} is missing")
        if there is not None:
            found.append(there)
            waiting += there.replaces
    return found


def kept_of(manifest: Manifest) -> Steps:
    """Returns the names of what was kept of a commit, and of all that it took over."""
    names = tuple(f"{it.commit}." for it in (yield from with_replaced(manifest)))
    return [key for key in (yield listing("kept")) if key.startswith(names)]


def look_at_files(name: str) -> Steps:
    """Asks the store for the files of a commit, right before it is made."""
    yield from present("file", name)


def check_files(name: str) -> Steps:
    """Asks the store and its copies for the files of a commit, right before its originals go, or those that
    it takes the place of."""
    yield from required("file", name, is_everywhere=True)
