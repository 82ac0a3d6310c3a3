"""When what an online archive holds of each UTC day was archived: a document per day among the receipts,
written in the transaction that writes the copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pymongo.client_session import ClientSession

from bucketwise.archivers.records.receipts import CODEC, Receipts
from bucketwise.archivers.writes import archived_source
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.config.policies import Policy

#: Kind of these documents.
ARCHIVED = "archived"


class ArchivedDays:
    """The days of one policy's online archive, and when the last of their buckets was archived."""

    def __init__(self, receipts: Receipts, policy: Policy) -> None:
        self._receipts = receipts
        self._policy = policy

    def note(self, buckets: Batch, now: datetime, session: ClientSession) -> None:
        """Records, in the transaction that archives them, that these buckets were archived at `now`."""
        self.note_days(self._days(buckets), now, session)

    def note_days(self, days: Iterable[int], now: datetime, session: ClientSession) -> None:
        """Records that something of these UTC days, since 1970, was archived at `now`."""
        updates = [
            self._receipts.update_of(archived_name(day), {"$set": _facts(day), "$max": {"newest": now}})
            for day in sorted(set(days))
        ]
        if updates:
            self._receipts.collection.bulk_write(updates, session=session)

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
        buckets was archived."""
        mine = {"_id.policy": self._receipts.policy, "kind": ARCHIVED, "last": {"$lt": as_date(end_ms)}}
        found = self._receipts.collection.with_options(codec_options=CODEC).find(mine, session=session)
        return {it["day"]: it["newest"] for it in found}

    def of(self, day: int) -> datetime | None:
        """Returns when the last bucket of a day was archived; None where no record tells."""
        found: dict[str, Any] = self._receipts.get(archived_name(day)) or {}
        return found.get("newest")


def _facts(day: int) -> dict[str, Any]:
    return {"kind": ARCHIVED, "day": day, "last": as_date(day * DAY_MS)}


def archived_name(day: int) -> str:
    """Returns the name of the record of a UTC day, since 1970."""
    return f"archived-{day}"
