"""What an online archive tells, from its documents and receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.online import tombstone_name, tombstones_of
from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.kinds.evidence import (
    ArchivedRows,
    ArchivedState,
    ArchivedTotals,
    Copy,
    Event,
    Grid,
    Located,
    Span,
    Tally,
    covering,
)
from bucketwise.archivers.reading.online import OnlineReader
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.deletions import KEPT, unpacked_names
from bucketwise.archivers.records.receipts import CODEC
from bucketwise.archivers.versions.history import History, OnlineHistories, one_of
from bucketwise.archivers.writes import archived_source, holds_any, same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms
from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold


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

    def samples(self) -> Iterator[Batch]:
        """Yields a random sample."""
        yield sample(self._source())

    def find(self, identity: Any, at_ms: int | None) -> Located | None:
        """Returns the bucket with this `_id`; None where there is none."""
        del at_ms
        found = (it for it in self._sound(self._source().by_ids([identity])) if len(it))
        return next((Located(self._policy, one_of(it, 0)) for it in found), None)

    def covering(self, at_ms: int, selector: Selector) -> Iterator[Located]:
        """Yields the buckets that cover an instant."""
        query = selector_query(self._policy, selector)
        batches = self._sound(self._source().batches(at_ms, at_ms + 1, query))
        return covering(self._policy, batches, at_ms, selector)

    def copies(self, buckets: Batch, policy: Policy, live: Iterable[bytes]) -> dict[bytes, list[Copy]]:
        """Returns the versions beside the archive, and what they are merged to, which comes last."""
        del live
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

    def expires_with(self, copy: Copy, last_ms: int) -> tuple[int, str]:
        """Returns the UTC day of the bucket's last reading."""
        del copy
        return last_ms, tombstone_name(last_ms // DAY_MS)

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
        if (rule := RetentionRule.of(self._policy, self._context.now)) is None:
            return {}
        found = tombstones_of(self._receipts, session)
        due_days = ((it["day"], rule.due(it["tombstone"])) for it in found)
        return {day: due for day, due in due_days if due is not None}


def _copies(history: History, waiting: dict[bytes, datetime]) -> Iterator[Copy]:
    merged = history.merged
    for version in history.versions:
        raw_id = version.bucket.main.raw_id(0)
        yield Copy(version, raw_id in waiting, waiting.get(raw_id))
    if merged is not None and merged.unit(0) != history.last.bucket.unit(0):
        yield Copy(history.last._replace(bucket=merged), may_be_live=False, copied=None)
