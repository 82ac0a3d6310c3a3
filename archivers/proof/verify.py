"""Verify: is the archive what was written? Every part, every manifest of the chain, every receipt."""

from __future__ import annotations

from dataclasses import dataclass, field

from archivers.context import ArchiveContext
from archivers.format.archive import OfflineArchive
from archivers.format.manifest import Commit, DamagedError, Manifest, manifest_key, owner_key
from archivers.records.deletions import check_deletions
from archivers.records.heads import check_heads, check_none_back, is_forgotten, read_heads
from archivers.records.receipts import COLLECTION, REPLACED, Receipts
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
        registered = receipts.all_registered()  # before the heads, which then lead to all of these
        archive = context.offline(context.keys)
        assert archive is not None
        archive.chain.expect({name: it.seal for name, it in registered.items()})
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
    receipts: Receipts, archive: OfflineArchive, registered: dict[str, Commit], report: VerifyReport
) -> list[Manifest]:
    """The manifests of the chain, as far as they are to be had."""
    try:
        check_heads(receipts, archive)
        check_none_back(receipts, archive)
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
    for it in archive.chain.walk(heads.roots(registered.values()), lost=heads.lost):
        if isinstance(it, Manifest):
            found.append(it)
        else:
            is_whole = False
            report.add(it)
    reached = {(it.commit, it.sha256) for it in found}
    for commit in registered.values():
        if is_whole and (commit.name, commit.seal) not in reached and commit.seal not in heads.lost:
            place = _place(archive, commit)
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
    for commit in archive.missing(receipts.commits):
        if commit.may_hold(start, end) and not is_forgotten(receipts, archive, commit):
            report.add(_missing(archive, commit))
    replaced = {it["_id"]["name"] for it in receipts.in_state(REPLACED, "offline")}
    for commit in sorted(archive.commits(), key=lambda it: it.first):
        if not commit.may_hold(start, end) or commit.name in replaced:
            continue
        context.check()
        try:
            manifest = archive.manifest(commit)
            archive.load(manifest)
        except (DamagedError, NotFound) as error:
            if not _is_dropped(receipts, archive, commit):
                report.add(error if isinstance(error, DamagedError) else _missing(archive, commit))
            continue
        report.parts += len(manifest.parts)
        report.readings += manifest.readings
        context.progress("verified parts", len(manifest.parts))


def _place(archive: OfflineArchive, commit: Commit) -> str:
    return f"{archive.store.url}/{manifest_key(archive.policy.name, commit.sequence, commit.name)}"


def _missing(archive: OfflineArchive, commit: Commit) -> DamagedError:
    return DamagedError("part-missing", _place(archive, commit), "it is missing, though a receipt names it")


def _is_dropped(receipts: Receipts, archive: OfflineArchive, commit: Commit) -> bool:
    """By a run that is at work, since the commits were listed."""
    return not archive.is_there(commit) and commit.name not in receipts.standing([commit.name])
