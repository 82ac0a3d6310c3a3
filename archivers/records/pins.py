"""Pins: restored buckets that stay in the hot collection, until a time or until they are released.

One document a bucket in `bucketwise_pins`, written by the transaction that restores the bucket into the
source. It has the bucket's `_id`, and applies to either archive, and to the bucket's overflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import bson
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import ASCENDING, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.records.receipts import FIRST, Receipts, reading, shaped
from bucketwise.archivers.writes import MAX_BUCKETS, name_of, same_id
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_ms, as_text
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.config.tables import COLD
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.context import majority

COLLECTION = "bucketwise_pins"
Document = dict[str, Any]
#: Bytes of a fingerprint.
SIZE = 16


class Pin(NamedTuple):
    """A pin: why a restored bucket stays in its source, and the state in which it was last seen."""

    until: datetime | None  # from then on it counts no more; None: until it is released
    seen: bytes  # `fingerprint` of the bucket as its summaries were last known to hold it
    span: list[int]  # of its first and last reading then, milliseconds; empty where it broke its model
    archived: list[int]  # the same of its copies, which count again while the bucket is gone

    @property
    def reason(self) -> str:
        """Returns why the bucket stays."""
        if self.until is None:
            return "restored, and pinned: `bucketwise unpin` releases them"
        return f"restored, and pinned until {as_text(self.until)}"


def fingerprint(batch: Batch, index: int) -> bytes:
    """Returns a digest that shows whether a bucket has changed. No delete relies on it."""
    return hashlib.sha256(batch.unit(index)).digest()[:SIZE]


#: Before the end of any pin.
_ANY_TIME = datetime(1, 1, 1, tzinfo=UTC)


def restored(database: Database[Document], policy: Policy, batch: Batch) -> list[int]:
    """Returns which live buckets of a batch were restored, and are archived as well."""
    return list(Pins(database, policy, _ANY_TIME).of(batch))


class Pins:
    """The pins of one policy that are valid at `now`. They don't change during a run, since pinning takes the
    lease."""

    def __init__(self, database: Database[Document], policy: Policy, now: datetime) -> None:
        self._policy = policy
        self._now = now
        self._collection = database.get_collection(
            COLLECTION, codec_options=LOSSLESS, write_concern=majority(database)
        )
        low, high = ({"policy": policy.identity, "id": bound} for bound in (MinKey(), MaxKey()))
        self._mine: Document = {"_id": {"$gte": low, "$lte": high}}
        self._counting: Document = {"$or": [{"until": None}, {"until": {"$gt": now}}]}

    @cached_property
    def _any(self) -> bool:
        return self._collection.find_one(self._mine) is not None

    def of(self, batch: Batch) -> dict[int, Pin]:
        """Returns which buckets of a batch are pinned: index -> pin."""
        pins: dict[bytes, Pin] = {}
        for at in range(0, len(batch) if self._any else 0, MAX_BUCKETS):
            ids = [batch.main.decode_id(i) for i in range(at, min(at + MAX_BUCKETS, len(batch)))]
            for found in self._collection.find(self._named(ids) | self._counting):
                name = name_of(found["_id"]["id"])
                with reading(str(found["_id"]["id"]), COLLECTION):
                    spans = list(found["span"]), list(found["archived"])
                    pins[name] = Pin(found["until"], found["seen"], *spans)
        names = [same_id(raw_id) for raw_id in batch.main.raw_ids] if pins else []
        return {i: pins[name] for i, name in enumerate(names) if name in pins}

    def put(
        self, batch: Batch, until: datetime | None, session: ClientSession, copies: Batch | None = None
    ) -> None:
        """Pins the buckets of a batch; those that are pinned already take the new time. `copies`: all that
        the archive holds of each, where that is more."""
        # `seen` stays: summaries may hold a bucket that was changed, and changed back just now.
        archived = self._spans(batch if copies is None else copies)
        updates = [
            UpdateOne(
                name, {"$set": {"until": until, "archived": archived[i]}, "$setOnInsert": seen}, upsert=True
            )
            for i, (name, seen) in enumerate(self._seen(batch))
        ]
        if updates:
            self._collection.bulk_write(updates, session=session)

    def update_seen(self, batch: Batch, session: ClientSession) -> None:
        """Records the state in which summaries now hold these pinned buckets."""
        updates = [UpdateOne(name, {"$set": seen}) for name, seen in self._seen(batch)]
        self._collection.bulk_write(updates, session=session)

    def release(self, ids: Sequence[Any], session: ClientSession) -> int:
        """Returns how many were pinned."""
        return self._collection.delete_many(self._named(ids), session=session).deleted_count

    def forget(self) -> None:
        """Removes expired pins. They have no effect any more, so this needs no transaction."""
        if self._any:
            self._collection.delete_many({**self._mine, "until": {"$lte": self._now}})

    def pages(self) -> Iterator[list[Any]]:
        """Yields the `_id`s of all pinned buckets, some at a time."""
        found = self._collection.find(self._mine | self._counting, {"_id": 1}).sort("_id", ASCENDING)
        ids = (document["_id"]["id"] for document in found)
        while page := list(islice(ids, MAX_BUCKETS)):
            yield page

    def count_and_next_end(self) -> tuple[int, datetime | None]:
        """Returns how many buckets are pinned, and when the first pin ends; None: none ends by itself."""
        count = self._collection.count_documents(self._mine | self._counting)
        ends = self._collection.find({**self._mine, "until": {"$gt": self._now}})
        first = next(iter(ends.sort("until", ASCENDING).limit(1)), None)
        return count, None if first is None else first["until"]

    def _seen(self, batch: Batch) -> Iterator[tuple[Document, Document]]:
        for i, span in enumerate(self._spans(batch)):
            name = {"_id": self._identity(batch.main.decode_id(i))}
            yield name, {"seen": fingerprint(batch, i), "span": span}

    def _spans(self, batch: Batch) -> list[list[int]]:
        decoded = decode(batch, self._policy)
        spans: dict[int, list[int]] = dict(zip(decoded.units.tolist(), decoded.spans().tolist(), strict=True))
        return [spans.get(i, []) for i in range(len(batch))]

    def _named(self, ids: Sequence[Any]) -> Document:
        return {"_id": {"$in": [self._identity(it) for it in ids]}}

    def _identity(self, identity: Any) -> Document:
        return {"policy": self._policy.identity, "id": identity}


class CommitDays:
    """Finds commits of one policy by the day on which they begin."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def to_compact(self, first: int, last: int, committed_by: datetime | None) -> list[int]:
        """Returns the days, from the first to the last, on which commits begin that no compaction has looked
        at, and that were made by an instant; None: on which any begin."""
        query: Document = {**self._receipts.is_current, "first_day": {"$gte": first, "$lte": last}}
        if committed_by is not None:
            query |= {"compacted": False, "committed": {"$lte": committed_by}}
        found = self._receipts.collection.aggregate([{"$match": query}, {"$group": {"_id": "$first_day"}}])
        return sorted(int(it["_id"]) for it in found)

    def commits_of(self, day: int) -> list[Document]:
        """Returns the receipts of current commits that begin on a UTC day."""
        query = {**self._receipts.is_current, "first_day": day}
        found = self._receipts.collection.find(query, {"live": 0, "parts": 0})
        return [shaped(it, left_out=frozenset({"live", "parts"})) for it in found]

    def note_compacted(self, names: Sequence[str]) -> None:
        """Records that a compaction has looked at these commits, and left them as they are."""
        named = {"_id": {"$in": [self._receipts.identity(name) for name in names]}}
        self._receipts.collection.update_many(named, {"$set": {"compacted": True}})

    def drilled(self, not_since: datetime | None = None) -> dict[int, datetime | None]:
        """Returns the UTC days on which current commits begin, each with its oldest drill; None where one of
        its commits was never drilled. Days with cold commits are left out. `not_since`: only of commits that
        were made before an instant, and not
        drilled since then."""
        query = self._receipts.is_current
        if not_since is not None:
            query |= {"committed": {"$lt": not_since}, "drilled": {"$not": {"$gte": not_since}}}
        oldest = {"$min": {"$ifNull": ["$drilled", bson.MinKey()]}}
        cold = {"$max": {"$in": [f"$stored.{FIRST}", list(COLD)]}}
        group = {"$group": {"_id": "$first_day", "oldest": oldest, "cold": cold}}
        found = self._receipts.collection.aggregate([{"$match": query}, group, {"$match": {"cold": False}}])
        return {int(it["_id"]): it["oldest"] if isinstance(it["oldest"], datetime) else None for it in found}

    def note_drilled(self, names: Sequence[str], now: datetime) -> None:
        """Records that these commits were restored and compared."""
        named = {"_id": {"$in": [self._receipts.identity(name) for name in names]}}
        self._receipts.collection.update_many(named, {"$set": {"drilled": now}})


#: Kind of the document that tells when a day was drilled.
DRILLED = "drilled"


def days_of(archived: Source) -> Iterator[int]:
    """Yields the UTC days, since 1970, on which archived buckets end by their fields."""
    at = archived.earliest_ending(FIRST_MS)
    while at is not None:
        yield (day := at // DAY_MS)
        at = archived.earliest_ending((day + 1) * DAY_MS)
        at = None if at is None else max(at, (day + 1) * DAY_MS)


class DrilledDays:
    """The days of one policy's online archive, and their drills."""

    def __init__(self, receipts: Receipts, archived: Source) -> None:
        self._receipts = receipts
        self._archived = archived

    def all(self) -> dict[int, datetime | None]:
        """Returns the days of the archive, each with its last drill; None where there was none."""
        mine = {"_id.policy": self._receipts.policy, "kind": DRILLED}
        known = {it["day"]: it["drilled"] for it in self._receipts.collection.find(mine)}
        return {day: known.get(day) for day in days_of(self._archived)}

    def due(self, since: datetime) -> dict[int, datetime | None]:
        """Returns the days of which something left its source before an instant, and that were not drilled
        since then; each with its last drill."""
        query = {"_id.policy": self._receipts.policy, "kind": "delete", "ids": {"$exists": True}}
        old = self._receipts.collection.find({**query, "at": {"$lt": since}}, {"first": 1, "last": 1})
        spans = Spans((as_ms(it["first"]), as_ms(it["last"]) + 1) for it in old)
        known = ((day, at) for day, at in self.all().items() if at is None or at < since)
        return {day: at for day, at in known if spans.touch(day * DAY_MS, (day + 1) * DAY_MS)}

    def note(self, day: int, now: datetime) -> None:
        """Records that a day was restored and compared."""
        facts = {"kind": DRILLED, "day": day, "drilled": now}
        self._receipts.update(f"drilled-{day}", {"$set": facts})
