"""TTL indexes: MongoDB's own expiry knows nothing of archives, and must not be faster than they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from pymongo.database import Database

from config.policies import Policy

Document = dict[str, Any]


class Expiry(NamedTuple):
    """Where MongoDB deletes by itself, and after how long."""

    place: str
    after: timedelta


def expiries(database: Database[Document], collection: str) -> list[Expiry]:
    """TTL indexes of a collection, and the expiry of a native time-series collection."""
    found = []
    for info in database.list_collections(filter={"name": collection}):
        seconds = info.get("options", {}).get("expireAfterSeconds")
        if seconds is not None:
            found.append(Expiry(f"{collection} (expireAfterSeconds)", timedelta(seconds=float(seconds))))
        if info["type"] == "view":
            return found
    for name, index in database[collection].index_information().items():
        if "expireAfterSeconds" in index:
            after = timedelta(seconds=float(index["expireAfterSeconds"]))
            found.append(Expiry(f"{collection}, index {name}", after))
    return found


def conflicts(database: Database[Document], policy: Policy) -> list[Expiry]:
    """What would delete this policy's buckets before they are archived."""
    if policy.archive is None or policy.archive.to == "none":
        return []
    return _faster_than(database, policy, policy.archive.after)


def clears(database: Database[Document], policy: Policy) -> bool:
    """Whether MongoDB deletes raw data that is not archived by then: no change of the readings, to us."""
    archives = policy.archive is not None and policy.archive.to != "none"
    return bool(conflicts(database, policy) if archives else _faster_than(database, policy, None))


def _faster_than(database: Database[Document], policy: Policy, after: timedelta | None) -> list[Expiry]:
    return [
        expiry
        for name in policy.sources
        for expiry in expiries(database, name)
        if after is None or expiry.after <= after
    ]
