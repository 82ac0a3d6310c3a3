"""Holds: what one covers is not destroyed while it stands, whatever the policy says.

One document per hold and policy in `bucketwise_holds`. Every path that destroys something reads them in its
transaction, and placing one conflicts with such a transaction: either sees the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.buckets.fields.selectors import Selector, summary_query
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, TimeRange, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.context import majority

COLLECTION = "bucketwise_holds"
Document = dict[str, Any]
_CODEC: CodecOptions[Document] = CodecOptions(tz_aware=True)


@dataclass(frozen=True)
class Hold:
    """A hold on the readings of some series in a range. Fields that `series` does not name may have any
    value. `freeze`: buckets don't move to the archive either. `salt`: 32 random bytes; they keep the series
    from being guessed by `digest`, which stays in the receipts when the hold is released."""

    name: str
    series: Selector
    within: TimeRange
    reason: str
    placed_at: datetime
    by: str
    freeze: bool
    salt: bytes

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Hold:
        """Returns the hold that a document of `bucketwise_holds` describes. Raises HaltedError where it is
        none: what it covers is not known."""
        name = document["_id"]["name"]
        try:
            for bound in ("since", "until"):
                _ = document[bound] and as_ms(document[bound])
            return cls(
                name,
                {str(it["field"]): str(it["value"]) for it in document["series"]},
                TimeRange(document["since"], document["until"]),
                str(document["reason"]),
                document["placed_at"],
                str(document["by"]),
                bool(document["freeze"]),
                bytes(document["salt"]),
            )
        except (KeyError, TypeError, AttributeError):
            raise HaltedError(
                f"{COLLECTION}, {name}: it does not have the form of a hold, so that what it covers is not "
                f"known. Nothing was changed. Restore {COLLECTION} from a backup, or place the hold again"
            ) from None

    @property
    def freeze_reason(self) -> str:
        """Returns why a bucket stays that it keeps from moving."""
        return f"held by {self.name}, which freezes: `bucketwise hold release {self.name}` lifts it"

    @property
    def body(self) -> Document:
        """Returns the fields of its document, without `_id`."""
        return {
            "series": [{"field": field, "value": text} for field, text in sorted(self.series.items())],
            "since": self.within.since,
            "until": self.within.until,
            "reason": self.reason,
            "placed_at": self.placed_at,
            "by": self.by,
            "freeze": self.freeze,
            "salt": self.salt,
        }

    @property
    def digest(self) -> str:
        """Returns the SHA-256 of its name and document, in hexadecimal."""
        return hashlib.sha256(bson.encode({"name": self.name, **self.body}, codec_options=_CODEC)).hexdigest()

    def selectors(self, names: Collection[str]) -> list[Selector]:
        """Returns selectors of the series that it covers, for a policy with these series fields. A field that
        the policy no longer has may have any value. A whole number is selected as it was given, and as series
        write it: 7 for 7.0."""
        known = {field: text for field, text in self.series.items() if field in names}
        texts = [dict.fromkeys((text, _as_stored(text))) for text in known.values()]
        return [dict(zip(known, it, strict=True)) for it in product(*texts)]

    def is_same(self, other: Hold) -> bool:
        """Returns whether both cover the same, for the same reason."""
        own = self.series, self.within, self.reason, self.freeze
        return own == (other.series, other.within, other.reason, other.freeze)

    def touches(self, start_ms: int, end_ms: int) -> bool:
        """Returns whether it covers any instant of [start, end)."""
        return self.within.start_ms < end_ms and start_ms < self.within.end_ms

    def may_cover(self, selector: Selector) -> bool:
        """Returns whether it may cover a series with these values. False only where both name a field, with
        different values."""
        return any(
            all(own.get(field, text) == text for field, text in selector.items())
            for own in self.selectors(self.series)
        )

    def summaries(self, names: Collection[str], reach: int) -> Document:
        """Returns the query for summaries that it covers, of a policy with these series fields. They may be a
        few more: values of other types with the same text. `reach`: as that of a level."""
        since, until = max(self.within.start_ms - reach, FIRST_MS), min(self.within.end_ms + reach, LAST_MS)
        span = {"start": {"$lt": DatetimeMS(until)}, "end": {"$gt": DatetimeMS(since)}}
        return {**span, **summary_query({field: it for field, it in self.series.items() if field in names})}


def _as_stored(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text


class Holds:
    """The holds on one policy."""

    def __init__(self, database: Database[Document], policy: str) -> None:
        self._policy = policy
        self._collection = database.get_collection(
            COLLECTION, codec_options=_CODEC, write_concern=majority(database)
        )

    def active(self, session: ClientSession | None = None, *, frozen: bool = False) -> list[Hold]:
        """Returns all holds by name. `frozen`: only those that freeze."""
        query: Document = {"_id.policy": self._policy, **({"freeze": True} if frozen else {})}
        found = self._collection.find(query, session=session).sort("_id.name", ASCENDING)
        return [Hold.of(it) for it in found]

    def put(self, hold: Hold, session: ClientSession) -> None:
        """Adds a hold. Raises DuplicateKeyError where one has its name."""
        self._collection.insert_one({"_id": self._identity(hold.name), **hold.body}, session=session)

    def remove(self, name: str, session: ClientSession) -> None:
        """Removes a hold."""
        self._collection.delete_one({"_id": self._identity(name)}, session=session)

    def _identity(self, name: str) -> Document:
        return {"policy": self._policy, "name": name}


def without_held(query: Document, holds: Iterable[Hold], names: Collection[str], reach: int) -> Document:
    """Returns a query for summaries, without those that any of these holds covers."""
    held = [it.summaries(names, reach) for it in holds]
    return {**query, "$nor": held} if held else query
