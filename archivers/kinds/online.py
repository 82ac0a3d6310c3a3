"""The online archive, collections of the same database: what it does, and what its documents tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext, ArchiveReport
from bucketwise.archivers.expiring.online import expire_online, tombstone_name, tombstones_of
from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRules
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import day, day_number
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.kinds.archive import WithoutCommits
from bucketwise.archivers.kinds.evidence import (
    ArchivedRows,
    ArchivedState,
    ArchivedTotals,
    Copy,
    Event,
    ExpiresWith,
    Grid,
    Located,
    Span,
    Stored,
    StoredSpan,
    Tally,
    covering,
)
from bucketwise.archivers.reading.archived import OnlineReader
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.deletions import KEPT, unpacked_names
from bucketwise.archivers.records.online_heads import ArchivedDays, OnlineHeads
from bucketwise.archivers.records.pins import DrilledDays, days_of
from bucketwise.archivers.records.receipts import CODEC
from bucketwise.archivers.versions.history import History, OnlineHistories, one_of
from bucketwise.archivers.worth import CollectionSize, size_of
from bucketwise.archivers.writes import archive_collections, archived_source, holds_any, same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_date, as_ms
from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold

if TYPE_CHECKING:
    from bucketwise.archivers.erasing.online import OnlineSeries
    from bucketwise.archivers.kinds.drill import DrilledDay
    from bucketwise.archivers.moving.archive import ArchiveOptions
    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.archivers.restoring.settle import RestoreReport
    from bucketwise.archivers.verifying.report import (
        HasTurn,
        IntactPiece,
        Piece,
        VerifiedRecords,
        VerifyReport,
    )


class OnlineEvidence:
    """The `Evidence` of an online archive."""

    state: ArchivedState = "online"

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._policy, self._receipts = context.policy, context.receipts

    def _source(self, session: ClientSession | None = None) -> Source:
        return archived_source(self._context.database, self._policy, session)

    def _sound(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        keys = self._context.keys.for_reading
        return CopyReceipts(self._context.database, self._policy, keys).sound(batches)

    def may_cover(self, hold: Hold) -> bool:
        """Returns whether a query for what the hold covers finds a bucket."""
        return holds_any(self._source(), hold)

    def totals(self) -> ArchivedTotals:
        """Returns the count of buckets. Nothing tells how many readings they hold."""
        return ArchivedTotals(self._source().count(), None, None)

    def still_live(self) -> int:
        """Returns how many buckets were copied and not deleted yet, as receipts tell."""
        mine = {"_id.policy": self._receipts.policy, "kind": "online", "state": "copied"}
        count: list[dict[str, Any]] = [
            {"$match": mine},
            {"$group": {"_id": None, "count": {"$sum": {"$size": "$ids"}}}},
        ]
        return next((int(it["count"]) for it in self._receipts.collection.aggregate(count)), 0)

    def stored(self, since_ms: int) -> Stored:
        """Returns the size of its collections. Copies of buckets that are live as well count among those that
        have left."""
        del since_ms  # what lies in it is one span
        names = [it for it in self._policy.archive_collections or () if it is not None]
        size, span = (
            CollectionSize.sum(size_of(self._context.database, it) for it in names),
            self._source().span(),
        )
        taken = size.data + size.indexes
        return Stored(taken, size.data, [] if span is None else [StoredSpan(*span, size.data, taken)])

    def samples(self) -> Iterator[Batch]:
        """Yields a random sample."""
        yield sample(self._source())

    def find(self, identity: Any, at_ms: int | None) -> Located | None:
        """Returns the bucket with this `_id`; None where there is none."""
        found = (it for it in self._sound(self._source().by_ids([identity])) if len(it))
        return next((Located(self._policy, one_of(it, 0)) for it in found), None)

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields the buckets that cover an instant."""
        query = selector_query(self._policy, selector)
        batches = self._sound(self._source().batches(at_ms, at_ms + 1, query))
        return covering(self._policy, batches, at_ms, selector)

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns the versions beside the archive, and what they are merged to, which comes last."""
        found = OnlineHistories(self._context.database, self._policy).of(buckets, policy, [])
        waiting = self._receipts.copied(buckets.main.ids)
        return {name: list(_copies(history, waiting)) for name, history in found.items()}

    def events(self, raw_id: bytes, copies: Sequence[Copy], span: Span) -> Iterator[Event]:
        """Yields when each version was copied that waits for its grace, and the deletes of originals."""
        for copy in copies:
            if copy.copied is not None and as_ms(copy.copied) > 0:  # restored ones are noted without a time
                detail = "superseded by a later version" if copy.version.is_superseded else None
                yield Event(copy.copied, "copied", detail=detail)
        if copies:
            yield from self._deleted(raw_id, span)

    def _deleted(self, raw_id: bytes, span: Span) -> Iterator[Event]:
        """Yields the deletes of an `_id` in receipts, of buckets of that time."""
        name = same_id(raw_id)
        around = {"first": {"$lte": as_date(span[1])}, "last": {"$gte": as_date(span[0])}}
        mine = {"_id.policy": self._receipts.policy, "kind": {"$in": ["delete", KEPT]}, **around}
        found = self._receipts.collection.with_options(codec_options=CODEC).find(mine).sort("_id")
        for it in found:
            if "ids" in it and name in unpacked_names(it["ids"]):
                sequence = it.get("sequence")
                yield Event(it.get("at"), "deleted", None, sequence and int(sequence), it.get("fence"))

    def expires_with(self, copy: Copy, last_ms: int) -> ExpiresWith:
        """Returns the UTC day of the bucket's last reading."""
        day, bucket = last_ms // DAY_MS, copy.version.bucket
        archived = ArchivedDays(self._receipts, self._policy).of(day)
        rules = RetentionRules(self._policy, self._context.now)
        (number,) = rules.of_buckets(decode(bucket, self._policy)) or [rules.longest(range(len(rules.rules)))]
        return ExpiresWith(last_ms, archived, tombstone_name(day, rules, number), number)

    def rows(self, grid: Grid, selector: Selector, session: ClientSession) -> ArchivedRows:
        """Returns the readings of buckets in the rows, and of those that are not live."""
        copied, gone = (Tally(grid, self._policy, selector) for _ in range(2))
        reader = OnlineReader(self._context.database, self._policy, session, self._context.keys)
        wanted = RowFilter(grid.start, grid.end, (selector,) if selector else ())
        for batch in reader.copies(wanted):
            copied.add(batch, decode(batch, self._policy))
            for some in reader.gone(batch, wanted):
                gone.add(some, decode(some, self._policy))
        return ArchivedRows((), copied, gone.readings, self._expires(session))

    def _expires(self, session: ClientSession) -> dict[int, datetime]:
        """Returns when the tombstones are due, by UTC day."""
        rules = [it for it in RetentionRules(self._policy, self._context.now).rules if it is not None]
        if not rules:
            return {}
        archived = ArchivedDays(self._receipts, self._policy).newest(max(it.end for it in rules), session)
        found: dict[int, datetime] = {}
        for it in tombstones_of(self._receipts, session):
            for rule in rules:  # a tombstone counts under the rule that it names
                due, day = rule.due(it["tombstone"], archived.get(it["day"])), it["day"]
                if due is not None:
                    found[day] = min(due, found.get(day, due))
        return found


def _copies(history: History, waiting: dict[bytes, datetime]) -> Iterator[Copy]:
    merged = history.merged
    for version in history.versions:
        raw_id = version.bucket.main.raw_id(0)
        yield Copy(version, raw_id in waiting, waiting.get(raw_id))
    if merged is not None and merged.unit(0) != history.last.bucket.unit(0):
        yield Copy(history.last._replace(bucket=merged), may_be_live=False, copied=None)


@dataclass(frozen=True)
class Online(WithoutCommits):
    """The `Archive` of collections. They lie in this database: `heads` counts their documents, and `verify`
    compares them with receipts, which alone vouch for them. Whatever they hold is adopted."""

    context: ArchiveContext

    def recover(self) -> None:
        """Makes the collections: a crash leaves nothing half done."""
        from bucketwise.archivers.moving.archive import recover
        from bucketwise.archivers.moving.online import OnlineRun

        recover(self.context, OnlineRun)

    def heads(self) -> list[Manifest]:
        """Verifies that the collections are those that were left. Returns no manifests."""
        from bucketwise.archivers.moving.archive import check_collections

        context = self.context
        check_collections(context.database, context.policy, context.keys, context.state.record)
        return []

    def needs_adoption(self) -> bool:
        """Returns whether the collections are not those that were left, or hold what no receipt names."""
        from bucketwise.archivers.verifying.online import unknown

        try:
            return bool(self.heads()) or next(unknown(self.context), None) is not None
        except HaltedError:
            return True

    def adopt(self) -> list[str]:
        """Records the collections as they are now, and what no receipt names. Returns no commits."""
        from bucketwise.archivers.verifying.online import adopt_unknown

        context = self.context
        OnlineHeads(context.database, context.policy).adopt(context.deletions, context.guard)
        adopt_unknown(context)
        return []

    def run(self, options: ArchiveOptions) -> ArchiveReport:
        """Moves the expired buckets."""
        from bucketwise.archivers.moving.archive import archive
        from bucketwise.archivers.moving.online import OnlineRun

        return archive(self.context, options, OnlineRun)

    def plan(self, options: ArchiveOptions) -> ArchiveReport:
        """Returns what `run` would do."""
        from bucketwise.archivers.moving.archive import plan_archive
        from bucketwise.archivers.moving.online import OnlineDryRun

        return plan_archive(self.context, options, OnlineDryRun)

    def expire(self) -> ExpiryReport:
        """Expires days."""
        return expire_online(self.context, writes=True)

    def plan_expiry(self) -> ExpiryReport:
        """Returns what `expire` would do."""
        return expire_online(self.context, writes=False)

    def verify(self, within: TimeRange = EVER) -> VerifyReport:
        """Compares documents with receipts."""
        from bucketwise.archivers.verifying.online import verify

        return verify(self.context, within)

    def verify_records(self, has_turn: HasTurn | None = None) -> VerifiedRecords:
        """Verifies heads, kept versions and receipts. Returns the days on which archived buckets end."""
        from bucketwise.archivers.verifying.online import verify_beside, verify_heads
        from bucketwise.archivers.verifying.report import (
            ArchivedDay,
            IntactPiece,
            VerifiedRecords,
            VerifyReport,
        )

        report = VerifyReport()
        verify_heads(self.context, report)
        is_damaged = bool(report.bad)
        verify_beside(self.context, report)
        source = self._source
        counts = ((it, source.count_ending(it * DAY_MS, (it + 1) * DAY_MS)) for it in days_of(source))
        days = [IntactPiece(ArchivedDay(day(it * DAY_MS)), count) for it, count in counts]
        heads = OnlineHeads(self.context.database, self.context.policy)
        return VerifiedRecords(report, days, [], is_damaged, None if is_damaged else heads.read().baseline)

    @property
    def _source(self) -> Source:
        return archived_source(self.context.database, self.context.policy)

    def verify_pieces(self, pieces: Sequence[Piece]) -> tuple[VerifyReport, list[IntactPiece]]:
        """Compares the documents of these days with their receipts. Returns the days that are undamaged."""
        from bucketwise.archivers.verifying.online import verify_range
        from bucketwise.archivers.verifying.report import IntactPiece, VerifyReport

        report, intact = VerifyReport(), list[IntactPiece]()
        for piece in pieces:
            damaged, parts = len(report.bad), report.parts
            start = day_number(piece.first) * DAY_MS
            within = TimeRange(as_date(start), as_date(start + DAY_MS))
            found = self._source.ending(within.start_ms, within.end_ms)
            verify_range(self.context, report, found, within, is_all=False)
            if len(report.bad) == damaged:
                intact.append(IntactPiece(piece, report.parts - parts))
        return report, intact

    def drilled(self, not_since: datetime) -> dict[int, datetime | None]:
        """Returns the days of what left its source before then, and was not drilled since."""
        return DrilledDays(self.context.receipts, self._source).due(not_since)

    @property
    def place(self) -> str:
        """Returns the collection."""
        return archive_collections(self.context.policy)[0]

    def drill(self, days: int, seed: int) -> list[DrilledDay]:
        """Restores the documents that end on some days."""
        from bucketwise.archivers.kinds.drill import drill_online

        return drill_online(self.context, days, seed)

    @property
    def evidence(self) -> OnlineEvidence:
        """Returns what documents and receipts tell."""
        return OnlineEvidence(self.context)

    @property
    def series(self) -> OnlineSeries:
        """Returns what erases series from the collections."""
        from bucketwise.archivers.erasing.online import OnlineSeries

        return OnlineSeries(self.context)

    def restore(self, options: RestoreOptions) -> RestoreReport:
        """Brings back what the collections hold."""
        from bucketwise.archivers.restoring.restore import OnlineCopies, restore

        return restore(self.context, options, OnlineCopies(self.context))
