"""`bucketwise sign`: signs what is there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import RenderableType

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import Step, StepResult, Turn, perform, prepare
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.archivers.records.receipt_files import ReceiptFile


def sign(call: Call) -> Report:
    """Sign what has been archived without a signature.

    Needed where store.signing_key was set, changed or taken out for an archive that is there already. All
    is verified first; then each manifest and receipt is signed by the first key. Without a key, signatures
    are taken off.
    """
    results = perform(call, [SIGN])
    return Report(call.command, call.now, results, sign_tables(results))


def sign_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `sign` prints."""
    manifests, receipts = sums(results, "manifests", "receipts")
    what = f"{counted(manifests, 'manifest')} and {counted(receipts, 'receipt')} signed"
    if not manifests and not receipts:
        what = "all is signed as it is to be"
    return [job_table(JOB, results), *closing(results, what)]


def _sign(turn: Turn) -> StepResult:
    keys = turn.context.keys
    prepare(turn, keys.lenient())
    report = sign_archive(turn.context)
    return StepResult({"key": keys.first, "manifests": report.manifests, "receipts": report.receipts})


SIGN = Step("sign", _sign, preconditions="working")


@dataclass
class SignReport:
    """How many were not signed by the first key, and are now. Without a key: how many were signed."""

    manifests: int = 0
    receipts: int = 0


def sign_archive(context: ArchiveContext) -> SignReport:
    """Signs every manifest and receipt by the first key. Seals stay: they don't cover signatures.

    All is verified first. Raises HaltedError, and signs nothing, where anything but a signature is wrong. If
    it is cut off, the next call finishes it."""
    from bucketwise.archivers.kinds import archive_of

    lenient, report = replace(context, keys=context.keys.lenient()), SignReport()
    archive = archive_of(lenient)
    found = archive.verify()
    if found.bad:
        raise HaltedError(f"nothing was signed, because verification failed: {found.bad[0].message}")
    keys, check, receipts = context.keys, context.check, context.receipts
    report.manifests = archive.sign(keys)
    for receipt in receipts.numbered(0):
        check()
        signature = keys.sign(receipt["sha256"])
        if receipt["signature"] != signature:
            receipts.update(receipt["_id"]["name"], {"$set": {"signature": signature}})
            report.receipts += 1
    for file in context.receipt_files.listed():
        check()
        report.receipts += _sign_file(context, file)
    return report


def _sign_file(context: ArchiveContext, file: ReceiptFile) -> int:
    """Signs the receipts of deletes that lie in a file. Returns how many were not signed by the first key."""
    files, keys = context.receipt_files, context.keys
    found = files.read(file)
    signed = [{**it, "signature": keys.sign(it["sha256"])} for it in found]
    if signed != found:
        files.write(file, signed)
    return sum(it["kind"] == "delete" and it != was for it, was in zip(signed, found, strict=True))


JOB = Job(
    sign,
    body=proving.Sign,
    examples=("bucketwise sign -p ticks",),
    title="Signed",
    columns=("key", "manifests", "receipts"),
)
