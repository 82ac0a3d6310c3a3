"""Verifies the receipts of a policy."""

from __future__ import annotations

from collections.abc import Sequence

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.manifest import LastReceipt
from bucketwise.archivers.holds import damage_of
from bucketwise.archivers.records.receipt_checks import Ranges, check_deletions
from bucketwise.archivers.verifying.report import VerifyReport


def verify_receipts(
    context: ArchiveContext,
    report: VerifyReport,
    named: Sequence[LastReceipt] = (),
    deleted: dict[str, Ranges] | None = None,
) -> None:
    """Adds to the report what is wrong with receipts: seals, signatures, and that none is missing; and
    which holds are. `named`: those that manifests name. `deleted`: see `check_deletions`."""
    files, keys = context.receipt_files, context.keys
    report.add(*check_deletions(context.receipts, files, keys, named, {} if deleted is None else deleted))
    report.add(*damage_of(context))
