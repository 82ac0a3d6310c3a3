"""What a run finishes or undoes before it begins: what `archivers/recovering` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from bucketwise.archivers import decisions
from tests.explore.commits import CURRENT, Run, drop, drop_replaced, register, rewrite
from tests.explore.effects import Steps, checked, delete, get, instant, listing, read, required
from tests.explore.world import HOUR, Doc, Frozen, Halt, Manifest, Receipt

DELAY = 3 * HOUR


def recover(run: Run) -> Steps:
    """Finishes, undoes or adopts what earlier runs have left. Raises Halt where the archive is incomplete."""
    listed: Frozen = yield listing("manifest")
    receipts = (yield read("receipt")).of("receipt")
    last = max((it.sequence for it in receipts.values() if it.state != "dropped"), default=0)
    registered = {name for name, it in receipts.items() if it.state != "dropped"}
    is_tail_known = all(name in registered for name, it in listed.items() if it.sequence > last)
    if run.lease.is_clean and is_tail_known:
        yield from drop_all_replaced(run)
        return
    for name, receipt in receipts.items():
        if receipt.state in CURRENT and name not in listed:
            raise Halt(f"the manifest of {name} is missing")
    yield from drop_all_replaced(run)
    yield from clear(run)
    yield from clear_unfinished()
    yield from adopt_unknown(run)


def drop_all_replaced(run: Run) -> Steps:
    """Drops replaced commits that no query can be reading any more."""
    receipts = (yield read("receipt")).of("receipt")
    replaced = []
    for name, it in receipts.items():
        if it.state == "replaced":
            document = {"_id": {"name": name}, "sequence": it.sequence, "replaced_by": it.replaced_by}
            if it.replaced_at is not None:
                document["replaced_at"] = instant(it.replaced_at)
            replaced.append(document)
    for found in decisions.droppable(replaced, instant(run.now), timedelta(milliseconds=DELAY)):
        yield from checked(run.lease)
        successor = found["replaced_by"]
        if successor is not None and receipts[successor].state in (*CURRENT, "replaced"):
            yield from required("manifest", successor)
            yield from required("file", successor)
        yield from drop_replaced(found["_id"]["name"])


def clear(run: Run) -> Steps:
    """Removes files that runs under older leases have left without a commit."""
    files: Frozen = yield listing("file")
    listed: Frozen = yield listing("manifest")
    unlisted = [(name, int(name[1:].partition("-")[0])) for name in sorted(files) if name not in listed]
    left = decisions.left_over(unlisted, run.lease.fence)
    if not left:
        return
    check_unregistered(left, (yield read("receipt")).of("receipt"))
    yield delete("file", *left)


def clear_unfinished() -> Steps:
    """Removes what was kept of commits that nothing has left, since a run died that was about to."""
    kept: Frozen = yield listing("kept")
    receipts = (yield read("receipt")).of("receipt")
    current = {name for name, it in receipts.items() if it.state in CURRENT}
    if left := [key for key in kept if key.rpartition(".")[0] in current]:
        yield delete("kept", *left)


def check_unregistered(left: Sequence[str], receipts: Mapping[str, Receipt]) -> None:
    """Raises Halt where a commit whose files are to be cleared has a receipt."""
    for name in left:
        if name in receipts and receipts[name].state != "dropped":
            raise Halt(f"the manifest of {name} is missing")


def adopt_unknown(run: Run) -> Steps:
    """Registers commits of runs that died before they could, or drops them."""
    listed: Frozen = yield listing("manifest")
    known = yield read("receipt", "begun")
    receipts = known.of("receipt")
    registered = {name for name, it in receipts.items() if it.state != "dropped"}
    unknown = [it for it in listed.values() if it.commit not in registered]
    for manifest in sorted(unknown, key=lambda it: (it.sequence, it.fence, it.commit)):
        if manifest.commit not in known.of("begun") and manifest.commit not in receipts:
            raise Halt(f"no run of this database has made {manifest.commit}")
        yield from checked(run.lease)
        docs = yield get("file", manifest.commit)
        has_files = docs is not None
        if decisions.is_unfinished(manifest.replaces, set(listed), lambda has=has_files: has):  # type: ignore[misc]
            yield from drop(manifest.commit)
        else:
            yield from adopt(run, manifest, docs)


def adopt(run: Run, manifest: Manifest, docs: Sequence[Doc]) -> Steps:
    """Registers a commit with those of its buckets that are live, and takes out what others hold."""
    copies = [(it.id, it) for it in docs]
    outcome = decisions.compared(copies, (yield read("doc")).of("doc"))
    dead = decisions.no_longer_live(outcome, is_forgotten=False)
    yield from register(run, manifest, [i not in dead for i in range(len(docs))])
    receipts = (yield read("receipt")).of("receipt")
    others: list[Manifest] = []
    for name, receipt in receipts.items():
        if receipt.state in CURRENT and name != manifest.commit:
            other = yield from required("manifest", name)
            if other.days & manifest.days:
                others.append(other)
    units, later = set[Doc](), set[int]()
    for other in others:
        there = yield from required("file", other.commit)
        units |= set(there)
        later |= {it.id for it in there if other.fence > manifest.fence}
    equal, newer = decisions.held_elsewhere(copies, units, later)
    if equal or newer:
        yield from rewrite(run, manifest, {*equal, *newer}, newer)
