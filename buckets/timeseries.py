"""The `timeseries` model: MongoDB's native time-series collection, read through its view.

The view gives one document a measurement, so it is decoded as the `reading` model is. What differs is
what can't be done there: such collections take no part in transactions and know no unique `_id`, so
that a guarded delete isn't possible and bucketwise never deletes from them.
"""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from buckets.bsontypes import elements
from buckets.reading import shape

__all__ = ["KEPT", "made_with", "measurement", "shape"]

#: Why buckets of a native time-series collection stay after they were exported.
KEPT = (
    "a native time-series collection takes no part in transactions, so nothing is deleted from it: "
    "expired readings are exported and kept (its own expireAfterSeconds can drop them)"
)


def made_with(database: Database[dict[str, Any]], collection: str) -> dict[str, str] | None:
    """The options of a native time-series collection; None where it is none, or not there."""
    for info in database.list_collections(filter={"name": collection, "type": "timeseries"}):
        options = info["options"]["timeseries"]
        return {key: options[key] for key in ("timeField", "metaField", "granularity") if key in options}
    return None


def measurement(document: bytes) -> bytes:
    """The same for the same measurement: the server gives its fields in any order, another one after each
    insert or restore."""
    return b"".join(sorted(document[start:end] for start, _, end in elements(document)))
