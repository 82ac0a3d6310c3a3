"""Takes an archive over on purpose: one that was restored from a backup, or whose database has moved."""

from __future__ import annotations

from pymongo.client_session import ClientSession

from bucketwise.archivers.binding.binding import Adoption
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.rollups.guarded import transaction


def adopt(context: ArchiveContext, reason: str) -> Adoption | None:
    """Takes the policy's archive over for this deployment, so that its former one halts. Returns what was
    recorded; None, and changes nothing, where there is no need. Raises HaltedError, and changes nothing,
    where what would be taken over is damaged."""
    archive = archive_of(context)
    if context.policy.archiving is None:
        return None
    if context.binding.reason_to_adopt() is None and not archive.needs_adoption():
        return None
    archive.check_adoptable()
    adoption = context.binding.adopt(reason)
    archive.adopt()  # what the database has forgotten, or has otherwise

    def record(session: ClientSession) -> None:
        facts = {"from": adoption.taken_from, "lineage": adoption.lineage, "reason": reason}
        context.deletions.record_event("adopt", facts, session)
        context.binding.settle_adoption(session)

    transaction(context.database, context.guard, record)
    return adoption
