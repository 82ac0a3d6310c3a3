"""Quarantined buckets, remembered in `bucketwise_quarantine` until they are sound or gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import bson
import numpy as np
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.buckets.bson.raw import TOLERANT, Batch, without_uuid
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.context import majority

Document = dict[str, Any]
COLLECTION = "bucketwise_quarantine"
_BATCH_SIZE = 500
#: Buckets that are reported one by one; the rest are counted.
MAX_DETAILS = 1000
#: Buckets that a search leaves out by their `_id`s, at most.
MOST_NAMED = 100


class Quarantine:
    """The broken buckets of one run. Each counts once, however often it is met."""

    def __init__(self, database: Database[Document], policy: Policy, now: datetime) -> None:
        self.details: list[Quarantined] = []
        self._policy = policy
        self._now = now
        self._seen: set[int] = set()  # hashes: a few bytes a bucket, however many are broken
        self._may_heal = False
        # Raw: an `_id` that is a document must name the same bucket again.
        self._collection = database.get_collection(
            COLLECTION, codec_options=TOLERANT, write_concern=majority(database)
        )

    @property
    def total(self) -> int:
        """Returns how many different buckets were found broken."""
        return len(self._seen)

    def add(self, found: Iterable[Quarantined]) -> None:
        """Reports and records them."""
        new = [bucket for bucket in found if self._is_new(bucket)]
        self.details += new[: MAX_DETAILS - len(self.details)]
        if new:
            self._write(new)

    def recheck(self, source: Source, decoded: Callable[[Batch], Iterable[Decoded]]) -> set[Span]:
        """Reads again what is recorded, as columns of live buckets. What is still broken is added; of what is
        sound now, the UTC days of its readings, which want rolling up."""
        days: set[int] = set()
        spans: list[Span] = []  # spans of those that can't be looked up by their `_id`
        recorded = self.recorded()
        while records := list(islice(recorded, _BATCH_SIZE)):
            self._may_heal = True
            spans += [(it["span"][0], it["span"][1] + 1) for it in records if "span" in it]
            for batch in source.by_ids([it["_id"]["id"] for it in records]):
                for it in decoded(batch):
                    self.add(it.quarantined)
                    days |= set(np.unique(it.columns.time // DAY_MS).tolist())
        for start, end in Spans(spans).spans:
            for batch in source.batches(start, end):
                for it in decoded(batch):
                    self.add(it.quarantined)
        return {(day * DAY_MS, (day + 1) * DAY_MS) for day in days}

    def remove_healed(self) -> None:
        """Removes the records of buckets that this run, which rechecked all, did not find broken. A run that
        was cut off leaves them, so that the next one rolls up the same days."""
        if not self._may_heal:
            return
        name = self._policy.identity
        known = (document["_id"]["id"] for document in self.recorded())
        healed = (identity for identity in known if hash_of(identity) not in self._seen)
        while ids := list(islice(healed, _BATCH_SIZE)):
            self._collection.delete_many(
                {"_id": {"$in": [{"policy": name, "id": identity} for identity in ids]}}
            )

    def drop(self, ids: Sequence[Any], session: ClientSession) -> int:
        """Removes the records of these buckets, which are gone. Returns how many there were."""
        record_ids = [{"policy": self._policy.identity, "id": without_uuid(identity)} for identity in ids]
        return self._collection.delete_many({"_id": {"$in": record_ids}}, session=session).deleted_count

    def _is_new(self, bucket: Quarantined) -> bool:
        before = len(self._seen)
        self._seen.add(hash_of(_record_id(bucket)))
        return len(self._seen) > before

    def _write(self, new: list[Quarantined]) -> None:
        self._collection.bulk_write([self._record(bucket) for bucket in new], ordered=False)

    def _record(self, bucket: Quarantined) -> UpdateOne:
        fields = {"field": bucket.field, "reason": bucket.reason, "last_seen": self._now}
        span = {} if bucket.span is None else {"span": list(bucket.span)}
        key = {"_id": {"policy": self._policy.identity, "id": _record_id(bucket)}}
        return UpdateOne(key, {"$set": fields | span, "$setOnInsert": {"first_seen": self._now}}, upsert=True)

    def recorded(self) -> Iterator[Document]:
        """Yields the records of this policy: `_id.id` is that of a bucket."""
        low, high = ({"policy": self._policy.identity, "id": bound} for bound in (MinKey(), MaxKey()))
        query = {"_id": {"$gte": low, "$lte": high}}
        # From the `_id` index alone, a NaN would come without its payload: `span` is not in it.
        return self._collection.find(query, {"_id": 1, "span": 1}).sort("_id", 1)


class UnrecordedQuarantine(Quarantine):
    """The broken buckets of a dry run: reported, and not recorded."""

    def remove_healed(self) -> None:
        """Leaves the records of earlier runs as they are."""

    def _write(self, new: list[Quarantined]) -> None:
        """Records nothing."""


def hash_of(identity: Any) -> int:
    """Returns 8 bytes that tell an `_id`, as it is read from a record, from others."""
    return hash(bson.encode({"": identity}, codec_options=TOLERANT))


def _record_id(bucket: Quarantined) -> Any:
    """Returns the `_id` of a record, as it is read back."""
    return without_uuid(bucket.name)
