"""The erasure of a policy's series that has begun and has not ended: one document among the receipts.

It names the series only by a keyed hash. Its key is random, and goes with the document when the erasure has
ended. Counts are written in the transactions that erase, so that an erasure which was cut off continues them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.records.receipts import Receipts
from bucketwise.buckets.fields.times import TimeRange

NAME = "erasing"


class BegunErasure(NamedTuple):
    """An erasure that has begun. `hashed` is the hash of its text under `key`."""

    key: str
    hashed: str
    within: TimeRange
    reason: str
    at: datetime
    counts: Mapping[str, int]

    def is_of(self, text: str) -> bool:
        """Returns whether it was begun with this text."""
        return hmac.compare_digest(_hashed(self.key, text), self.hashed)


class Erasures:
    """The records of erasures of one policy."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def begun(self, session: ClientSession | None = None) -> BegunErasure | None:
        """Returns the erasure that has begun; None where none has."""
        found = self._receipts.get(NAME, session)
        if found is None:
            return None
        within = TimeRange(found["since"], found["until"])
        counts = {str(name): int(count) for name, count in found["counts"].items()}
        return BegunErasure(found["key"], found["series"], within, found["reason"], found["at"], counts)

    def begin(self, text: str, within: TimeRange, reason: str, now: datetime, session: ClientSession) -> None:
        """Records that an erasure begins, with a hash of its request."""
        key = secrets.token_hex(32)
        document = {
            "_id": self._receipts.identity(NAME),
            "kind": "erasing",
            "key": key,
            "series": _hashed(key, text),
            "since": within.since,
            "until": within.until,
            "reason": reason,
            "at": now,
            "counts": {},
        }
        self._receipts.collection.insert_one(document, session=session)

    def count(self, counts: Mapping[str, int], session: ClientSession) -> None:
        """Adds to the counts, in the transaction that erases."""
        added = {f"counts.{name}": count for name, count in counts.items() if count}
        if added:
            self._receipts.update(NAME, {"$inc": added}, session)

    def end(self, session: ClientSession) -> None:
        """Removes the record, and with it the key of the hash."""
        self._receipts.collection.delete_one({"_id": self._receipts.identity(NAME)}, session=session)


def _hashed(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()
