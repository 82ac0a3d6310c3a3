"""What a run finishes or undoes before it begins: what `archivers/recovering` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from bucketwise.archivers import decisions
from tests.explore.commits import (
    CURRENT,
    DROPPED,
    Run,
    check_files,
    drop,
    drop_replaced,
    fence_of,
    kept_under,
    mark_dropped,
    register,
    rewrite,
)
from tests.explore.copied import clear_copy, copy_again
from tests.explore.effects import (
    Steps,
    checked,
    delete,
    get,
    instant,
    listing,
    present,
    read,
    required,
    write,
)
from tests.explore.world import HOUR, Doc, Frozen, Halt, Manifest, Receipt, World

DELAY = 3 * HOUR
NO_LEASE = Frozen({"fence": 0})
#: The number and fence of the commit that a bucket was archived in first.
Origin = tuple[int, int]


def recover(run: Run, *, adopts: bool = False) -> Steps:
    """Finishes, undoes or adopts what earlier runs have left. Raises Halt where the archive is incomplete.
    `adopts`: registers as well what runs have made that this database has forgotten."""
    listed: Frozen = yield listing("manifest")
    receipts = (yield read("receipt")).of("receipt")
    last = max((it.sequence for it in receipts.values() if it.state not in DROPPED), default=0)
    registered = {name for name, it in receipts.items() if it.state not in DROPPED}
    is_tail_known = all(name in registered for name, it in listed.items() if it.sequence > last)
    if nothing_is_left(run, adopts=adopts) and is_tail_known:
        yield from drop_all_replaced(run)
        return
    yield from run.check_lineage()
    if adopts:
        yield from note_left(listed)
        yield from adopt_merges(run)
    yield from look_for_missing(run, adopts=adopts)
    yield from drop_all_replaced(run)
    yield from clear(run, adopts=adopts)
    yield from clear_unfinished(run)
    yield from adopt_unknown(run, adopts=adopts)
    if run.has_copy:
        yield from clear_copy(run)


def nothing_is_left(run: Run, *, adopts: bool) -> bool:
    """Returns whether earlier runs are known to have left nothing: not by what this database knows, where
    another one has had the archive."""
    return run.lease.is_clean and not adopts


def note_left(listed: Frozen) -> Steps:
    """Notes that the days of commits without a receipt are to be rolled up: the summaries of this database do
    not count what it has forgotten; and those of commits that are missing, which they count."""
    receipts = (yield read("receipt")).of("receipt")
    days = {day for name, it in listed.items() if name not in receipts for day in it.days}
    taken = (it for name, it in receipts.items() if it.state in CURRENT and name not in listed)
    days |= {day for it in taken for day in it.days}
    if days:
        yield write("notes days to roll up", {("left", day): True for day in days})


def look_for_missing(run: Run, *, adopts: bool) -> Steps:
    """Raises Halt where a commit is missing. Those of which no original was deleted, and that runs have
    dropped which this database has forgotten, are marked as dropped where it adopts."""
    for name in (yield from missing_commits(adopts=adopts)):
        yield mark_dropped(name)
    if adopts:
        yield from take_merges_back(run)


def take_merges_back(run: Run) -> Steps:
    """Registers commits again that were merged into one that another database has dropped as unfinished:
    there they count."""
    listed: Frozen = yield listing("manifest")
    receipts = (yield read("receipt")).of("receipt")
    for name, it in receipts.items():
        successor = receipts.get(it.replaced_by or "")
        if it.state == "replaced" and name in listed and successor and successor.state in DROPPED:
            docs = yield from required("file", name)
            yield from adopt(run, listed[name], docs, is_forgotten=True)


def missing_commits(*, adopts: bool, merged: Collection[str] = ()) -> Steps:
    """Returns the commits that are missing, and that runs have dropped which this database has forgotten.
    Raises Halt where another one is missing. `merged`: those that another one has taken over."""
    listed: Frozen = yield listing("manifest")
    receipts = (yield read("receipt")).of("receipt")
    missing = [name for name, it in receipts.items() if it.state in CURRENT and name not in listed]
    for name in missing:
        if name in merged:
            continue
        was_dropped = adopts and (yield get("link", name)) is not None
        if not (was_dropped and all(receipts[name].live)):
            raise Halt(f"the manifest of {name} is missing")
    return [it for it in missing if it not in merged]


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
    replaced_by = {name: it.replaced_by for name, it in receipts.items() if it.state == "replaced"}
    for found in decisions.droppable(replaced, instant(run.now), timedelta(milliseconds=DELAY)):
        yield from checked(run.lease)
        name = found["_id"]["name"]
        *_, standing = decisions.successors(name, replaced_by)
        if standing is not None and receipts[standing].state not in DROPPED:
            yield from present("manifest", standing)
            yield from check_files(standing)
        yield from drop_replaced(name)


def clear(run: Run, *, adopts: bool) -> Steps:
    """Removes files that runs under older leases have left without a commit: of this database, or, where it
    adopts, of any."""
    files: Frozen = yield listing("file")
    listed: Frozen = yield listing("manifest")
    unlisted = [(name, fence_of(name)) for name in sorted(files) if name not in listed]
    left = decisions.left_over(unlisted, run.lease.fence)
    run.left_nothing = len(left) == len(unlisted)  # others may be of leases that are yet to come
    if not left:
        return
    known = yield read("receipt", "fence")
    check_unregistered(left, known.of("receipt"))
    if not adopts:
        check_own(left, known.of("fence"))
    yield delete("file", *left)


def yet_to_come(world: World) -> int:
    """Returns how many leases are taken before all files of no commit are of older ones: another database's
    may be ahead."""
    left = [
        fence_of(name)
        for kind, name in world.store
        if kind == "file" and ("manifest", name) not in world.store
    ]
    return max(0, max(left, default=0) - int(world.db.get(("lease", 0), NO_LEASE)["fence"]))


def clear_unfinished(run: Run) -> Steps:
    """Removes what was kept of commits that nothing has left, since a run died that was about to; and what
    runs have kept that had lost their lease."""
    kept: Frozen = yield listing("kept")
    receipts = (yield read("receipt")).of("receipt")
    current = {name for name, it in receipts.items() if it.state in CURRENT}
    gone = {name: it.left_under for name, it in receipts.items() if it.state in DROPPED and it.left_under}
    named = [(key, *kept_under(key)) for key in kept]
    unused = [(key, fence) for key, name, fence in named if name in current]
    left = decisions.left_over(unused, run.lease.fence)
    left += [key for key, name, fence in named if fence < gone.get(name, 0)]
    if left:
        yield delete("kept", *left)


def check_unregistered(left: Sequence[str], receipts: Mapping[str, Receipt]) -> None:
    """Raises Halt where a commit whose files are to be cleared has a receipt."""
    for name in left:
        if name in receipts and receipts[name].state not in DROPPED:
            raise Halt(f"the manifest of {name} is missing")


def check_own(left: Sequence[str], fences: Collection[int]) -> None:
    """Raises Halt where a file that is to be cleared is of no run of this database, where it has a record of
    its runs."""
    for name in left:
        if fences and fence_of(name) not in fences:
            raise Halt(f"no run of this database has left the file of {name}")


def adopt_unknown(run: Run, *, adopts: bool) -> Steps:
    """Registers commits of runs that died before they could, or drops them."""
    listed: Frozen = yield listing("manifest")
    known = yield read("receipt", "begun")
    receipts = known.of("receipt")
    registered = {name for name, it in receipts.items() if it.state not in DROPPED}
    unknown = [it for it in listed.values() if it.commit not in registered]
    for manifest in sorted(unknown, key=lambda it: (it.sequence, it.fence, it.commit)):
        is_forgotten = manifest.commit not in known.of("begun") and manifest.commit not in receipts
        if is_forgotten and not adopts:
            raise Halt(f"no run of this database has made {manifest.commit}")
        yield from checked(run.lease)
        docs = yield get("file", manifest.commit)
        has_files = docs is not None
        if decisions.is_unfinished(manifest.replaces, set(listed), lambda has=has_files: has):  # type: ignore[misc]
            yield from drop(manifest.commit)
        else:
            yield from adopt(run, manifest, docs, is_forgotten=is_forgotten)


def adopt(run: Run, manifest: Manifest, docs: Sequence[Doc], *, is_forgotten: bool) -> Steps:
    """Registers a commit with those of its buckets that are live, and takes out what others hold."""
    if run.has_copy:  # it may have come to the store when no copy waited for it
        yield from copy_again(run, ("manifest", manifest.commit))
    copies = [(it.id, it) for it in docs]
    outcome = decisions.compared(copies, (yield read("doc")).of("doc"))
    dead = decisions.no_longer_live(outcome, is_forgotten=is_forgotten)
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
        later |= {it.id for it in there if is_later(other, manifest, is_forgotten=is_forgotten)}
    equal, newer = decisions.held_elsewhere(copies, units, later)
    if equal or newer:
        yield from rewrite(run, manifest, {*equal, *newer}, newer)


def is_later(other: Manifest, manifest: Manifest, *, is_forgotten: bool) -> bool:
    """Returns whether a commit has newer versions than one because of which nothing was deleted: a forgotten
    one is no such commit."""
    return other.fence > manifest.fence and not is_forgotten


# What is taken over with an archive


def needs_adoption() -> Steps:
    """Returns whether the store has commits that this database has forgotten."""
    forgotten: list[Manifest] = yield from unknown_commits()
    begun = (yield read("begun")).of("begun")
    return any(it.commit not in begun for it in forgotten)


def check_adoptable() -> Steps:
    """Raises Halt where `recover` of a run that adopts would, since a commit is missing. Changes nothing."""
    yield from check_none_reappeared()
    listed: Frozen = yield listing("manifest")
    for name in listed:
        yield from required("file", name)
    unknown = yield from unknown_commits()
    merges = yield from known_merges()
    there = set(listed) - {it for manifest in merges.cut_off(unknown, listed) for it in manifest.replaces}
    merged = {it.commit for _, roots in merges.adoptable(unknown, there) for it in roots}
    yield from missing_commits(adopts=True, merged=merged)


def check_none_reappeared() -> Steps:
    """Raises Halt where a commit that was dropped has come back."""
    receipts = (yield read("receipt")).of("receipt")
    for name in (yield listing("manifest")):
        if name in receipts and receipts[name].state in DROPPED:
            raise Halt(f"{name} was dropped, and has come back")


def unknown_commits() -> Steps:
    """Returns the commits in the store that have no receipt, in the order of their numbers."""
    listed: Frozen = yield listing("manifest")
    receipts = (yield read("receipt")).of("receipt")
    unknown = [it for name, it in listed.items() if name not in receipts or receipts[name].state in DROPPED]
    return sorted(unknown, key=lambda it: (it.sequence, it.fence, it.commit))


class Merges(NamedTuple):
    """What is known of merged commits: receipts, and the manifests that dropped commits left."""

    receipts: Mapping[str, Receipt]
    links: Mapping[str, Manifest]

    def cut_off(self, unknown: Iterable[Manifest], listed: Collection[str]) -> Iterator[Manifest]:
        """Yields the merged commits of which some that they replaced were dropped by a forgotten run."""
        for manifest in unknown:
            gone = [it for it in manifest.replaces if it not in listed and not self._is_dropped_by_us(it)]
            if any(it in self.links for it in gone):
                yield manifest

    def _is_dropped_by_us(self, name: str) -> bool:
        return name in self.receipts and self.receipts[name].state in (*DROPPED, "replaced")

    def adoptable(
        self, unknown: Iterable[Manifest], listed: Collection[str]
    ) -> Iterator[tuple[Manifest, list[Manifest]]]:
        """Yields merged commits, and the commits of which they were merged, some of which are registered."""
        for manifest in unknown:
            if not set(listed) & set(manifest.replaces):
                roots = self._roots(manifest)
                if any(self.is_registered(it) for it in roots):
                    yield manifest, roots

    def is_registered(self, manifest: Manifest) -> bool:
        """Returns whether the database has a receipt of a commit."""
        found = self.receipts.get(manifest.commit)
        return found is not None and found.state not in DROPPED

    def _roots(self, manifest: Manifest) -> list[Manifest]:
        found: list[Manifest] = []
        for name in manifest.replaces:
            if (dropped := self.links.get(name)) is None:
                return []
            found += ([] if self.is_registered(dropped) else self._roots(dropped)) or [dropped]
        counts = Counter(manifest.origins)
        for root in found:
            for origin, flags in self.flags(root).items():
                left = len(flags) - counts.pop(origin, 0)
                if left < 0 or (left > 0 and not all(flags)):
                    return []
        return [] if counts else found

    def flags(self, root: Manifest) -> dict[Origin, list[bool]]:
        """Returns which buckets of a commit may be live, by where they were archived first."""
        live = self.receipts[root.commit].live if self.is_registered(root) else (True,) * len(root.origins)
        found: dict[Origin, list[bool]] = {}
        for origin, flag in zip(root.origins, live, strict=True):
            found.setdefault(origin, []).append(flag)
        return found


def known_merges() -> Steps:
    """Returns what is known of merged commits."""
    links: Frozen = yield listing("link")
    manifests = {name: it for name, it in links.items() if isinstance(it, Manifest)}
    return Merges((yield read("receipt")).of("receipt"), manifests)


def adopt_merges(run: Run) -> Steps:
    """Adopts forgotten merges, before anything is dropped or reported missing. The rest of merged commits is
    dropped where some are gone that this database has not dropped."""
    listed: Frozen = yield listing("manifest")
    unknown, merges = (yield from unknown_commits()), (yield from known_merges())
    there = set(listed)
    for manifest in merges.cut_off(unknown, listed):
        yield from checked(run.lease)
        for name in there & set(manifest.replaces):
            yield from drop(name)
            there.remove(name)
    if not any(it.state not in DROPPED for it in merges.receipts.values()):
        return
    for manifest, roots in (yield from known_merges()).adoptable(unknown, there):
        yield from checked(run.lease)
        docs: Sequence[Doc] = yield from required("file", manifest.commit)
        known: dict[Origin, list[bool]] = {}
        for root in roots:
            known |= merges.flags(root) if merges.is_registered(root) else {}
        live: list[bool] = []
        for origin, mine in groupby(zip(manifest.origins, docs, strict=True), key=itemgetter(0)):
            live += yield from _live(known.get(origin), [doc for _, doc in mine])
        yield from register(run, manifest, live)
        for root in roots:
            if merges.is_registered(root):
                yield mark_dropped(root.commit)


def _live(known: list[bool] | None, docs: Sequence[Doc]) -> Steps:
    """Returns which buckets of one origin may be live. `known`: what a receipt says of them."""
    if known is not None:
        return known[: len(docs)]
    outcome = decisions.compared([(it.id, it) for it in docs], (yield read("doc")).of("doc"))
    dead = decisions.no_longer_live(outcome, is_forgotten=True)
    return [i not in dead for i in range(len(docs))]
