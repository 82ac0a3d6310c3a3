"""The `timeseries` model: MongoDB's native time-series collection, read through its view.

The view gives one document a measurement, so it is decoded as the `reading` model is. But such collections
take no part in transactions and know no unique `_id`. So a guarded delete isn't possible, and bucketwise
never deletes from them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from pymongo.database import Database

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.bson.types import elements
from bucketwise.buckets.fields.timeforms import TimeForm
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.buckets.models.model import Document
from bucketwise.buckets.models.reading import SingleModel
from bucketwise.buckets.models.shape import TargetNames, split
from bucketwise.config.models import TimeSeriesPolicy

_META = "meta"
#: The server turns a range of times into one of its own buckets' `_id`s, which begin with 32 bits of seconds.
#: A bound outside these instants (the first year is the longest that a bucket may be) makes it miss buckets.
_LOOKED_UP = as_ms(datetime(1972, 1, 1, tzinfo=UTC)), as_ms(datetime(2100, 1, 1, tzinfo=UTC))


class TimeSeriesModel(SingleModel[TimeSeriesPolicy]):
    """A measurement a document, of a native time-series collection."""

    name: ClassVar[str] = "timeseries"
    collection_type: ClassVar[str] = "timeseries"
    undeletable: ClassVar[str | None] = (
        "a native time-series collection takes no part in transactions, so nothing is deleted from it: "
        "expired readings are exported and kept (its own expireAfterSeconds can drop them)"
    )
    unstreamed: ClassVar[str | None] = TimeSeriesPolicy.UNSTREAMED
    keeps_ids_unique: ClassVar[bool] = False
    needs_index: ClassVar[bool] = False
    targets: ClassVar[tuple[str, ...]] = ("timeseries",)
    target_aliases: ClassVar[dict[str, str]] = {"native": "timeseries"}

    def range_query(self, form: TimeForm, start_ms: int, end_ms: int) -> Document:
        """Returns a query for every measurement in [start, end)."""
        return _between(self.first_field, start_ms, end_ms - 1)

    def time_queries(
        self, form: TimeForm, field: str, first_ms: int, last_ms: int, *, is_sound: bool = False
    ) -> list[Document]:
        """Returns the query for a time in a field: it is a date."""
        return [_between(field, first_ms, last_ms)]

    def units(self, batch: Batch) -> list[bytes]:
        """Returns the bytes of each measurement, whatever the order of its fields."""
        return list(map(self.unit, batch.main))

    def unit(self, document: bytes) -> bytes:
        """Returns the same bytes for equal measurements. The server may return their fields in any order, and
        in a different one after an insert or restore."""
        return b"".join(sorted(document[start:end] for start, _, end in elements(document)))

    def options_fault(self, options: Document) -> str | None:
        """Returns what is wrong if the collection's timeField is not the policy's."""
        actual = options["timeseries"]["timeField"]
        if actual == self.first_field:
            return None
        return f"its timeField is {actual}, and the policy says time_field = {self.first_field}"

    def made_with(self, granularity: str) -> Document:
        """Returns the options of a collection that is sorted by the first series field's outermost name."""
        options = {"timeField": self.first_field, "granularity": granularity}
        if self.policy.series_fields:
            options["metaField"] = split(self.policy.series_fields[0])[0]
        return {"timeseries": options}

    def held_in(self, collection: str) -> str:
        """Returns the collection of MongoDB's own buckets."""
        return f"system.buckets.{collection}"

    @property
    def shard_fields(self) -> list[str] | None:
        """Returns the fields of the metaField, and the timeField."""
        return [*self.policy.series_fields, self.first_field]

    @property
    def indexes(self) -> list[list[tuple[str, int]]]:
        """Returns the index by series and time: by time alone MongoDB finds measurements without one."""
        return super().indexes[:1]

    @classmethod
    def target_keys(cls, name: str, names: TargetNames, *, is_whole_minutes: bool) -> Document:
        """Returns the keys of a policy that reads the target. All series fields lie in one metaField."""
        outer = {split(it)[0] for it in names.series}
        keys: Document = {"time_field": names.time}
        if len(outer) > 1 or outer & {"_id", *(split(it)[0] for it in names.values)}:
            meta = names.free(_META, names.time)
            keys["series_fields"] = tuple(f"{meta}.{it}" for it in names.series)
        return keys


def _between(field: str, first_ms: int, last_ms: int) -> Document:
    """Returns a query for first <= field <= last. As a negation it is not turned into a range of `_id`s."""
    low, high = _LOOKED_UP
    query: Document = {"$and": [], "$nor": []}
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
