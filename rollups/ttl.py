"""TTL indexes: MongoDB's own expiry knows nothing of archives, and must not be faster than they are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from pymongo.database import Database

from bucketwise.buckets.source import Source

Document = dict[str, Any]


class TtlRule(NamedTuple):
    """A rule by which MongoDB itself deletes documents, and after how long."""

    place: str
    after: timedelta


def rules(database: Database[Document], listed: Iterable[Document]) -> list[TtlRule]:
    """Returns the TTL indexes of collections as MongoDB lists them, and the expiry of native time-series
    collections."""
    found = []
    for info in listed:
        seconds = info.get("options", {}).get("expireAfterSeconds")
        if seconds is not None:
            found.append(TtlRule(f"{info['name']} (expireAfterSeconds)", timedelta(seconds=float(seconds))))
        if info["type"] == "view":
            continue
        for name, index in database[info["name"]].index_information().items():
            if "expireAfterSeconds" in index:
                after = timedelta(seconds=float(index["expireAfterSeconds"]))
                found.append(TtlRule(f"{info['name']}, index {name}", after))
    return found


def conflicts(source: Source) -> list[TtlRule]:
    """Returns the expiries that would delete a policy's buckets before they are archived."""
    archive = source.policy.archiving
    if archive is None:
        return []
    found = rules(source.collection.database, source.listed)
    return [expiry for expiry in found if archive.after is None or expiry.after <= archive.after]


def deletes_before_archive(source: Source) -> bool:
    """Returns whether MongoDB deletes raw data before it is archived. Such deletes do not count as changes of
    readings."""
    if source.policy.archiving is None:
        return bool(rules(source.collection.database, source.listed))
    return bool(conflicts(source))
