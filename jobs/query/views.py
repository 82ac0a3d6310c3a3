"""The views of a query: which there are, and the tables that DuckDB is served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bucketwise.archivers.context import ArchiveContext, Connections, LocalExecutor
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import LevelName, Policy
from bucketwise.jobs.query.narrowing import Narrowed, narrowed
from bucketwise.jobs.query.tables import CoverageTable, ReadingsTable, SummariesTable, Table, Types
from bucketwise.rollups.context import Check, ProgressListener, dry_run_guard, no_progress


def read_context(
    connections: Connections,
    policy: Policy,
    now: datetime,
    check: Check = lambda: None,
    progress: ProgressListener = no_progress,
    known: Sequence[Policy] = (),
) -> ArchiveContext:
    """Returns a context for reading only. `check` raises where the query must stop. `known`: all policies of
    the file."""
    return ArchiveContext(
        connections.database,
        policy,
        now,
        dry_run_guard,
        check,
        progress,
        store=connections.store,
        keys=connections.keys,
        executor=LocalExecutor(connections),
        known=known,
    )


@dataclass(frozen=True)
class View:
    """A view of a policy: its readings, the summaries of a level, or its coverage."""

    name: str
    context: ArchiveContext
    what: str  # "readings", "summaries" or "coverage"
    make: Callable[[Types], Table]
    level: LevelName | None = None


def views_of(contexts: Sequence[ArchiveContext]) -> list[View]:
    """Returns the views of policies. Raises UsageError where SQL could not tell two by their names."""
    found: dict[str, View] = {}
    for view in (it for context in contexts for it in _views(context)):
        other = found.setdefault(view.name.lower(), view)
        if other is not view:
            raise UsageError(
                f"policy {view.context.policy.name}: its view {view.name} has the name of "
                f"{other.name}, of policy {other.context.policy.name}: SQL can't tell them. Ask for one of "
                "the two policies with --policy, or rename one in the policy file"
            )
    return list(found.values())


def _views(context: ArchiveContext) -> Iterator[View]:
    name, rollup = context.policy.name, context.policy.rollup
    yield View(name, context, "readings", partial(ReadingsTable, context))
    for level in rollup.targets if rollup else ():
        yield View(f"{name}_{level}", context, "summaries", partial(SummariesTable, context, level), level)
    yield View(f"{name}_coverage", context, "coverage", lambda _types: CoverageTable(context))


def check_columns(view: str, names: Sequence[str]) -> None:
    """Raises UsageError where SQL could not tell two columns by their names."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) is not name:
            raise UsageError(
                f"view {view}: SQL can't tell its columns {other} and {name}. `bucketwise readings` has them "
                "both; to ask for other policies, name them with --policy"
            )


def quoted(name: str) -> str:
    """Returns a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


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
