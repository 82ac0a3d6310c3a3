"""The balance of an archive, and its history: what the receipts tell, held against what is there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.records.deletions import removed_buckets
from bucketwise.archivers.records.receipt_files import chained
from bucketwise.jobs.core.ledger import LOOKS, Ledger, Run
from bucketwise.jobs.output.bodies.proving import Balance

Document = dict[str, Any]
Body = dict[str, Any]
#: So many commits, runs and proofs are listed, the newest first; events are few.
MOST = 30
#: Kinds of receipts of what runs do by themselves, day by day.
_ROUTINE = (
    "delete",
    "expire",
    "tombstones",
    "collections",
    "rekept",
    "rewritten",
    "superseded",
    "emptied",
    "gone",
)
#: Verbs in the ledger that prove an archive.
_PROOFS = ("drill", *LOOKS)


@dataclass
class CommitReceipts:
    """The receipts of the deletes that a commit holds."""

    commit: str
    receipts: int = 0
    buckets: int = 0
    first: int = 0
    last: int = 0

    def add(self, number: int, buckets: int) -> None:
        """Counts a receipt."""
        self.receipts += 1
        self.buckets += buckets
        self.first, self.last = self.first or number, number


@dataclass
class Deleted:
    """The deletes of a month, by its receipts: how many, and the first and last of their numbers."""

    month: str
    receipts: int
    buckets: int
    first: int
    last: int


@dataclass
class Told:
    """Tells what all receipts of a policy tell."""

    months: dict[str, Deleted] = field(default_factory=dict)
    commits: dict[str, CommitReceipts] = field(default_factory=dict)
    events: list[Body] = field(default_factory=list)
    given: dict[str, Body] = field(default_factory=dict)  # by run: those with `--now`
    erased: int = 0
    ended: int = 0

    def add(self, receipt: Document) -> None:
        """Counts a receipt. One without number or time is damaged, and a finding already."""
        number, at = receipt.get("sequence"), receipt.get("at")
        if not isinstance(number, int) or not isinstance(at, datetime):
            return
        if receipt.get("now_given") is not None:
            self._add_given(receipt, number)
        if receipt["kind"] == "delete":
            self._add_delete(receipt, number, at)
            return
        if receipt["kind"] not in _ROUTINE:
            self.events.append(event_body(receipt))
        if receipt["kind"] == "erase":
            erased, stayed = receipt.get("erased", {}), receipt.get("stayed", 0)
            self.erased += erased.get("archived", 0) + erased.get("online", 0) - stayed
        elif receipt["kind"] == "expire":
            self.ended += receipt.get("buckets", 0)

    def _add_delete(self, receipt: Document, number: int, at: datetime) -> None:
        month = self.months.setdefault(f"{at:%Y-%m}", Deleted(f"{at:%Y-%m}", 0, 0, number, number))
        month.receipts += 1
        month.buckets += int(receipt["buckets"])
        month.first, month.last = min(month.first, number), max(month.last, number)
        if name := (receipt.get("held_by") or {}).get("commit"):
            self.commits.setdefault(name, CommitReceipts(name)).add(number, int(receipt["buckets"]))

    def _add_given(self, receipt: Document, number: int) -> None:
        told = {key: receipt.get(key) for key in ("run", "now_given", "done_at", "host", "user")}
        run = self.given.setdefault(str(receipt.get("run")), {**told, "first": number, "last": number})
        run["last"] = number

    @property
    def deleted_by_month(self) -> list[Body]:
        """Returns the months in which anything was deleted."""
        return [asdict(self.months[name]) for name in sorted(self.months)]

    @property
    def by_commit(self) -> list[Body]:
        """Returns the newest commits by the numbers of their receipts, the newest first."""
        newest = sorted(self.commits.values(), key=lambda it: -it.last)
        return [asdict(it) for it in newest[:MOST]]


def told_by_receipts(context: ArchiveContext) -> Told:
    """Returns what the receipts of a policy tell. Raises DamagedError where a file of old ones is not as it
    was written."""
    told = Told()
    for receipt, _ in chained(context.receipts, context.receipt_files):
        told.add(receipt)
    return told


_FACTS = ("buckets", "reason", "hold", "by", "commit", "into", "series", "since", "until", "first", "last")


def event_body(receipt: Document) -> Body:
    """Returns an event other than a delete as JSON: when, by whom, and what its receipt says of it."""
    who = {"number": receipt["sequence"], **{it: receipt.get(it) for it in ("kind", "at", "done_at")}}
    return {**who, **{it: receipt.get(it) for it in ("host", "user", *_FACTS)}}


def balance_of(context: ArchiveContext, told: Told) -> Balance:
    """Returns the balance."""
    evidence = archive_of(context).evidence
    copies, waiting = evidence.totals().buckets, evidence.still_live()
    restored = min(waiting, context.pins.count_and_next_end()[0])
    held, gone = copies - waiting, told.erased + told.ended
    deleted = removed_buckets(context.receipts)
    places = {"archived": 0, "online": 0, evidence.state: held}
    return Balance(
        archived=copies + gone,
        in_archive=places["archived"],
        online=places["online"],
        waiting=waiting - restored,
        restored=restored,
        erased=told.erased,
        ended=told.ended,
        deleted=deleted,
        difference=None if deleted is None else deleted - held - gone,
        live=context.source.collection.estimated_document_count(),
    )


def history_body(context: ArchiveContext, told: Told) -> Body:
    """Returns who did what and when, as JSON: from receipts, and proofs from the ledger of runs."""
    proofs = Ledger(context.database).last_of(context.policy.identity, _PROOFS, MOST)
    given = sorted(told.given.values(), key=lambda it: -it["last"])
    return {
        "events": told.events[::-1],
        "commits": told.by_commit,
        "commits_in_all": len(told.commits),
        "now_given": given[:MOST],
        "proofs": [*map(_proof_body, proofs)],
    }


def _proof_body(run: Run) -> Body:
    said = ("verb", "started", "ended", "outcome", "exit_code", "error", "host", "user")
    return {**{it: getattr(run, it) for it in said}, "counts": run.counts}
