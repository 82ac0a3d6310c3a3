"""Tables as DuckDB reads them: as Arrow data sets, from which it requests columns, with a filter."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bucketwise.archivers.querying.narrowing import Narrowed, narrowed
from bucketwise.archivers.querying.tables import Table

_ROWS = 50_000  # of a batch


@dataclass(frozen=True)
class Scan:
    """One reading of a view: what of it, and the filter that DuckDB hands down."""

    view: str
    narrowed: Narrowed
    columns: tuple[str, ...]
    filter: str | None


@dataclass
class ScanLog:
    """Records what happens while queries are executed: the latest scans, and the first failure. `is_dry`:
    scans are recorded, and nothing is read."""

    is_dry: bool = False
    scans: deque[Scan] = field(default_factory=lambda: deque(maxlen=1000))
    failure: Exception | None = None


class ServedTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table behind a view. DuckDB relies on the scan for the filter that it hands down, so the scan applies
    it to each row; only the times and series that may pass it are read."""

    def __init__(self, view: str, table: Table, log: ScanLog) -> None:
        self._view, self._table, self._log = view, table, log

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns."""
        return self._table.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_how: Any
    ) -> _Scanner:
        """Returns the scan of some columns of what a filter passes."""
        table = self._table
        names = tuple(table.schema.names if columns is None else columns)
        wanted = narrowed(filter, table.schema, table.time, table.types)
        filter_text = None if filter is None else str(filter)
        self._log.scans.append(Scan(self._view, wanted, names, filter_text))
        schema = pa.schema([table.schema.field(name) for name in names])
        return _Scanner(schema, self._batches(wanted, filter, list(names)))

    def _batches(
        self, wanted: Narrowed, filter_: pc.Expression | None, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        try:
            for found in () if self._log.is_dry else self._table.read(wanted):
                passed = found if filter_ is None else found.filter(filter_)
                yield from passed.select(names).to_batches(max_chunksize=_ROWS)
        except Exception as error:
            # DuckDB would give its text alone.
            self._log.failure = self._log.failure or error
            raise


class _Scanner:
    """As much of Arrow's scanner as DuckDB uses."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)
