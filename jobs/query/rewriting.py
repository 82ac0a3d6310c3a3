"""Rewrites aggregates of readings that summaries can answer as the same query over a level of summaries.

A statement is rewritten only if each of its parts is known to mean the same there. Sums may differ in their
last digits, and summaries' statistics leave out numbers that are not finite.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bucketwise.archivers.context import ArchiveContext, Connections, LocalExecutor
from bucketwise.archivers.format.series import column_name
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.source import Source
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import LevelName, Policy
from bucketwise.jobs.query.tables import (
    CoverageTable,
    Narrowed,
    Range,
    ReadingsTable,
    SummariesTable,
    Table,
    Types,
    narrowed,
)
from bucketwise.rollups import progress
from bucketwise.rollups.calendar.levels import LEVEL_RULES, Level, levels_of
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
    """The part of Arrow's scanner that DuckDB uses."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


Node = dict[str, Any]

#: Aggregate -> the expression that computes it from summaries.
_OF_VALUES = {
    "count": "coalesce(sum({count}), 0)",
    "sum": "sum({sum})",
    "min": "min({min})",
    "max": "max({max})",
    "avg": "(sum({sum}) / sum({count}))",
    "mean": "(sum({sum}) / sum({count}))",
}

_COUNT = 'coalesce(sum("count"), 0)'
#: Levels whose whole windows make up each unit, in UTC.
_FINE = LEVEL_RULES["daily"].parts
_UNITS = {"hour": _FINE, **dict.fromkeys(("day", "week", "month", "quarter", "year"), ("daily", *_FINE))}


@dataclass(frozen=True)
class Rewritten:
    """The view of the summaries, and the statement that asks them. `through`: up to when they are made, in
    milliseconds; None: not yet."""

    view: str
    sql: str
    through: int | None


class _NotRewritable(Exception):
    """A part of a statement that has no known equivalent over summaries."""


def rewritten(
    connection: duckdb.DuckDBPyConnection, sql: str, view: View, ranges: Sequence[Range]
) -> Rewritten | None:
    """Returns a statement over summaries with the same result; None where none is known. `ranges`: what the
    statement reads of the view of readings."""
    serialized = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed: Node = json.loads(serialized[0][0])
    if parsed["error"] or len(ranges) != 1:
        return None
    for level in _whole(view.context, ranges[0]):
        try:
            changes = _Rewriting(view, level).changes(parsed["statements"][0]["node"])
        except _NotRewritable:
            continue
        data = sql.encode()
        for start, length, text in sorted(changes, reverse=True):
            data = data[:start] + text.encode() + data[start + length :]
        through = progress.load(view.context.database, view.context.policy).through.get(level.name)
        return Rewritten(f"{view.name}_{level.name}", data.decode(), through)
    return None


def _levels(policy: Policy, span: Range) -> list[Level]:
    """Returns the levels whose windows are made up of UTC hours, or parts of them, the coarsest first."""
    levels = levels_of(policy)
    found = {it.name: it for it in levels if it.step is not None or it.zone_name in ("UTC", "Etc/UTC")}
    return [found[name] for name in ("daily", *_FINE) if name in found and _tiles(found[name], span)]


def _whole(context: ArchiveContext, span: Range) -> Iterator[Level]:
    """Yields those levels whose summaries cover exactly these readings: neither readings nor summaries have
    expired."""
    database, policy, start = context.database, context.policy, span[0]
    if start < (progress.ended_before(database, policy) or start):
        return
    found = (
        it.earliest(start) for it in (Source(database, policy), archived_reader(context.connections, policy))
    )
    first = min((it for it in found if it is not None), default=start)
    gone = progress.gone_before(database, policy)
    yield from (it for it in _levels(policy, span) if first >= gone.get(it.name, first))


def _tiles(level: Level, span: Range) -> bool:
    return all(level.windows(at, at + 1)[0][0] == at for at in span if FIRST_MS < at <= LAST_MS)


class _Rewriting:
    """One statement, and what is to be replaced in its text: offset and length in bytes, and by what."""

    def __init__(self, view: View, level: Level) -> None:
        policy = view.context.policy
        self._view, self._level = view, level
        self._series = {column_name(it).lower() for it in policy.series_names}
        self._values = {column_name(it).lower(): column_name(it) for it in policy.value_names}
        self._told = set(policy.rollup.statistics) if policy.rollup else set()  # none: all
        self._aliases: set[str] = set()
        self._has_aggregate = False

    def changes(self, node: Node) -> list[tuple[int, int, str]]:
        """Raises _Unknown."""
        table = node.get("from_table") or {}
        is_plain = node["type"] == "SELECT_NODE" and not (node["qualify"] or node["sample"])
        is_ours = table.get("type") == "BASE_TABLE" and table["table_name"].lower() == self._view.name.lower()
        if not is_plain or not is_ours or node["cte_map"]["map"] or table["sample"] or table["alias"]:
            raise _NotRewritable
        self._aliases = {it["alias"].lower() for it in node["select_list"] if it["alias"]}
        found = [_change(table, quoted(f"{self._view.name}_{self._level.name}"))]
        found += self._filter(node["where_clause"]) if node["where_clause"] else []
        orders = [it["expression"] for mod in node["modifiers"] for it in mod.get("orders", ())]
        parts = [*node["select_list"], *node["group_expressions"], *orders]
        for part in [*parts, node["having"]]:
            found += self._expression(part) if part else []
        if not self._has_aggregate:
            raise _NotRewritable
        return list(dict.fromkeys(found))

    def _filter(self, node: Node) -> Iterator[tuple[int, int, str]]:
        """Ranges of whole windows, and values of series fields."""
        if node["type"] == "CONJUNCTION_AND":
            for child in node["children"]:
                yield from self._filter(child)
            return
        sides: list[Node] = node.get("children") or [node[it] for it in ("left", "right") if it in node]
        if len(sides) < 2 or any(map(_has_columns, sides[1:])):
            raise _NotRewritable
        column = self._column(sides[0])
        if column == "time" and node["type"] in ("COMPARE_GREATERTHANOREQUALTO", "COMPARE_LESSTHAN"):
            yield _change(sides[0], '"start"')
        elif column not in self._series or node["type"] not in ("COMPARE_IN", "COMPARE_EQUAL"):
            raise _NotRewritable

    def _column(self, node: Node) -> str | None:
        names = node.get("column_names", []) if node["class"] == "COLUMN_REF" else []
        return names[0].lower() if len(names) == 1 else None

    def _expression(self, node: Node) -> Iterator[tuple[int, int, str]]:
        if node["class"] == "CONSTANT" or self._column(node) in self._series | self._aliases:
            return
        if node["class"] != "FUNCTION" or node["distinct"] or node["filter"] or node["order_bys"]["orders"]:
            raise _NotRewritable
        name, arguments = node["function_name"], [it["expression"] for it in node["arguments"]]
        if name == "count_star":
            self._has_aggregate = True
            yield _change(node, _COUNT)
        elif name in _OF_VALUES and len(arguments) == 1:
            self._has_aggregate = True
            yield _change(node, self._of_value(name, self._column(arguments[0])))
        elif name == "date_trunc" and len(arguments) == 2:
            unit = arguments[0].get("literal", {}).get("text", "")
            if self._column(arguments[1]) != "time" or self._level.name not in _UNITS.get(unit.lower(), ()):
                raise _NotRewritable
            yield _change(arguments[1], '"start"')
        elif node["is_operator"]:
            for argument in arguments:
                yield from self._expression(argument)
        else:
            raise _NotRewritable

    def _of_value(self, name: str, column: str | None) -> str:
        needed = {key for key in ("sum", "min", "max") if f"{{{key}}}" in _OF_VALUES[name]}
        if column not in self._values or (self._told and not needed <= self._told):
            raise _NotRewritable
        names = {key: quoted(f"{self._values[column]}_{key}") for key in ("count", "sum", "min", "max")}
        return _OF_VALUES[name].format(**names)


def _has_columns(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("class") in ("COLUMN_REF", "SUBQUERY", "STAR") or any(
            map(_has_columns, node.values())
        )
    return isinstance(node, list) and any(map(_has_columns, node))


def _change(node: Node, text: str) -> tuple[int, int, str]:
    if node["query_location"] >= 2**63:
        raise _NotRewritable
    return node["query_location"], node["query_location_length"], text
