"""When what an online archive holds of each UTC day was archived: a document per day among the receipts,
written in the transaction that writes the copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.receipt_files import seal_of
from bucketwise.archivers.records.receipts import CODEC, Receipts, reading, record_fault
from bucketwise.archivers.writes import archived_source
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Kind of these documents.
ARCHIVED = "archived"
_PREFIX = "archived-"


class ArchivedDays:
    """The days of one policy's online archive, and when the last of their buckets was archived."""

    def __init__(self, receipts: Receipts, policy: Policy) -> None:
        self._receipts = receipts
        self._policy = policy

    def note(self, buckets: Batch, now: datetime, session: ClientSession) -> None:
        """Records, in the transaction that archives them, that these buckets were archived at `now`."""
        self.note_days(self._days(buckets), now, session)

    def note_days(self, days: Iterable[int], now: datetime, session: ClientSession) -> None:
        """Records that something of these UTC days, since 1970, was archived at `now`. Raises DamagedError
        where a record of one is not as it was written."""
        wanted = {archived_name(day): day for day in sorted(set(days))}
        known = self._receipts.get_all(wanted, session) if wanted else {}
        updates = []
        for name, day in wanted.items():
            newest = max(now, self._newest_in(known[name])) if name in known else now
            updates.append(self._receipts.update_of(name, {"$set": self._record(day, newest)}))
        if updates:
            self._receipts.collection.bulk_write(updates, session=session)

    def _record(self, day: int, newest: datetime) -> Document:
        """Returns the record of a day, with the SHA-256 of all of it."""
        facts = {"kind": ARCHIVED, "day": day, "last": as_date(day * DAY_MS), "newest": newest}
        return {**facts, "sha256": seal_of({"_id": self._receipts.identity(archived_name(day)), **facts})}

    def _newest_in(self, record: Document) -> datetime:
        name = record["_id"]["name"]
        with reading(name):
            day, newest = int(name.removeprefix(_PREFIX)), record["newest"]
            wanted = self._record(day, newest)
        if {key: record.get(key) for key in wanted} != wanted:
            raise record_fault(name, "it does not match its own SHA-256")
        assert isinstance(newest, datetime)
        return newest

    def faults(self) -> Iterator[DamagedError]:
        """Yields an error for each record that is not as it was written."""
        for record in self._find({}):
            try:
                self._newest_in(record)
            except DamagedError as error:
                yield error

    def _days(self, buckets: Batch) -> Iterator[int]:
        """Yields the days on which buckets end, by their readings and as queries find them: where times are
        text, these need not be the same."""
        decoded = decode(buckets, self._policy)
        yield from (decoded.last // DAY_MS).tolist()
        source = archived_source(self._receipts.collection.database, self._policy)
        if source.model.own_times:
            yield from (source.time_of(document) // DAY_MS for document in buckets.main)

    def newest(self, end_ms: int, session: ClientSession | None = None) -> dict[int, datetime]:
        """Returns the days that begin before an instant (milliseconds), each with when the last of its
        buckets was archived. Raises DamagedError where a record is not as it was written."""
        found = self._find({"last": {"$lt": as_date(end_ms)}}, session)
        return {it["day"]: self._newest_in(it) for it in found}

    def of(self, day: int) -> datetime | None:
        """Returns when the last bucket of a day was archived; None where no record tells. Raises
        DamagedError where it is not as it was written."""
        found = self._receipts.get(archived_name(day))
        return None if found is None else self._newest_in(found)

    def _find(self, which: Document, session: ClientSession | None = None) -> Iterator[Document]:
        mine = {"_id.policy": self._receipts.policy, "kind": ARCHIVED, **which}
        yield from self._receipts.collection.with_options(codec_options=CODEC).find(mine, session=session)


def archived_name(day: int) -> str:
    """Returns the name of the record of a UTC day, since 1970."""
    return f"{_PREFIX}{day}"
