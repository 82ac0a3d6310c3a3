"""Evidence in an audit, as JSON: where each day is, how much data there is, and how it is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from pymongo.database import Database

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.coverage import CoverageQuery, Row, State, coverage_of
from bucketwise.archivers.format.chain import CheckpointRecord
from bucketwise.archivers.format.manifest import LastReceipt, Link
from bucketwise.archivers.format.names import day
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.markers import OWNER, Deployment
from bucketwise.archivers.records.deletions import last_receipt, removed_buckets
from bucketwise.archivers.records.heads import read_heads
from bucketwise.archivers.records.pins import CommitDays
from bucketwise.archivers.records.receipt_files import TIME, chained
from bucketwise.archivers.records.receipts import CODEC, Receipts, reading
from bucketwise.archivers.summary_counts import SUMMARIES
from bucketwise.archivers.worth import known_worth
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.ledger import LOOKS, Ledger, Run
from bucketwise.jobs.core.turn import hold_body
from bucketwise.jobs.output.bodies.proving import Balance
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.holds import Holds
from bucketwise.rollups.summaries import documents

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
        "proofs": [*map(_balance_proof_body, proofs)],
    }


def _balance_proof_body(run: Run) -> Body:
    said = ("verb", "started", "ended", "outcome", "exit_code", "error", "host", "user")
    return {**{it: getattr(run, it) for it in said}, "counts": run.counts}


T = TypeVar("T")


class Stretch(NamedTuple):
    """UTC days from first to last. `readings`: None where their number is not known exactly."""

    first: str
    last: str
    days: int
    state: State
    readings: int | None


@dataclass
class Volume:
    """Readings or summaries, and bytes. None: the number is not known exactly."""

    count: int | None = 0
    bytes: int = 0

    def add(self, count: int | None, size: int) -> None:
        """Adds a count and bytes. From a count of None on, the sum is None."""
        self.count = None if self.count is None or count is None else self.count + count
        self.bytes += size


@dataclass
class Month:
    """A month of readings, in UTC, and where they are. `summaries`: of windows that begin in it."""

    month: str  # 2018-06
    live: Volume = field(default_factory=Volume)
    archived: Volume = field(default_factory=Volume)
    online: Volume = field(default_factory=Volume)
    summaries: Volume = field(default_factory=Volume)


def runs(rows: Iterable[Row]) -> list[Stretch]:
    """Returns the runs of a coverage's days, which follow one another."""
    found = []
    for state, same in groupby(rows, lambda it: it.state):
        those = list(same)
        counts = [it.readings for it in those]
        known = [it for it in counts if it is not None]
        readings = sum(known) if len(known) == len(counts) else None
        found.append(Stretch(day(those[0].start), day(those[-1].start), len(those), state, readings))
    return found


def by_month(rows: Iterable[Row], summaries: Mapping[str, Volume]) -> list[Month]:
    """Returns the months in which there is anything."""
    found = {month: Month(month, summaries=volume) for month, volume in summaries.items()}
    for row in rows:
        month = found.setdefault(day(row.start)[:7], Month(day(row.start)[:7]))
        month.live.add(row.live, row.live_bytes)
        month.archived.add(row.archived, row.archived_bytes)
        month.online.add(row.online, row.online_bytes)
    return [it for _, it in sorted(found.items()) if it != Month(it.month)]


def summaries_by_month(database: Database[Document], policy: Policy) -> dict[str, Volume]:
    """Returns how many summaries of all levels there are. The server counts them."""
    found: dict[str, Volume] = {}
    month = {"$dateTrunc": {"date": "$start", "unit": "month"}}
    counted = {"count": {"$sum": 1}, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}
    stages = [{"$match": {**SUMMARIES, "start": {"$type": "date"}}}, {"$group": {"_id": month, **counted}}]
    for level in levels_of(policy):
        collection = database.get_collection(level.collection, codec_options=documents.OPTIONS)
        for it in collection.aggregate(stages):
            name = day(to_ms(it["_id"]))[:7]
            found.setdefault(name, Volume()).add(it["count"], int(it["bytes"]))
    return found


#: Kinds of the receipts of what people decided about an archive, each with a reason.
EVENTS = (TIME, "adopt", "retire")


class Ownership(NamedTuple):
    """Whose archive it is, as the database records it. `baseline`: it was there before that was
    recorded."""

    owner: str
    since: datetime
    baseline: bool
    lineage: int


class Attestation(NamedTuple):
    """The proof of an archive. `heads`, `checkpoint` and `receipt` as MongoDB records them. `last`: the last
    receipt itself; None where it lies in the store. `events`: receipts of what people decided about the
    archive. `key`: the id of the key that signs."""

    heads: tuple[Link, ...]
    checkpoint: CheckpointRecord | None
    receipt: LastReceipt | None
    last: Document | None
    events: list[Document]
    key: str | None
    days: int  # UTC days on which commits begin
    drilled: int  # days of which all commits were drilled
    oldest_drill: datetime | None  # of the drilled days
    last_drill: datetime | None
    ownership: Ownership | None  # None: nothing was archived yet


def attestation(context: ArchiveContext) -> Attestation:
    """Returns what MongoDB records of the archive. Reads nothing of the store."""
    heads = read_heads(context.receipts)
    drilled, last = CommitDays(context.receipts).drilled(), last_receipt(context.receipts)
    times = [it for it in drilled.values() if it is not None]
    return Attestation(
        heads.links if heads else (),
        heads.checkpoint if heads else None,
        last,
        next(context.receipts.numbered(last.sequence - 1, most=1), None) if last else None,
        _events(context.receipts),
        context.keys.first,
        len(drilled),
        len(times),
        min(times, default=None),
        max(times, default=None),
        _ownership(context),
    )


def _events(receipts: Receipts) -> list[Document]:
    query = {"_id.policy": receipts.policy, "kind": {"$in": list(EVENTS)}}
    return list(receipts.collection.with_options(codec_options=CODEC).find(query).sort("sequence"))


def _ownership(context: ArchiveContext) -> Ownership | None:
    receipts = context.receipts
    found = receipts.collection.with_options(codec_options=CODEC).find_one({"_id": receipts.identity(OWNER)})
    if found is None or "deployment" not in found:
        return None
    with reading(OWNER):
        return Ownership(
            Deployment.of(found["deployment"]).name,
            found["since"],
            found["baseline"],
            found.get("lineage", {}).get("done", 0),
        )


_VOLUMES = {"live": "readings", "archived": "readings", "online": "readings", "summaries": "count"}


def evidence_body(context: ArchiveContext) -> Body:
    """Returns the evidence of one policy as JSON. Values that can't be told, because the archive is not all
    there or the range is too long, are null; `untold` says why."""
    untold: list[str] = []

    def known(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except (HaltedError, UsageError) as error:  # damage is a finding already
            untold.append(str(error))
            return None

    rows = known(lambda: coverage_of(context, archive_of(context).evidence, CoverageQuery()))
    told = known(lambda: told_by_receipts(context))
    worth = known_worth(context)
    summaries = summaries_by_month(context.database, context.policy)
    return {
        "coverage": None if rows is None else _coverage_body(rows),
        "months": None if rows is None else [_month_body(it) for it in by_month(rows, summaries)],
        "balance": None if told is None else balance_of(context, told),
        "worth": None if worth is None else worth.body,
        "deleted_by_month": None if told is None else told.deleted_by_month,
        "history": None if told is None else history_body(context, told),
        "holds": [hold_body(it) for it in Holds(context.database, context.policy.identity).active()],
        "proof": _proof_body(context),
        "untold": untold,
    }


def _coverage_body(rows: list[Row]) -> Body:
    states = Counter(row.state for row in rows)
    return {"states": dict(states), "runs": [it._asdict() for it in runs(rows)]}


def _month_body(month: Month) -> Body:
    return {"month": month.month, **{it: _volume_body(getattr(month, it), _VOLUMES[it]) for it in _VOLUMES}}


def _volume_body(volume: Volume, what: str) -> Body:
    return {what: volume.count, "bytes": volume.bytes}


def _proof_body(context: ArchiveContext) -> Body:
    found = attestation(context)
    return {
        "heads": [it.model_dump() for it in found.heads],
        "checkpoint": found.checkpoint and found.checkpoint._asdict(),
        "receipt": found.receipt and found.receipt.model_dump() | _told(found.last or {}),
        "events": [{"kind": it["kind"], **_told(it), "reason": it.get("reason")} for it in found.events],
        "key": found.key,
        "ownership": found.ownership and found.ownership._asdict(),
        "drills": {
            "days": found.days,
            "drilled": found.drilled,
            "oldest": found.oldest_drill,
            "last": found.last_drill,
        },
    }


def _told(receipt: Body) -> Body:
    """Returns when a receipt was written, by both clocks, and by whom; null where it does not say."""
    return {key: receipt.get(key) for key in ("at", "done_at", "host", "user")}
