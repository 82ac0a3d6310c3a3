"""Verifies an offline archive: every part, every manifest of the chain, every receipt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import Checkpoint
from bucketwise.archivers.format.manifest import DamagedError, LastReceipt, Manifest
from bucketwise.archivers.format.names import Commit, commit_of_file, day_number, files_digest, owner_key
from bucketwise.archivers.format.writing import ColdCommit
from bucketwise.archivers.records.deletions import latest
from bucketwise.archivers.records.heads import (
    HEADS,
    Heads,
    check_heads,
    check_none_reappeared,
    last_checkpoint,
    link_of,
    read_heads,
    types_of,
    unreached,
)
from bucketwise.archivers.records.receipt_checks import Ranges
from bucketwise.archivers.records.receipts import (
    COLLECTION,
    HELD,
    REPLACED,
    Receipts,
    commit_of,
    facts_of,
    live_of,
    record_fault,
)
from bucketwise.archivers.records.registry import Unregistered, unregistered
from bucketwise.archivers.stores.base import Corrupt, NotFound
from bucketwise.archivers.verifying.report import (
    ColdPiece,
    Damage,
    HasTurn,
    IntactPiece,
    VerifiedRecords,
    VerifyReport,
    verify_receipts,
)
from bucketwise.archivers.versions.superseded import Superseded, check_replaced
from bucketwise.archivers.writes import compare_all
from bucketwise.buckets.fields.times import DAY_MS, EVER, FIRST_MS, TimeRange, as_ms
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Facts that change after a commit was registered.
_CHANGING = frozenset({"compacted"})


def check_record(record: Document, manifest: Manifest) -> None:
    """Raises DamagedError where the record of a commit is not what its manifest says, or contradicts
    itself."""
    name = manifest.commit
    for key, value in facts_of(manifest).items():
        is_older = key == "files" and key not in record  # than this fact: then manifests are read
        if key not in _CHANGING and not is_older and not _is_same(record.get(key), value):
            raise record_fault(name, f"{key} is not what the manifest of the commit says")
    state, is_open = record.get("state"), bool(live_of(record, manifest.buckets).any())
    if "live" not in record or state not in (("open" if is_open else "closed"), REPLACED, HELD):
        raise record_fault(name, f"the state is {state!r}, which is not what its buckets are")


def _is_same(found: Any, wanted: Any) -> bool:
    try:
        return bool(found == wanted) or as_ms(found) == as_ms(wanted)
    except (TypeError, AttributeError):
        return False


def unfounded(context: ArchiveContext, archive: OfflineArchive) -> Iterator[DamagedError]:
    """Yields an error for each record of a replaced commit that nothing sealed supports."""
    receipts = context.receipts
    for name in [it["_id"]["name"] for it in receipts.replaced()]:
        try:
            record = receipts.get(name)
            if record is not None and record.get("state") in (REPLACED, HELD):
                check_replaced(receipts, archive, record, context.keys)
                commit = commit_of(record)
                assert commit is not None  # its manifest has been read
                check_record(record, archive.chain.link(link_of(commit)))
        except DamagedError as error:
            if (receipts.get(name) or {}).get("state") in (REPLACED, HELD):
                yield error  # else a concurrent run has gone on with it


def returned(receipts: Receipts, replaced: Mapping[str, int]) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a commit must be there, and another one has taken it
    over. `replaced`: the number of the manifest that did so, by the name of the commit."""
    for name, commit in receipts.registered(receipts.current(list(replaced))).items():
        if commit.sequence < replaced[name]:
            what = "it says that the commit must be there, and another one has taken it over"
            yield record_fault(name, what)


def revived(
    context: ArchiveContext, archive: OfflineArchive, open_ones: Set[str], deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a bucket may be live, though a receipt says that it was
    deleted, and it is not there. `open_ones`: commits with such buckets; `deleted`: ranges of positions, by
    commit."""
    receipts, known = context.receipts, context.receipts.registered(open_ones & deleted.keys())
    for name, commit in known.items():
        try:
            manifest = archive.manifest(commit)
        except (DamagedError, NotFound):
            continue  # which is reported
        gone = np.zeros(manifest.buckets, dtype=np.bool_)
        for first, last in deleted[name]:
            gone[first : last + 1] = True
        at = np.flatnonzero(gone & receipts.live(name, manifest.buckets))
        if len(at) and _is_any_absent(context, archive, manifest, at):
            what = "it says that buckets may be live of which a receipt says that they were deleted"
            yield record_fault(name, what)


def unfounded_deletes(
    context: ArchiveContext, archive: OfflineArchive, commits: Iterable[Commit], deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    """Yields an error for each record which says that a bucket was deleted, though no receipt says so, and it
    is there as it was copied. Somebody else may have deleted one, of which there is no receipt. Looks at
    commits of days on which anything is live. `deleted`: ranges of positions, by commit."""
    nearest: int | None = FIRST_MS  # nothing is live between the first day of a commit and then
    for commit in sorted(commits, key=lambda it: it.first) if not context.measured else ():
        first, end = day_number(commit.first) * DAY_MS, (day_number(commit.last) + 1) * DAY_MS
        if nearest is not None and nearest < first:
            nearest = context.source.earliest(first)
        if nearest is not None and nearest < end:
            try:
                yield from _unfounded_deletes(context, archive, archive.manifest(commit), deleted)
            except (DamagedError, NotFound, ColdCommit):
                continue  # which is reported


def _unfounded_deletes(
    context: ArchiveContext, archive: OfflineArchive, manifest: Manifest, deleted: Mapping[str, Ranges]
) -> Iterator[DamagedError]:
    receipts, name = context.receipts, manifest.commit
    at = np.flatnonzero(~receipts.live(name, manifest.buckets))
    at = at[~_told(receipts, archive, manifest, deleted)[at]] if len(at) else at
    there = [
        it.positions[compare_all(context.database, context.policy, it.batch).deleted]
        for it in archive.buckets_at(manifest, at)
    ]
    if there and not receipts.live(name, manifest.buckets)[np.concatenate(there)].all():
        yield record_fault(name, "it says that buckets were deleted that are there, and no receipt says so")


def _told(
    receipts: Receipts, archive: OfflineArchive, manifest: Manifest, deleted: Mapping[str, Ranges]
) -> NDArray[np.bool_]:
    """Returns which buckets of a commit receipts say were deleted: because of it, or of commits that were
    merged into it. Of those of which a part was taken over it is not known."""
    told = np.zeros(manifest.buckets, dtype=np.bool_)
    for first, last in deleted.get(manifest.commit, ()):
        told[first : last + 1] = True
    known = receipts.get_all(manifest.replaces) if manifest.replaces else {}
    before = [commit_of(known[name]) for name in manifest.replaces if "seal" in known.get(name, {})]
    merged = [archive.chain.link(link_of(it)) for it in before if it is not None]
    if merged and sum(it.buckets for it in merged) == manifest.buckets:
        told |= np.concatenate([_told(receipts, archive, it, deleted) for it in merged])
    return told


def _is_any_absent(
    context: ArchiveContext, archive: OfflineArchive, manifest: Manifest, at: NDArray[np.int64]
) -> bool:
    """Returns whether one of these buckets is not in the source: a restore may have brought them back."""
    for held in archive.buckets_at(manifest, at):
        ids = held.batch.main.ids
        if len(list(context.source.present(ids))) < len(ids):
            return True
    return False


def verify(context: ArchiveContext, archive: OfflineArchive, within: TimeRange = EVER) -> VerifyReport:
    """Reads every file of every commit that touches the range: size, SHA-256, page checksums, and that
    the documents rebuilt from them are those that were archived. Of all there is, without a range, also the
    chain of manifests and the receipts, and the versions beside the archive."""
    report = VerifyReport()
    reader = _Verifier(context, archive, report, archive.check, within)
    if within.is_bounded:
        reader.verify_range()
    else:
        _verify_all(reader)
    return report


def verify_records(
    context: ArchiveContext, archive: OfflineArchive, has_turn: HasTurn | None
) -> VerifiedRecords:
    """Verifies everything but the contents of commits' files: each has to be there, with the size that its
    manifest gives. The store's files are listed once. Returns the commits as well, for `verify_commits` to
    read. Of those that have no turn, receipts tell which files have to be there: a manifest is read where
    these are not what the store lists."""
    report, named = VerifyReport(), set[str]()
    sizes = archive.sizes()  # before the commits: what was committed since names its files

    def check_files(manifest: Manifest) -> None:
        named.update(file.key for file in manifest.files)
        archive.check_sizes(manifest, sizes)

    def as_recorded(commits: Sequence[Commit]) -> Iterator[tuple[Commit, Document]]:
        resting = {it.name: it for it in commits if has_turn is not None and not has_turn(it)}
        there = defaultdict[str, list[str]](list)
        for key in sizes if resting else ():
            owner = commit_of_file(archive.policy.identity, key)
            if owner is not None and owner.name in resting:
                there[owner.name].append(key)
        outlines = context.receipts.outlines(list(resting))
        for commit in resting.values():
            files, record = there[commit.name], outlines.get(commit.name, {})
            if record.get("files") == files_digest((key, sizes[key]) for key in files):
                named.update(files)
                yield commit, record

    label = "parts that are there"
    verifier = _Verifier(context, archive, report, check_files, label=label, as_recorded=as_recorded)
    _verify_all(verifier)
    unread = [it for it in verifier.listed if it.name not in verifier.done]  # which may name more of them
    unlisted = [key for key, _ in archive.files_outside(sorted(sizes.keys() - named), unread)]
    there = [key for key in unlisted if archive.store.head(key) is not None]  # a run may have dropped some
    foreign = archive.foreign(there, context.known_fences)
    report.add(*foreign.values())
    return VerifiedRecords(report, list(verifier.done.values()), [it for it in there if it not in foreign])


def verify_sizes(
    context: ArchiveContext, archive: OfflineArchive, commits: Sequence[Commit]
) -> tuple[VerifyReport, list[IntactPiece]]:
    """Reads the manifests of some commits. Their files have to be there with the sizes that these give: the
    store lists what lies among them. Also returns the undamaged ones."""
    report, sizes = VerifyReport(), archive.sizes_among(commits)

    def check_files(manifest: Manifest) -> None:
        archive.check_sizes(manifest, sizes)

    reader = _Verifier(
        context, archive, report, check_files, label="parts that are there", count=len(commits)
    )
    for commit in commits:
        reader.verify(commit)
    return report, list(reader.done.values())


def verify_commits(
    context: ArchiveContext, archive: OfflineArchive, commits: Sequence[Commit]
) -> tuple[VerifyReport, list[IntactPiece]]:
    """Reads every file of some commits, as `verify` does. Also returns the undamaged ones."""
    report = VerifyReport()
    reader = _Verifier(context, archive, report, archive.check, count=len(commits))
    for commit in commits:
        reader.verify(commit)
    return report, list(reader.done.values())


def _verify_all(verifier: _Verifier) -> None:
    context, archive, report = verifier.context, verifier.archive, verifier.report
    named = verifier.verify_all()
    kept = Superseded(archive)
    report.add(*kept.damaged(), *kept.foreign(context.receipts.registered, context.known_fences))
    report.add(*unfounded(context, archive))
    deleted: dict[str, Ranges] = {}
    verify_receipts(context, report, named, deleted)
    report.add(*revived(context, archive, verifier.open_ones, deleted))
    current = (it for it in verifier.listed if it.name in verifier.done)
    report.add(*unfounded_deletes(context, archive, current, deleted))
    report.add(*returned(context.receipts, verifier.replaced))


@dataclass
class _Verifier:
    """Verifies an offline archive. Each manifest is read once, and `inspect` raises DamagedError where its
    files are missing or damaged."""

    context: ArchiveContext
    archive: OfflineArchive
    report: VerifyReport
    inspect: Callable[[Manifest], object]
    within: TimeRange = EVER
    label: str = "verified parts"  # as progress
    count: int = 0  # commits to look at; 0: not known
    as_recorded: Callable[[Sequence[Commit]], Iterable[tuple[Commit, Document]]] = lambda _: ()
    listed: list[Commit] = field(default_factory=list)  # all that the store has
    seen: set[str] = field(default_factory=set)  # commits
    done: dict[str, IntactPiece] = field(default_factory=dict)  # those of them that are as they should be
    open_ones: set[str] = field(default_factory=set)  # those that have buckets which may be live
    replaced: dict[str, int] = field(default_factory=dict)  # what they took over: name -> number of the newer

    def verify_range(self) -> None:
        self._verify_heads()
        start, end = self.within.start_ms, self.within.end_ms
        commits = self.archive.within(start, end)
        self.count = len(commits)
        for commit in commits:
            self.verify(commit)

    def verify_all(self) -> list[LastReceipt]:
        """Returns the receipts that the manifests of the chain name."""
        receipts, archive = self.context.receipts, self.archive
        registered = receipts.all_registered()  # before the heads, which then lead to all of these
        archive.chain.expect({name: it.seal for name, it in registered.items()})
        replaced = {it["_id"]["name"] for it in receipts.replaced()}
        self.listed = archive.commits()
        there = {it.name: it for it in self.listed if it.name in registered and it.name not in replaced}
        self.count = len(there)
        named = self._verify_chain(registered, there)
        for commit in archive.missing(receipts.commits, self.listed):
            self.report.add(_missing(archive, commit))
        others = [it for it in self.listed if it.name not in registered]
        found = unregistered(receipts, archive, others, self.context.known_fences)
        self.report.add(*found.errors(archive))
        waiting = [it for it in there.values() if it.name not in self.seen]
        for commit, record in self.as_recorded(waiting):  # of which no manifest needs to be read
            self._note_recorded(commit, record)
        for commit in sorted(waiting, key=lambda it: it.first):
            if commit.name not in self.seen:
                self.verify(commit)
        return named

    def _note_recorded(self, commit: Commit, record: Document) -> None:
        self.seen.add(commit.name)
        if record["state"] == "open":
            self.open_ones.add(commit.name)
        self._note_intact(commit, len(record["parts"]), record["readings"])

    def _verify_heads(self) -> Heads | None:
        receipts = self.context.receipts
        try:
            check_heads(receipts, self.archive)
            if not self.within.is_bounded:
                check_none_reappeared(receipts, self.archive)
        except DamagedError as error:
            self.report.add(error)
        except HaltedError as error:
            self.report.bad.append(Damage("chain-broken", COLLECTION, str(error)))
        heads = read_heads(receipts)
        if heads is not None and heads.sequence != max((it.sequence for it in heads.links), default=0):
            self.report.add(record_fault(HEADS, "the number is not that of the last of its commits"))
        if heads is not None:
            self._verify_owner()
        return heads

    def _verify_owner(self) -> None:
        binding = self.context.binding
        place = f"{self.archive.store.url}/{owner_key(binding.policy)}"
        try:
            checked = binding.look()
            if checked.file is None:
                fault = "it is missing: it says which database archives here"
                self.report.add(DamagedError("part-missing", place, fault))
            elif reason := binding.reason_to_adopt():
                self.report.bad.append(Damage("archive-not-ours", binding.place, reason))
        except (Corrupt, HaltedError) as error:
            self.report.add(DamagedError("part-differs", place, getattr(error, "reason", str(error))))

    def _verify_chain(self, registered: dict[str, Commit], there: dict[str, Commit]) -> list[LastReceipt]:
        """Verifies the manifests of the chain, and the commits that are there. Returns the receipts that they
        name."""
        archive, receipts, heads = self.archive, self.context.receipts, self._verify_heads()
        if heads is None:
            return []
        checkpoint = self._verify_checkpoint(heads)
        named = [checkpoint.receipt] if checkpoint and checkpoint.receipt else []
        reached = set(checkpoint.links) if checkpoint else set()
        is_whole = True
        for it in heads.walk(archive.chain, registered.values(), frozenset(reached)):
            if not isinstance(it, Manifest):
                is_whole = False
                self.report.add(it)
                continue
            reached.add(it.link)
            named += [it.receipt] if it.receipt is not None else []
            if it.commit in there and it.commit not in self.seen:
                self.verify(it.name)
        if is_whole:
            self.report.add(*unreached(receipts, archive, heads, registered.values(), reached))
        return named

    def _verify_checkpoint(self, heads: Heads) -> Checkpoint | None:
        """Returns the last checkpoint; None where there is none, or it is damaged."""
        try:
            return last_checkpoint(self.context.receipts, self.archive, heads)
        except DamagedError as error:
            self.report.add(error)
            return None

    def verify(self, commit: Commit) -> None:
        """Looks at one commit."""
        self.context.check()
        self.seen.add(commit.name)
        try:
            manifest = self.archive.manifest(commit)
            self._check_record(manifest)
            self.inspect(manifest)
        except ColdCommit:
            self._note_cold(manifest)
            return
        except (DamagedError, NotFound) as error:
            if not _is_dropped(self.context.receipts, self.archive, commit):
                damage = error if isinstance(error, DamagedError) else _missing(self.archive, commit)
                self.report.add(damage)
            return
        self._note_intact(commit, len(manifest.parts), manifest.readings)

    def _note_intact(self, commit: Commit, parts: int, readings: int) -> None:
        self.done[commit.name] = IntactPiece(commit, parts)
        self.report.parts += parts
        self.report.readings += readings
        share = len(self.seen) / self.count if self.count else None
        self.context.progress(self.label, parts, share)

    def _note_cold(self, manifest: Manifest) -> None:
        """Has the store tell whether it has the files of a commit that can't be read now as they were put
        there: of a part without a checksum that it could tell, the size."""
        faults = list(self.archive.damage_unread(manifest))
        self.report.add(*faults)
        if faults:
            return
        drilled = (self.context.receipts.get(manifest.commit) or {}).get("drilled")
        proven = max(it for it in (manifest.created, drilled) if it is not None)
        self.report.cold.append(ColdPiece(manifest.commit, len(manifest.parts), proven))

    def _check_record(self, manifest: Manifest) -> None:
        record = self.context.receipts.get(manifest.commit) or {}
        if record.get("kind") == "offline":  # else a concurrent run has dropped it
            check_record(record, manifest)
            if record["state"] == "open":
                self.open_ones.add(manifest.commit)
            self.replaced.update(dict.fromkeys(manifest.replaces, manifest.sequence))
            heads = self.context.receipts.get(HEADS)
            if heads and types_of(heads, list(manifest.series_types)) != manifest.series_types:
                raise record_fault(HEADS, "it does not tell the types of the columns of a commit")


def _missing(archive: OfflineArchive, commit: Commit) -> DamagedError:
    return DamagedError("part-missing", archive.place(commit), "it is missing, though a receipt names it")


def _is_dropped(receipts: Receipts, archive: OfflineArchive, commit: Commit) -> bool:
    """Returns whether a concurrent run has dropped the commit since the commits were listed."""
    return not archive.is_there(commit) and commit.name not in receipts.current([commit.name])


def verify_forgotten(context: ArchiveContext, archive: OfflineArchive) -> list[str]:
    """Reads the commits whose chain goes on from what the database has recorded, and returns their names.
    Raises DamagedError where one is damaged, or foreign."""
    found = _unregistered(context, archive)
    for fault in found.faults:
        raise fault
    for manifest in found.newer:
        context.check()
        if archive.has_files(manifest):  # else a run that had lost its lease has left the manifest alone
            archive.check(manifest)
        context.progress("verified buckets", manifest.buckets)
    return [it.commit for it in found.newer]


def is_forgotten(context: ArchiveContext, archive: OfflineArchive) -> bool:
    """Returns whether the archive has commits that go on from what the database knows, or names receipts that
    the database does not have."""
    if _unregistered(context, archive).newer:
        return True
    named = latest(check_heads(context.receipts, archive).manifests)
    return named is not None and context.deletions.is_behind(named)


def check_adoptable(context: ArchiveContext, archive: OfflineArchive) -> None:
    """Reads all commits in the store. Raises HaltedError where one is damaged, or foreign, or where the store
    was emptied and a copy was not: what must be there would be read from that."""
    context.binding.check_filled()
    check_heads(context.receipts, archive, goes_on=True)
    for fault in _unregistered(context, archive).faults:
        raise fault
    found, _ = verify_commits(context, archive, archive.commits())
    if found.bad:
        raise HaltedError(f"nothing was taken over, because verification failed: {found.bad[0].message}")


def _unregistered(context: ArchiveContext, archive: OfflineArchive) -> Unregistered:
    return unregistered(context.receipts, archive, archive.commits(), context.known_fences)
