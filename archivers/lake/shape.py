"""The shape of an Iceberg table of parts: its columns, its partition, and the entry of each part.

All of it comes from manifests; no part is opened. An entry bounds only the column `time`. The others hold
what an erasure has to remove, and snapshots must not keep that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.format.names import EPOCH
from bucketwise.archivers.format.series import column_name
from bucketwise.archivers.lake.records import LakeError
from bucketwise.buckets.fields.times import as_ms

_TIME = "time"
_TYPES: dict[str, IcebergType] = {
    "int64": LongType(),
    "bool": BooleanType(),
    "double": DoubleType(),
    "string": StringType(),
}
Columns = dict[str, IcebergType]


def columns_of(manifest: Manifest) -> Columns:
    """Returns the columns of a commit's parts, by name."""
    series = {column_name(name): _TYPES[kind] for name, kind in manifest.series_types.items()}
    values = {column_name(name): DoubleType() for name in manifest.archived_policy.value_names}
    return {**series, _TIME: TimestamptzType(), **values}


def new_columns(known: Columns, manifests: Iterable[Manifest]) -> Columns:
    """Returns the columns of commits that a table lacks. Raises LakeError where a column has another type
    than the table: none of the types that parts have is one that Iceberg lets become another."""
    found: Columns = {}
    for manifest in manifests:
        for name, kind in columns_of(manifest).items():
            there = known.get(name) or found.setdefault(name, kind)
            if there != kind:
                raise LakeError(
                    f"column {name} is {there} in the table, and {kind} in the parts of commit "
                    f"{manifest.commit}: Iceberg can't convert one to the other. The table stays as it is. "
                    "Archive these buckets by a policy of another name, or drop the table and read the parts"
                )
    return found


def as_columns(schema: Schema) -> Columns:
    """Returns the columns of a table, by name."""
    return {field.name: field.field_type for field in schema.fields}


def schema_of(columns: Columns) -> Schema:
    """Returns the schema of a new table. All columns are optional: later parts may lack some."""
    named = enumerate(columns.items(), start=1)
    return Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in named))


def partition_of(schema: Schema) -> PartitionSpec:
    """Returns the partition: the UTC day of `time`. Its name must not be that of a column."""
    name = "time_day"
    while name in schema.column_names:
        name += "_"
    return PartitionSpec(PartitionField(schema.find_field(_TIME).field_id, 1000, DayTransform(), name))


def order_of(schema: Schema, first: Manifest) -> SortOrder:
    """Returns the order of rows in most parts: by series, then by time."""
    names = [*map(column_name, first.series_types), _TIME]
    return SortOrder(*(SortField(schema.find_field(it).field_id, IdentityTransform()) for it in names))


def files_of(manifest: Manifest, schema: Schema, root: str) -> Iterator[DataFile]:
    """Yields the entry of each part for a table. `root`: the URL of the store, with a `/` at its end."""
    time = schema.find_field(_TIME).field_id
    for part in manifest.parts:
        yield _file(part, time, root)


def _file(part: Part, time: int, root: str) -> DataFile:
    bounds: list[Any] = [to_bytes(TimestamptzType(), as_ms(it) * 1000) for it in (part.first, part.last)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=root + part.key,
        file_format=FileFormat.PARQUET,
        partition=Record(part.dt.toordinal() - EPOCH),
        record_count=part.rows,
        file_size_in_bytes=part.bytes,
        value_counts={time: part.rows},
        null_value_counts={time: 0},
        lower_bounds={time: bounds[0]},
        upper_bounds={time: bounds[1]},
    )
    file.spec_id = 0  # the only one
    return file
