"""The latest time by which the receipts of a policy say that anything was done.

It is kept beside the number of the last receipt, follows from the receipts, and is checked against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.faults import reading
from bucketwise.archivers.records.receipt_files import ReceiptFiles
from bucketwise.archivers.records.receipts import Receipts

Document = dict[str, Any]
#: The document with the number and the seal of the last receipt.
LAST = "last"
#: Kind of the receipts which say that later times were recorded by mistake.
TIME = "time"


class Recorded(NamedTuple):
    """What is recorded. `latest`: the latest `now` of any receipt since number `lifted`, which says that
    later times were a mistake; 0: there was none. `latest` is None where there are no receipts."""

    latest: datetime | None = None
    lifted: int = 0

    def after(self, kind: str, number: int, now: datetime) -> Recorded:
        """Returns what is recorded after a further receipt."""
        if kind == TIME:
            return Recorded(now, number)
        return Recorded(max(self.latest or now, now), self.lifted)

    def among(self, manifests: Sequence[Manifest]) -> datetime | None:
        """Returns the latest time of these receipts and manifests."""
        after = [(it.receipt.sequence if it.receipt else 0, it.created) for it in manifests]
        counting = [created for number, created in after if number >= self.lifted]
        return max([*counting, *([self.latest] if self.latest else [])], default=None)


def recorded(receipts: Receipts, session: ClientSession | None = None) -> Recorded:
    """Returns what is recorded."""
    return recorded_in(receipts, receipts.get(LAST, session), session)


def recorded_in(receipts: Receipts, last: Document | None, session: ClientSession | None = None) -> Recorded:
    """Returns what is recorded, as the document `LAST` of the receipts tells it; from all receipts where an
    earlier version has written it."""
    if last is None:
        return Recorded()
    if "latest" in last:
        with reading(LAST):
            return Recorded(_instant(last["latest"]), int(last["lifted"]))
    span = {"$gt": receipts.identity("delete-"), "$lt": receipts.identity("delete.")}
    group = {"$group": {"_id": None, "latest": {"$max": "$at"}}}
    found = receipts.collection.aggregate([{"$match": {"_id": span}}, group], session=session)
    times = [it["latest"] for it in found] + [it.until for it in ReceiptFiles(receipts, None).listed()]
    return Recorded(max((it for it in times if isinstance(it, datetime)), default=None))


def _instant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError
    return value
