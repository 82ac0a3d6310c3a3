"""Takes an archive over on purpose: one that was restored from a backup, or whose database has moved."""

from __future__ import annotations

from pymongo.client_session import ClientSession

from bucketwise.archivers.binding.binding import Adoption
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving.archive import check_collections
from bucketwise.archivers.records.deletions import latest
from bucketwise.archivers.records.heads import check_heads
from bucketwise.archivers.records.unregistered import Unregistered, unregistered
from bucketwise.archivers.verifying.offline import verify_commits
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.guarded import transaction


def adopt(context: ArchiveContext, reason: str) -> Adoption | None:
    """Takes the policy's archive over for this deployment, so that its former one halts. Returns what was
    recorded; None, and changes nothing, where there is no need. Raises HaltedError, and changes nothing,
    where what would be taken over is damaged."""
    if context.policy.archiving is None or not _is_needed(context):
        return None
    archive = archive_of(context)
    if (held := context.offline(context.keys)) is not None:
        check_heads(context.receipts, held, goes_on=True)
        for fault in _unregistered(context, held).faults:
            raise fault
        found, _ = verify_commits(context, held, held.commits())
        if found.bad:
            raise HaltedError(f"nothing was taken over, because verification failed: {found.bad[0].message}")
    adoption = context.binding.adopt(reason)
    archive.adopt()  # what the database has forgotten, or has otherwise

    def record(session: ClientSession) -> None:
        facts = {"from": adoption.taken_from, "lineage": adoption.lineage, "reason": reason}
        context.deletions.record_event("adopt", facts, session)
        context.binding.settle_adoption(session)

    transaction(context.database, context.guard, record)
    return adoption


def _is_needed(context: ArchiveContext) -> bool:
    """Returns whether a run would halt at the archive, or an adoption was cut off."""
    if context.binding.reason_to_adopt() is not None or _has_forgotten(context):
        return True
    try:
        check_collections(context.database, context.policy)
    except HaltedError:
        return True
    return False


def _has_forgotten(context: ArchiveContext) -> bool:
    """Returns whether the archive has commits that go on from what the database knows, or names receipts that
    the database does not have."""
    if (held := context.offline(context.keys)) is None:
        return False
    if _unregistered(context, held).newer:
        return True
    named = latest(check_heads(context.receipts, held).manifests)
    return named is not None and context.deletions.is_behind(named)


def _unregistered(context: ArchiveContext, held: OfflineArchive) -> Unregistered:
    return unregistered(context.receipts, held, held.commits(), context.known_fences)
