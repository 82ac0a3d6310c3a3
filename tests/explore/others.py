"""What else works on an archive: compaction, restore, unpin, erasure; and holds, which need no lease."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from bucketwise.archivers.compact import CommitInfo, Size, groups
from tests.explore import commits, runs
from tests.explore.commits import CURRENT, Run, Writes
from tests.explore.effects import (
    Steps,
    checked,
    delete,
    instant,
    listing,
    put,
    read,
    required,
    touched,
    transaction,
)
from tests.explore.expiry import check_holds
from tests.explore.leaseless import tombstone_of, under
from tests.explore.recovery import recover
from tests.explore.world import IDS, Doc, Effect, Frozen, Manifest, Pin, Receipt, World, counting

_SECTION = Size(1000, 1000)


def compact(run: Run) -> Steps:
    """The verb `compact`: merges all commits of each kind of day."""
    yield from recover(run)
    yield from merge_all(run)


def merge_all(run: Run) -> Steps:
    """Merges the commits of each day."""
    receipts = (yield read("receipt")).of("receipt")
    frozen = {day for days in (yield read("hold")).of("hold").values() for day in days}
    infos: dict[int, list[CommitInfo]] = {}  # by the day on which they begin
    for name, it in receipts.items():
        if it.state in CURRENT:
            manifest: Manifest = yield from required("manifest", name)
            if not manifest.days & frozen and it.tombstone is None:
                infos.setdefault(min(manifest.days), []).append(_info(name, it))
    for day in sorted(infos):
        for group in groups(infos[day], _SECTION, None):
            yield from merge(run, [cast(Any, it.commit).name for it in group])


def _info(name: str, it: Receipt) -> CommitInfo:
    commit = cast(Any, SimpleNamespace(name=name, sequence=it.sequence))
    buckets = len(it.live)
    return CommitInfo(
        commit=commit, committed=instant(it.created), buckets=buckets, held=Size(buckets, buckets),
        stored=buckets, merge_key="", is_closed=it.state == "closed", is_compacted=False,
        has_tombstone=False, span=(0, 1),
    )  # fmt: skip


def merge(run: Run, names: list[str]) -> Steps:
    """Replaces commits by one copy of all their buckets. They stay in the store for a while."""
    manifests: list[Manifest] = []
    docs: list[Doc] = []
    for name in names:
        manifests.append((yield from required("manifest", name)))
        docs += yield from required("file", name)
    copied = yield from commits.copy(run, docs)
    origins = [origin for it in manifests for origin in it.origins]
    successor = yield from commits.make_manifest(run, copied, docs, manifests, origins)
    whole = [(it, range(len(it.origins))) for it in manifests]
    yield from commits.exchange(run, whole, successor, stays=True)


def restore(run: Run) -> Steps:
    """The verb `restore`: puts all that is archived and not live back into the source, and pins it."""

    def look(world: World) -> tuple[Doc, ...]:
        live = world.docs
        found = [it for (it,) in counting(world.db, world.readable) if it.id not in live]
        last = {it.id: it for it in sorted(found, key=lambda it: it.rev)}
        return tuple(last.values())

    for doc in (yield Effect("reads the archive", look)):
        yield from checked(run.lease)
        receipts = (yield read("receipt")).of("receipt")
        for name, receipt in receipts.items():
            if receipt.state in CURRENT and doc in (yield from required("file", name)):
                yield from put_back(run, name, doc)
                break


def put_back(run: Run, name: str, doc: Doc) -> Steps:
    """Makes a bucket live again, unless another document is in the way or its commit has been replaced."""
    docs: tuple[Doc, ...] = yield from required("file", name)
    place = docs.index(doc)

    def body(before: Frozen) -> tuple[Writes, None]:
        receipt: Receipt = before["receipt", name]
        if ("doc", doc.id) in before or receipt.state not in CURRENT:
            return {}, None
        live = tuple(it or i == place for i, it in enumerate(receipt.live))
        back = receipt._replace(live=live, state="open")
        return {
            ("doc", doc.id): doc,
            ("pin", doc.id): Pin(doc, doc.day, doc.day),
            ("receipt", name): back,
        }, None

    yield from transaction(run.lease, f"restore {doc.id}", body)


def unpin(run: Run) -> Steps:
    """The verb `unpin`: releases all pins."""
    yield from transaction(
        run.lease, "release pins", lambda before: ({("pin", it): None for it in before.of("pin")}, None)
    )


def erase(run: Run) -> Steps:
    """The verb `erase`: removes the buckets of one `_id` from everything."""
    mine = IDS[0]

    def begin(world: World) -> bool:
        if any(
            mine in [it.id for it in world.db.of("doc").values() if it.day in days]
            for days in world.db.of("hold").values()
        ):
            return False
        world.erase(mine)
        return True

    yield from check_holds()
    yield from recover(run)
    yield from checked(run.lease)
    if not (yield Effect(f"begins to erase {mine}", begin)):
        return
    yield from transaction(
        run.lease,
        f"erase what is live of {mine}",
        lambda before: ({key: None for key in (("doc", mine), ("pin", mine)) if key in before}, None),
        is_erasure=True,
    )
    receipts = (yield read("receipt")).of("receipt")
    for name in [name for name, it in receipts.items() if it.state in CURRENT]:
        docs: tuple[Doc, ...] = yield from required("file", name)
        leaving = [i for i, it in enumerate(docs) if it.id == mine]
        if leaving:
            yield from transaction(run.lease, "release its pin", lambda _: ({("pin", mine): None}, None))
            yield from commits.rewrite(run, (yield from required("manifest", name)), leaving, ())
    for name, kept in (yield listing("kept")).items():
        rest = tuple(it for it in kept if it.id != mine)
        if rest != kept:
            if rest:
                yield put("kept", f"{name}+", rest)
            yield delete("kept", name)
    yield from runs.roll_up(run, {0, 1}, force=True)
    yield Effect("ends the erasure", lambda world: world.end_erasure())


# Holds that somebody places or releases at once


def holds(world: World) -> Iterator[tuple[Any, ...]]:
    """Yields which holds may be placed or released."""
    for day in (0, 1):
        yield ("release" if ("hold", day) in world.db else "place"), day


def hold(world: World, verb: str, day: int) -> str:
    """Places or releases a hold on a day, which freezes it."""
    changes: dict[Any, Any] = {("hold", day): frozenset({day}) if verb == "place" else None}
    if ("lease", 0) in world.db:
        changes |= touched(world.db)
    if verb == "release":
        for key in world.db:
            tombstone = tombstone_of(world.db, key) if key[0] in ("receipt", "tombstone") else None
            if tombstone is not None and is_held_by(tombstone, day):
                changes[key] = under(world.db[key], tombstone.but({"held": None}))
    world.write(changes)
    if verb == "release" and ("hold", day) in world.store:
        world.remove([("hold", day)])
    return f"somebody: {verb} a hold on day {day}"


def is_held_by(tombstone: Frozen, day: int) -> bool:
    """Returns whether a tombstone tells that the hold on a day keeps what lies under it."""
    return day in tombstone.get("held", ())
