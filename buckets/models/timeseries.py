"""The `timeseries` model: MongoDB's native time-series collection, read through its view.

The view gives one document a measurement, so it is decoded as the `reading` model is. But such collections
take no part in transactions and know no unique `_id`. So a guarded delete isn't possible, and bucketwise
never deletes from them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pymongo.database import Database

from bucketwise.buckets.bson.types import elements
from bucketwise.buckets.fields.timeforms import TimeForm
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.buckets.models.reading import shape
from bucketwise.config.policies import Policy

__all__ = ["KEPT", "between", "measurement", "range_query", "shape", "timeseries_options"]

#: Why buckets of a native time-series collection stay after they were exported.
KEPT = (
    "a native time-series collection takes no part in transactions, so nothing is deleted from it: "
    "expired readings are exported and kept (its own expireAfterSeconds can drop them)"
)

#: The server turns a range of times into one of its own buckets' `_id`s, which begin with 32 bits of seconds.
#: A bound outside these instants (the first year is the longest that a bucket may be) makes it miss buckets.
_LOOKED_UP = as_ms(datetime(1972, 1, 1, tzinfo=UTC)), as_ms(datetime(2100, 1, 1, tzinfo=UTC))


def range_query(policy: Policy, _form: TimeForm, start_ms: int, end_ms: int) -> dict[str, Any]:
    """Returns a query for every measurement in [start, end)."""
    return between(str(policy.time_field), start_ms, end_ms - 1)


def between(field: str, first_ms: int, last_ms: int) -> dict[str, Any]:
    """Returns a query for first <= field <= last. As a negation it is not turned into a range of `_id`s."""
    low, high = _LOOKED_UP
    query: dict[str, Any] = {"$and": [], "$nor": []}
    for bound, inside, outside in ((first_ms, "$gte", "$lt"), (last_ms, "$lte", "$gt")):
        if low <= bound < high:
            query["$and"].append({field: {inside: as_date(bound)}})
        else:
            query["$nor"].append({field: {outside: as_date(bound)}})
    return {name: parts for name, parts in query.items() if parts}


def timeseries_options(database: Database[dict[str, Any]], collection: str) -> dict[str, str] | None:
    """Returns the options of a native time-series collection; None if it is not one, or does not exist."""
    for info in database.list_collections(filter={"name": collection, "type": "timeseries"}):
        options = info["options"]["timeseries"]
        return {key: options[key] for key in ("timeField", "metaField", "granularity") if key in options}
    return None


def measurement(document: bytes) -> bytes:
    """Returns the same bytes for equal measurements. The server may return their fields in any order,
    and in a different one after an insert or restore."""
    return b"".join(sorted(document[start:end] for start, _, end in elements(document)))
