"""Parquet files of the offline archive: parts (one row a reading), buckets files (what restore needs) and
states files (what late readings need)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.parquet import encryption

from bucketwise.archivers.format.series import RowFilter, as_read, as_written, column_name
from bucketwise.archivers.format.states import SectionStates
from bucketwise.archivers.stores.base import FileKeys
from bucketwise.archivers.stores.encrypted import PARQUET_MAGIC
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import series_text
from bucketwise.buckets.packing import PackedGroup, Rows

#: Options that decide on the bytes of a file, besides pyarrow's release and the contents.
WRITTEN_BY = f"pyarrow {pa.__version__} and numpy {np.__version__}"
#: Rows of a row group: a query for one series reads only the groups in which it may be.
ROW_GROUP = 250_000
_ZSTD_LEVEL = 4  # a sixth smaller than 1 where values are ticks, in a tenth more time
#: Columns with fewer distinct values than this share of their rows are written as a dictionary.
_DICTIONARY_SHARE = 0.25
_SAMPLE = 20_000
#: Rows that are encoded at once. With Arrow's default of 1024, it looks up the texts for each thousand.
_WRITE_BATCH = 1 << 14
#: List columns of fewer bytes are not compressed: as differences they are small, and compressing and reading
#: them takes longer than all else that is done for them.
_SHORT_BYTES = 1 << 16
#: The type that Iceberg's specification has for instants in Parquet.
_TIME = pa.timestamp("us", tz="UTC")
_LIST_COLUMNS = ("units", "order", "rows", "hole", "width", "source", "reading", "field", "flag")
#: The types of those that a `PackedGroup` has otherwise than as 32-bit integers.
_OTHER_TYPES: dict[str, type[np.integer]] = {"rows": np.int64, "source": np.int8, "field": np.int16}


def as_table(rows: Rows, span: slice, types: dict[str, str], *, coded: bool = False) -> pa.Table:
    """Returns readings as the columns of a part; `coded`: texts as numbers into a dictionary. Series and
    times are never null, and the schema says so: definition levels would take time to write and to read."""
    arrays: dict[str, pa.Array] = {}
    indices = _arrow(rows.row_series[span], pa.int32())
    written = [as_written(series, types) for series in rows.series]
    for position, (field, kind) in enumerate(types.items()):
        values = pa.array([series[position] for series in written], type=arrow_type(kind))
        if coded and kind == "string":  # each text once: else they are written one by one after all
            each = values.dictionary_encode()
            of_texts = _taken(each.indices, indices)
            found = pa.DictionaryArray.from_arrays(of_texts, each.dictionary, safe=False)
        else:
            found = _taken(values, indices)
        arrays[column_name(field)] = found
    arrays["time"] = _arrow(rows.time[span] * 1000, _TIME)
    for name, column in rows.values.items():
        there = rows.present[name][span]
        arrays[column_name(name)] = (
            _arrow(column[span], pa.float64()) if there.all() else pa.array(column[span], mask=~there)
        )
    arrays |= {name: pa.array(column[span]) for name, column in rows.marks.items()}
    may_lack = {column_name(name) for name in rows.values}
    fields = [pa.field(name, array.type, nullable=name in may_lack) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def write_part(rows: Rows, span: slice, types: dict[str, str], keys: FileKeys | None = None) -> bytes:
    """Returns a Parquet file with the rows of one UTC day, encrypted where `keys` wrap its key."""
    columns = as_table(rows, span, types, coded=True)
    # Plain ints take no more where each row repeats the one before it, and less where they don't repeat.
    dictionary = [column_name(field) for field, kind in types.items() if kind != "int64"]
    # Noisy values stay plain: Spark's vectorized reader does not know BYTE_STREAM_SPLIT.
    dictionary += [column_name(name) for name, column in rows.values.items() if _repeats(column[span])]
    order = [(column_name(field), "ascending") for field in types] + [("time", "ascending")]
    written = [as_written(series, types) for series in rows.series]
    ordered = all(low < high for low, high in itertools.pairwise(written))  # not where 9 and "10" are texts
    return _written(
        columns,
        keys,
        row_group_size=ROW_GROUP,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=dictionary,
        column_encoding={"time": "DELTA_BINARY_PACKED"},
        write_batch_size=_WRITE_BATCH,
        write_page_index=True,
        store_schema=False,  # texts are texts to who reads them, however they were given here
        sorting_columns=pq.SortingColumn.from_ordering(columns.schema, order) if ordered else None,
    )


def _taken(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Returns values by indices that are known to be in range: checking them takes longer than taking
    them."""
    return pc.take(values, indices, boundscheck=False)


def _arrow(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Returns values as an Arrow array without nulls. (`pa.array` imports numpy's masked arrays first.)"""
    data = np.ascontiguousarray(
        values, dtype="f8" if pa.types.is_floating(kind) else f"i{kind.bit_width // 8}"
    )
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


def arrow_type(kind: str) -> pa.DataType:
    """Returns the type of a series column by its name."""
    return {"int64": pa.int64(), "bool": pa.bool_(), "double": pa.float64(), "string": pa.string()}[kind]


def _repeats(values: NDArray[np.float64]) -> bool:
    """Returns whether a dictionary serves better than the plain bytes: prices of few decimals, states."""
    sample = _arrow(values[:: max(1, len(values) // _SAMPLE)], pa.float64())
    distinct: int = pc.count_distinct(sample).as_py()
    return distinct <= _DICTIONARY_SHARE * len(sample)


def read_part(
    data: bytes, value_fields: Sequence[str], keys: FileKeys | None = None
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Returns the times (milliseconds) and values (NaN where there is none) of a part. Raises pyarrow's
    errors where a page's checksum is wrong."""
    columns = ["time", *(column_name(name) for name in value_fields)]
    table = opened(data, keys).read(columns=columns, use_threads=False)
    if set(table.column_names) != set(columns) or table["time"].null_count:
        raise pa.ArrowInvalid("a part lacks a column, or times")
    values = [np.asarray(table[name].to_numpy(), dtype=np.float64) for name in columns[1:]]  # a null is NaN
    return as_ms(table["time"]), values


def as_ms(times: pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns the times of a part in milliseconds since 1970."""
    return np.asarray(times.cast(pa.int64()).to_numpy() // 1000, dtype=np.int64)


def _written(table: pa.Table, keys: FileKeys | None, **how: Any) -> bytes:
    sink = pa.BufferOutputStream()
    if keys is not None:
        how["encryption_properties"] = _crypto(keys).file_encryption_properties(_CONNECTION, _encryption())
    pq.write_table(table, sink, write_page_checksum=True, **how)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def opened(data: bytes, keys: FileKeys | None) -> pq.ParquetFile:
    """Returns a file that is open, to be read in this thread alone: others of the process work on the next
    commit. Raises pyarrow's errors where it is none, or is encrypted and there are no keys."""
    how: dict[str, Any] = {}
    if data.startswith(PARQUET_MAGIC) and keys is not None:
        how["decryption_properties"] = _crypto(keys).file_decryption_properties(_CONNECTION)
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False, **how)


_CONNECTION = encryption.KmsConnectionConfig()


def _encryption() -> encryption.EncryptionConfiguration:
    """Returns how files are encrypted: footer and columns under one key, since DuckDB takes one."""
    return encryption.EncryptionConfiguration(
        footer_key="bucketwise", uniform_encryption=True, double_wrapping=False, data_key_length_bits=256
    )


def _crypto(keys: FileKeys) -> encryption.CryptoFactory:
    """Returns what encrypts one file: Arrow makes the key, and `keys` wrap it."""

    class Wrapping(encryption.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, _name: str) -> str:
            return keys.wrap(key)

        def unwrap_key(self, wrapped: str, _name: str) -> bytes:
            return keys.unwrap(wrapped)

    return encryption.CryptoFactory(lambda _connection: Wrapping())


_GROUP_SCHEMA = pa.schema(
    [
        ("overflow", pa.bool_()),
        ("readings", pa.int32()),
        ("skeleton", pa.large_binary()),
        ("residue", pa.large_binary()),
        ("present", pa.large_binary()),
        ("held", pa.large_binary()),
        *((name, pa.large_list(pa.int32())) for name in _LIST_COLUMNS),
    ]
)


def write_buckets(groups: Sequence[PackedGroup], keys: FileKeys | None = None) -> bytes:
    """Returns a Parquet file with one row a group, encrypted where `keys` wrap its key; see
    docs/archive-format.md."""
    columns = {name: [getattr(group, name) for group in groups] for name in _GROUP_SCHEMA.names}
    for name in _LIST_COLUMNS:
        columns[name] = [it.ravel().astype(np.int32, copy=False) for it in columns[name]]
    table = pa.table(columns, schema=_GROUP_SCHEMA)
    leaves = {name: f"{name}.list.element" for name in _LIST_COLUMNS}
    short = [name for name in _LIST_COLUMNS if table[name].nbytes < _SHORT_BYTES]
    return _written(
        table,
        keys,
        compression={
            leaves.get(name, name): "none" if name in short else "zstd" for name in table.column_names
        },
        row_group_size=256,
        use_dictionary=False,
        column_encoding=dict.fromkeys(leaves.values(), "DELTA_BINARY_PACKED"),
        write_statistics=False,  # no query selects a group by its contents
    )


def read_buckets(data: bytes, keys: FileKeys | None = None) -> list[PackedGroup]:
    """Returns the groups of a buckets file. Raises pyarrow's errors where it is none."""
    table = opened(data, keys).read(use_threads=False)
    if not set(_GROUP_SCHEMA.names) <= set(table.column_names):
        raise pa.ArrowInvalid("a buckets file lacks a column")
    table = table.select(_GROUP_SCHEMA.names).cast(_GROUP_SCHEMA)
    columns = {name: table[name].combine_chunks() for name in _GROUP_SCHEMA.names}
    if any(
        it.null_count or (pa.types.is_large_list(it.type) and it.values.null_count) for it in columns.values()
    ):
        raise pa.ArrowInvalid("a buckets file has nulls")
    groups = []
    for i in range(table.num_rows):
        lists = {name: columns[name][i].values.to_numpy() for name in _LIST_COLUMNS}
        lists |= {name: lists[name].astype(kind) for name, kind in _OTHER_TYPES.items()}
        others = {name: columns[name][i].as_py() for name in columns.keys() - lists.keys()}
        if len(lists["rows"]) != len(lists["units"]):
            if len(lists["rows"]) != len(lists["units"]) * others["readings"]:
                raise pa.ArrowInvalid("a buckets file has other rows than readings")
            lists["rows"] = lists["rows"].reshape(len(lists["units"]), others["readings"])
        groups.append(PackedGroup(**lists, **others))
    return groups


_STATES_SCHEMA = pa.schema([("settings", pa.string()), ("summaries", pa.large_binary())])


def write_states(states: SectionStates, keys: FileKeys | None = None) -> bytes:
    """Returns a Parquet file of one row, encrypted where `keys` wrap its key."""
    table = pa.Table.from_pylist([states._asdict()], _STATES_SCHEMA)
    return _written(table, keys, compression="zstd", use_dictionary=False, write_statistics=False)


def read_states(data: bytes, keys: FileKeys | None = None) -> SectionStates:
    """Returns what a states file holds. Raises pyarrow's errors where it is none."""
    table = opened(data, keys).read(use_threads=False)
    if table.column_names != _STATES_SCHEMA.names or len(table) != 1:
        raise pa.ArrowInvalid("a states file has other columns or rows")
    return SectionStates(**table.cast(_STATES_SCHEMA).to_pylist()[0])


def read_rows(
    data: bytes,
    types: dict[str, str],
    values: Sequence[str],
    row_filter: RowFilter,
    keys: FileKeys | None = None,
) -> Iterator[Rows]:
    """Yields the rows of a part that are asked for, in the order in which they lie there. `types`: of its
    series columns, which hold the series exactly. Raises pyarrow's errors where the file is damaged."""
    sought = [
        {column_name(it): _value(text, types[it]) for it, text in one.items()} for one in row_filter.series
    ]
    wanted = [it for it in sought if None not in it.values()]
    if sought and not wanted:
        return
    file = opened(data, keys)
    columns = [*map(column_name, types), "time", *map(column_name, values)]
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        if not wanted or any(_may_hold(group, it) for it in wanted):
            table = file.read_row_group(i, columns=columns, use_threads=False)
            if len(found := table.filter(_mask(table, wanted, row_filter))):
                yield _rows(found, types, values)


def _value(text: str, kind: str) -> Any:
    """Returns the value of a column that has this text; None where it can have none."""
    readers: dict[str, Any] = {"int64": int, "double": float, "bool": {"true": True, "false": False}.get}
    if kind == "string":
        return text
    with suppress(ValueError):
        value = readers[kind](text)
        if value is not None and series_text(as_read(value, kind)) == text:
            return value if kind != "int64" or -(2**63) <= value < 2**63 else None
    return None


def _may_hold(group: Any, wanted: Mapping[str, Any]) -> bool:
    """Returns whether a row group may hold these values, by its statistics."""
    for column in map(group.column, range(group.num_columns)):
        bounds = column.statistics if column.path_in_schema in wanted else None
        if bounds is None or not bounds.has_min_max:
            continue
        if not bounds.min <= wanted[column.path_in_schema] <= bounds.max:
            return False
    return True


def _mask(table: pa.Table, wanted: Sequence[Mapping[str, Any]], row_filter: RowFilter) -> pa.Array:
    times = as_ms(table["time"])
    found = (times >= row_filter.start) & (times < row_filter.end)
    if wanted:
        found &= np.logical_or.reduce([_has(table, it) for it in wanted])
    return pa.array(found)


def _has(table: pa.Table, values: Mapping[str, Any]) -> NDArray[np.bool_]:
    found = np.ones(len(table), dtype=np.bool_)
    for name, value in values.items():
        found &= np.asarray(pc.equal(table[name], pa.scalar(value, table[name].type)), dtype=np.bool_)
    return found


def _rows(table: pa.Table, types: dict[str, str], values: Sequence[str]) -> Rows:
    held = {name: table[column_name(name)] for name in values}
    series, of_row = _series(table, types)
    return Rows(
        series=series,
        row_series=of_row,
        time=as_ms(table["time"]),
        values={name: np.asarray(it.to_numpy(), dtype=np.float64) for name, it in held.items()},
        present={name: np.asarray(it.is_valid(), dtype=np.bool_) for name, it in held.items()},
    )


def _series(table: pa.Table, types: dict[str, str]) -> tuple[list[Series], NDArray[np.int32]]:
    """Returns the series of rows that lie together, and which of them each row is of."""
    is_first = np.zeros(len(table), dtype=np.bool_)
    is_first[0] = True
    columns = {name: table[column_name(name)] for name in types}
    for column in columns.values():
        codes = column.combine_chunks().dictionary_encode().indices.to_numpy()
        is_first[1:] |= np.diff(codes) != 0
    first = pa.array(np.flatnonzero(is_first))
    by_field = [
        [as_read(value, types[name]) for value in column.take(first).to_pylist()]
        for name, column in columns.items()
    ]
    series = list(zip(*by_field, strict=True)) if by_field else [()]
    return series, (np.cumsum(is_first) - 1).astype(np.int32)
