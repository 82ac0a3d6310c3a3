"""Verify: is the archive what was written? Every part, every manifest of the chain, every receipt."""

from __future__ import annotations

from dataclasses import dataclass, field

from archivers.context import ArchiveContext
from archivers.format.archive import OfflineArchive
from archivers.format.manifest import DamagedError, Manifest, manifest_key, owner_key, parse_commit
from archivers.records.deletions import check_deletions
from archivers.records.heads import check_heads, is_forgotten, read_heads
from archivers.records.receipts import COLLECTION, Receipts
from archivers.stores.base import Corrupt, NotFound
from archivers.versions.kept import KeptVersions
from archivers.versions.superseded import Superseded
from buckets.fields.times import EVER, TimeRange
from config.errors import HaltedError


@dataclass(frozen=True)
class Bad:
    """What is not as it was."""

    code: str  # that of a finding
    place: str  # the url of the file, or of the manifest; or what names a document
    message: str


@dataclass
class VerifyReport:
    parts: int = 0
    readings: int = 0
    bad: list[Bad] = field(default_factory=list)

    def add(self, error: DamagedError) -> None:
        """Once a place, whoever met it."""
        if all(it.place != error.place for it in self.bad):
            self.bad.append(Bad(error.code, error.place, str(error)))


def verify(context: ArchiveContext, within: TimeRange = EVER) -> VerifyReport:
    """Reads every file of every commit that touches the range: size, SHA-256, page checksums, and that
    the documents rebuilt from them are those that were archived. The chain of manifests and the receipts are
    read whole: seals, signatures, and that none is missing; so are the versions beside an online archive."""
    report, receipts, store = VerifyReport(), context.receipts, context.store
    chain: list[Manifest] = []
    if context.to == "offline" and store is not None:
        registered = receipts.all_seals()  # before the heads, which then lead to all of these
        archive = OfflineArchive(context.policy, store, registered.get, context.keys)
        chain = _verify_chain(receipts, archive, registered, report)
        _verify_commits(context, archive, within, report)
        for error in Superseded(store, context.policy.name).damaged():
            report.add(error)
    if context.to == "online":
        for error in KeptVersions(context.database, context.policy).damaged():
            report.add(error)
    for error in check_deletions(receipts, context.keys, chain):
        report.add(error)
    return report


def _verify_chain(
    receipts: Receipts, archive: OfflineArchive, registered: dict[str, str], report: VerifyReport
) -> list[Manifest]:
    """The manifests of the chain, as far as they are to be had."""
    try:
        check_heads(receipts, archive)
    except DamagedError as error:
        report.add(error)
    except HaltedError as error:
        report.bad.append(Bad("chain-broken", COLLECTION, str(error)))
    heads = read_heads(receipts)
    if heads is None:
        return []
    _verify_owner(receipts, archive, report)
    found: list[Manifest] = []
    is_whole = True
    for it in archive.chain.walk(heads.roots(registered), lost=heads.lost):
        if isinstance(it, Manifest):
            found.append(it)
        else:
            is_whole = False
            report.add(it)
    reached = {(it.commit, it.sha256) for it in found}
    for name, seal in registered.items():
        if is_whole and (name, seal) not in reached and seal not in heads.lost:
            place = f"{archive.store.url}/{manifest_key(archive.policy.name, name)}"
            report.add(DamagedError("chain-broken", place, "the chain of manifests does not lead to it"))
    return found


def _verify_owner(receipts: Receipts, archive: OfflineArchive, report: VerifyReport) -> None:
    place = f"{archive.store.url}/{owner_key(archive.policy.name)}"
    owner = receipts.get("owner")
    try:
        found = archive.store.get_bytes(owner_key(archive.policy.name))
        if owner is not None and owner["owner"].encode() not in found:
            fault = "it names another database as the owner of this archive"
            report.add(DamagedError("part-differs", place, fault))
    except NotFound:
        report.add(DamagedError("part-missing", place, "it is missing: it says which database archives here"))
    except Corrupt as error:
        report.add(DamagedError("part-differs", place, error.reason))


def _verify_commits(
    context: ArchiveContext, archive: OfflineArchive, within: TimeRange, report: VerifyReport
) -> None:
    receipts, (start, end) = context.receipts, (within.start_ms, within.end_ms)
    for name in sorted(archive.missing(receipts.commits)):
        commit = parse_commit(name)
        touches = commit is None or commit.may_hold(start, end)
        if touches and not is_forgotten(receipts, archive, name):
            report.add(_missing(archive, name))
    for commit in archive.commits():
        if not commit.may_hold(start, end):
            continue
        context.check()
        try:
            manifest = archive.manifest(commit.name)
            archive.load(manifest)
        except (DamagedError, NotFound) as error:
            if not _is_dropped(receipts, archive, commit.name):
                report.add(error if isinstance(error, DamagedError) else _missing(archive, commit.name))
            continue
        report.parts += len(manifest.parts)
        report.readings += manifest.readings
        context.progress("verified parts", len(manifest.parts))


def _missing(archive: OfflineArchive, commit: str) -> DamagedError:
    place = f"{archive.store.url}/{manifest_key(archive.policy.name, commit)}"
    return DamagedError("part-missing", place, "it is missing, though a receipt names it")


def _is_dropped(receipts: Receipts, archive: OfflineArchive, commit: str) -> bool:
    """By a run that is at work, since the commits were listed."""
    gone = archive.store.head(manifest_key(archive.policy.name, commit)) is None
    return gone and commit not in set(receipts.commits())
