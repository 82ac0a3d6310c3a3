"""Runs SQL in DuckDB over the views of policies. It can read nothing else: no files, no network, no Python
variables."""

from __future__ import annotations

import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.columns import Quarantined
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.jobs.query.rewriting import (
    Rewritten,
    Scan,
    ScanLog,
    ServedTable,
    View,
    check_columns,
    quoted,
    rewritten,
    views_of,
)
from bucketwise.jobs.query.tables import Misfit, ReadingsTable, Table, Types, types_of

try:
    import duckdb
except ImportError as error:
    raise ImportError(
        f"DuckDB is not installed here ({error}). Run: pip install 'bucketwise[query]'"
    ) from None


_ROWS = 20_000  # of a batch of the result
#: Disk that a query may take where its memory does not suffice, as a multiple of it.
_SPILL = 25

_SETTINGS = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # a name in SQL is no variable of the program
}

_BEFORE = "OVER (PARTITION BY series ORDER BY step)"
_BEHIND = "OVER (PARTITION BY series ORDER BY step ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
_LAST, _LAST_AT = (f"last_value({it} IGNORE NULLS) {_BEFORE}" for it in ("value", "read_at"))
_NEXT, _NEXT_AT = (f"first_value({it} IGNORE NULLS) {_BEHIND}" for it in ("value", "read_at"))
#: An even grid, and what fills steps without a value: the one before, or one on the line to the next. They
#: stop where what they rest on is further away than `max_gap`. `read_at` is null where `value` is.
_MACROS = (
    "time_grid(since, until, every) AS TABLE SELECT unnest(range("
    'since::TIMESTAMPTZ, until::TIMESTAMPTZ, every::INTERVAL)) AS "start"',
    "fill_previous(value, read_at, step, series, max_gap) AS coalesce(value, "
    f"CASE WHEN step - {_LAST_AT} <= max_gap::INTERVAL THEN {_LAST} END)",
    "fill_linear(value, read_at, step, series, max_gap) AS coalesce(value, "
    f"CASE WHEN {_NEXT_AT} - {_LAST_AT} <= max_gap::INTERVAL THEN {_LAST} + ({_NEXT} - {_LAST}) * "
    f"(epoch(step) - epoch({_LAST_AT})) / (epoch({_NEXT_AT}) - epoch({_LAST_AT})) END)",
)


class Engine:
    """DuckDB with the views of some policies. Must not be used by several threads.

    `memory`: bytes that DuckDB may take; beyond them it writes to a temporary folder."""

    def __init__(self, contexts: Sequence[ArchiveContext], memory: int) -> None:
        self.views = {it.name: it for it in views_of(contexts)}
        self._check = contexts[0].check if contexts else lambda: None
        self._types: dict[str, Types] = {}
        self._tables: dict[str, Table] = {}
        self.scan_log = ScanLog()
        self._folder = tempfile.TemporaryDirectory(prefix="bucketwise-query-")
        self.connection = _open(memory, self._folder.name)
        weakref.finalize(self.connection, self._folder.cleanup)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.connection.close()
        self._folder.cleanup()  # not only when it is collected

    @property
    def quarantined(self) -> dict[str, list[Quarantined]]:
        """Returns the buckets that broke their model where readings were read, by policy."""
        tables = [(self.views[name], it) for name, it in self._tables.items()]
        return {
            view.context.policy.name: list(it.quarantined.values())
            for view, it in tables
            if isinstance(it, ReadingsTable) and it.quarantined
        }

    @property
    def policies_read(self) -> list[str]:
        """Returns the policies that the last query read, in order."""
        found = [self.views[scan.view].context.policy.name for scan in self.scan_log.scans]
        return list(dict.fromkeys(found))

    def create_views(self, views: Sequence[View]) -> None:
        """Creates these views, unless they exist."""
        for view in views:
            if view.name not in self._tables:
                self._create_view(view)

    def _create_view(self, view: View) -> None:
        policy = view.context.policy.name
        if policy not in self._types:
            self._types[policy] = types_of(view.context)
        self._tables[view.name] = table = view.make(self._types[policy])
        check_columns(view.name, table.schema.names)
        # DuckDB applies filters on doubles itself, since it takes NaN for the greatest number: through a
        # function they are not pushed down, and Arrow never sees them.
        columns = [
            f"greatest({quoted(it.name)}, {quoted(it.name)}) AS {quoted(it.name)}"
            if pa.types.is_floating(it.type)
            else quoted(it.name)
            for it in table.schema
        ]
        served = self.connection.from_arrow(ServedTable(view.name, table, self.scan_log))
        served.project(", ".join(columns)).create_view(view.name, replace=True)

    def schema(self, name: str) -> str:
        """Returns the columns of a view, as SQL would create it. Raises UsageError where there is none."""
        if name not in self.views:
            raise UsageError(f"{name}: there is no such view; there are {', '.join(self.views)}")
        self.create_views([self.views[name]])
        with self._errors_in_words():
            columns = self.connection.sql(f"DESCRIBE {quoted(name)}").fetchall()
        columns_text = ",\n".join(f"  {quoted(column)} {kind}" for column, kind, *_ in columns)
        return f"CREATE VIEW {quoted(name)} (\n{columns_text}\n);"

    def widen(self, misfit: Misfit) -> None:
        """Creates the views of a policy again, with columns that can hold the value that did not fit."""
        self._types[misfit.policy] = misfit.types
        for name in [it for it in self._tables if self.views[it].context.policy.name == misfit.policy]:
            self._create_view(self.views[name])

    def prepare(self, sql: str) -> str:
        """Returns the one statement that a text consists of, and creates the views that it names. Raises
        UsageError where it isn't one statement that reads."""
        with self._errors_in_words():
            statements = self.connection.extract_statements(sql)
        if len(statements) != 1:
            raise UsageError(f"the SQL holds {len(statements)} statements; write one")
        kind = statements[0].type
        if kind != duckdb.StatementType.SELECT:
            raise UsageError(
                f"the SQL is a statement of the kind {kind.name}, and `query` only reads: write SELECT, or "
                "WITH, FROM, VALUES, DESCRIBE, SHOW or SUMMARIZE"
            )
        self.create_views(self.views_named(sql))
        return sql

    def views_named(self, sql: str) -> list[View]:
        """Returns the views that a statement names; all views where none can be found in it."""
        words = {word.lower().strip('"') for word in re.findall(r'"[^"]+"|\w+', sql)}
        return [it for it in self.views.values() if it.name.lower() in words] or list(self.views.values())

    def run(self, sql: str, deliver: Callable[[pa.RecordBatchReader], Any]) -> Any:
        """Runs a statement, and returns what `deliver` returns for its rows, which come in batches.

        Raises UsageError with DuckDB's message, and whatever reading raises, such as Misfit."""
        self.scan_log.failure = None
        self.scan_log.scans.clear()
        statement = self.prepare(sql)
        with self._errors_in_words(), self.connection.sql(statement).to_arrow_reader(_ROWS) as reader:
            return deliver(reader)

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Raises DuckDB's errors, and those that they wrap, as ours."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            message = str(error).strip().partition("\n")[0].rstrip(".")
            raise BucketwiseError(f"{message}. [work] memory says how much a query may take") from None
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno:
                raise  # raised by the writer of the result
            if self.scan_log.failure:
                raise self.scan_log.failure from None
            self._check()  # raises where the query was interrupted
            raise UsageError(str(error).strip()) from None


def _open(memory: int, folder: str) -> duckdb.DuckDBPyConnection:
    """Returns a database in memory that can do nothing but compute."""
    settings: Mapping[str, Any] = {
        **_SETTINGS,
        "memory_limit": f"{memory // 10**6}MB",
        "temp_directory": folder,
        "max_temp_directory_size": f"{memory * _SPILL // 10**6}MB",
    }
    connection = duckdb.connect(config=dict(settings))
    connection.execute("SET TimeZone = 'UTC'")
    for macro in _MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for statement in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {statement}")
    return connection


@dataclass(frozen=True)
class ViewRead:
    """One scan of a view. `parts` and `bytes`: of the files of an offline archive that may hold some of it.
    `live`: the first and last time of live buckets, in milliseconds. None: does not apply."""

    scan: Scan
    view: View
    parts: int | None = None
    bytes: int | None = None
    live: tuple[int, int] | None = None


@dataclass(frozen=True)
class ExplainedQuery:
    """The amount that a statement would read. `unread`: views that it names, of which the amount that is read
    depends on other results."""

    reads: Sequence[ViewRead]
    unread: Sequence[str]
    rewritten: Rewritten | None


def explained_query(engine: Engine, sql: str) -> ExplainedQuery:
    """Returns what a statement would read. Raises what `Engine.run` does, except errors of reading."""
    engine.scan_log.is_dry = True
    try:
        engine.run(sql, lambda reader: reader.read_all())
    finally:
        engine.scan_log.is_dry = False
    scans = list(engine.scan_log.scans)
    reads = [_view_read(engine.views[it.view], it) for it in scans]
    named = {it.name for it in engine.views_named(sql)} if len(scans) else set()
    found = None
    if len(reads) == 1 and reads[0].view.what == "readings":
        found = rewritten(engine.connection, sql, reads[0].view, scans[0].narrowed.ranges)
    return ExplainedQuery(reads, sorted(named - {it.view for it in scans}), found)


def _view_read(view: View, scan: Scan) -> ViewRead:
    if view.what != "readings":
        return ViewRead(scan, view)
    context, selectors = view.context, scan.narrowed.selectors
    archived = archived_reader(context.connections, context.policy)
    held = [archived.parts(RowFilter(start, end, selectors)) for start, end in scan.narrowed.ranges]
    if any(it is None for it in held):
        return ViewRead(scan, view, live=context.source.span())
    unlike = {part.key: part.bytes for some in held for part in some or ()}
    return ViewRead(scan, view, len(unlike), sum(unlike.values()), context.source.span())
