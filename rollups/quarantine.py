"""Quarantined buckets, remembered in `bucketwise_quarantine` until they are sound or gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import bson
import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.write_concern import WriteConcern

from buckets.columns import Quarantined
from buckets.decode import decode
from buckets.source import Source
from buckets.times import DAY_MS
from config.policies import Policy
from rollups.due import Span

Document = dict[str, Any]
COLLECTION = "bucketwise_quarantine"
_CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_AT_ONCE = 500
#: So many are reported one by one; the rest is counted.
MAX_DETAILS = 1000


class Quarantine:
    """What one run finds broken. Each bucket counts once, however often it is met."""

    def __init__(self, database: Database[Document], policy: Policy, now: datetime, *, dry_run: bool) -> None:
        self.details: list[Quarantined] = []
        self._policy = policy
        self._now = now
        self._dry_run = dry_run
        self._met: set[int] = set()  # hashes: a few bytes a bucket, however many are broken
        self._collection = database.get_collection(
            COLLECTION, codec_options=_CODEC, write_concern=WriteConcern("majority")
        )

    @property
    def total(self) -> int:
        return len(self._met)

    def add(self, found: Iterable[Quarantined]) -> None:
        """Reports and records them."""
        new = [bucket for bucket in found if self._is_new(bucket)]
        self.details += new[: MAX_DETAILS - len(self.details)]
        if new and not self._dry_run:
            self._collection.bulk_write([self._record(bucket) for bucket in new], ordered=False)

    def recheck(self, source: Source) -> set[Span]:
        """Reads again what is recorded. What is still broken is added; of what is sound now, the UTC days of
        its readings, which want rolling up."""
        days: set[int] = set()
        recorded = self._recorded()
        while ids := list(islice(recorded, _AT_ONCE)):
            for batch in source.by_ids(ids):
                decoded = decode(batch, self._policy)
                self.add(decoded.quarantined)
                days |= set(np.unique(decoded.columns.time // DAY_MS).tolist())
        return {(day * DAY_MS, (day + 1) * DAY_MS) for day in days}

    def forget(self) -> None:
        """Drops what this run, which rechecked all, did not find broken. A run cut off before leaves the
        records, so that the next one rolls up the same days."""
        if self._dry_run:
            return
        name = self._policy.name
        healed = (identity for identity in self._recorded() if _key(identity) not in self._met)
        while ids := list(islice(healed, _AT_ONCE)):
            self._collection.delete_many({"_id": {"$in": [{"policy": name, "id": one} for one in ids]}})

    def _is_new(self, bucket: Quarantined) -> bool:
        before = len(self._met)
        self._met.add(_key(bucket.id))
        return len(self._met) > before

    def _record(self, bucket: Quarantined) -> UpdateOne:
        seen = {"field": bucket.field, "reason": bucket.reason, "last_seen": self._now}
        key = {"_id": {"policy": self._policy.name, "id": bucket.id}}
        return UpdateOne(key, {"$set": seen, "$setOnInsert": {"first_seen": self._now}}, upsert=True)

    def _recorded(self) -> Iterator[Any]:
        low, high = ({"policy": self._policy.name, "id": bound} for bound in (MinKey(), MaxKey()))
        mine = {"_id": {"$gte": low, "$lte": high}}
        for document in self._collection.find(mine, {"_id": 1}).sort("_id", 1):
            yield document["_id"]["id"]


def _key(identity: Any) -> int:
    return hash(bson.encode({"": identity}, codec_options=_CODEC))
