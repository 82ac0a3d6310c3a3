"""Delivers the rows of a query where they are wanted: as a table for people, CSV, JSON, Parquet and Arrow."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import RenderableType
from rich.text import Text

from bucketwise.archivers.reading.formats import csv_text
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, as_date
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.turn import LEFT_SOMETHING, quarantine_body
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import discard_buffer, write_atomically
from bucketwise.jobs.output.tables import counted, print_tables, report_quarantined
from bucketwise.jobs.output.text import printable, size

if TYPE_CHECKING:
    from bucketwise.jobs.query.engine import Engine, ExplainedQuery, ViewRead

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
#: Rows that a table shows.
MOST_SHOWN = 1_000


class Format(StrEnum):
    """The format of rows."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


def write(reader: pa.RecordBatchReader, form: Format, file: IO[bytes], *, is_stream: bool) -> Iterator[int]:
    """Writes all rows; yields how many after each piece. Nothing is written before there are any, or it is
    known that there are none. `is_stream`: Arrow as its stream, else as its file, with an index at its end.
    Raises UsageError where two columns would have one name in JSON, Parquet or Arrow."""
    names = reader.schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice and form is not Format.csv:
        raise UsageError(f"two columns of the result are named {twice[0]}: name them apart, with AS")
    batches = iter(reader)
    rest = chain(list(islice(batches, 1)), batches)
    if form is Format.csv or form is Format.json:
        yield from _write_lines(rest, names, form, file)
        return
    with _writer(reader.schema, form, file, is_stream) as writer:
        for batch in rest:
            writer.write_batch(batch)
            yield len(batch)


def _write_lines(
    batches: Iterable[pa.RecordBatch], names: list[str], form: Format, file: IO[bytes]
) -> Iterator[int]:
    if form is Format.csv:
        file.write((",".join(map(csv_text, names)) + "\n").encode())
    for batch in batches:
        lines = _csv_lines(batch) if form is Format.csv else _json_lines(batch)
        file.write("".join(lines).encode())
        yield len(batch)


def _writer(schema: pa.Schema, form: Format, file: IO[bytes], is_stream: bool) -> Any:
    if form is Format.parquet:
        return pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
    return pa.ipc.new_stream(file, schema) if is_stream else pa.ipc.new_file(file, schema)


def _csv_lines(batch: pa.RecordBatch) -> Iterator[str]:
    for row in rows_of(batch):
        yield ",".join(map(_cell, row)) + "\n"


def _json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    names = batch.schema.names
    for row in rows_of(batch):
        yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n"


def rows_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """Returns the rows, of values that JSON has: instants, and what else it lacks, as text."""
    columns = [_values(column) for column in batch.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def shown(columns: list[str], rows: list[list[Any]]) -> list[RenderableType]:
    """Returns a table of the first rows for people, and how many these are."""
    is_all, rows = len(rows) <= MOST_SHOWN, rows[:MOST_SHOWN]
    table = Grid("", [printable(it) for it in columns], keeps_all=True)
    for row in rows:
        table.add_row(*("NULL" if it is None else printable(_text(it)) for it in row))
    more = f"These are the first {len(rows):,} rows. For more: --format csv, or LIMIT and OFFSET"
    return [table, Text(counted(len(rows), "row") if is_all else more)]


def explained_lines(body: dict[str, Any]) -> Iterator[str]:
    """Yields lines on what a query would read."""
    for read in body["reads"]:
        yield f"{read['view']}: columns {', '.join(read['columns'])}"
        spans = [_span(it["since"], it["until"]) for it in read["ranges"]]
        yield f"  time: {'; '.join(spans) or 'nothing'}"
        named = ["; ".join(f"{name}={text}" for name, text in it.items()) for it in read["series"]]
        yield f"  series: {' or '.join(named) or 'all'}"
        if (parts := read["parts"]) is not None:
            yield f"  archive: {parts:,} part{'s' * (parts != 1)}, {size(read['bytes'])}"
        if read["live"] is not None:
            yield f"  live: buckets from {iso(read['live']['first'])} to {iso(read['live']['last'])}"
    for view in body["unread"]:
        yield f"{view}: depends on what the rest of the statement finds"
    if not body["reads"] and not body["unread"]:
        yield "nothing is read"
    if (found := body["summaries"]) is not None:
        through = iso(found["rolled_up_through"]) if found["rolled_up_through"] else "nowhere yet"
        yield f"Summaries answer it where all numbers are finite, as far as it is rolled up ({through}):"
        yield f"  {found['sql']}"


def _span(since: datetime | None, until: datetime | None) -> str:
    sides = [f"from {iso(since)}" if since else "", f"until {iso(until)}" if until else ""]
    return " ".join(filter(None, sides)) or "all"


def _cell(value: Any) -> str:
    if type(value) in (int, float):
        return repr(value)
    return "" if value is None else csv_text(_text(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # which Python's datetimes may not reach
        whole = column.cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
        texts = np.datetime_as_string(whole, unit="us").tolist()
        zone = "Z" if column.type.tz else ""
        return [None if it == "NaT" else f"{it.removesuffix('000')}{zone}" for it in texts]
    values: list[Any] = column.to_pylist()
    is_plain = pa.types.is_string(column.type) or pa.types.is_integer(column.type)
    return values if is_plain else [_plain(it) for it in values]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE[repr(value)]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value.as_tuple().exponent == 0
        return int(value) if is_whole else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(it) for key, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    return str(value)


#: The rest of a report: its own keys, and what people see.
Found = tuple[dict[str, Any], list[Any]]


class Answers:
    """Asks an engine, and delivers what it finds."""

    def __init__(
        self, call: Call, engine: Engine, progress: ProgressDisplay, form: Format, output: Path | None
    ) -> None:
        self._call, self._engine, self._progress = call, engine, progress
        self._form, self._output = form, output
        self._has_written = False  # to stdout, where nothing is taken back

    def found(self, sql: str) -> Report:
        """Returns the report of one statement, once its rows are delivered."""
        from bucketwise.jobs.query.tables import Misfit

        deliver = self._deliverer()
        while True:
            try:
                with self._progress.step("query"):
                    extra, tables = self._engine.run(sql, deliver)
                break
            except Misfit as misfit:
                if self._has_written:
                    raise
                self._engine.widen(misfit)
        results = self._results()
        report_quarantined(results)
        return Report(self._call.command, self._call.now, results, tables, extra=extra)

    def explained(self, sql: str) -> Report:
        """Returns the report of what a statement would read."""
        from bucketwise.jobs.query.engine import explained_query

        body = _explained_body(explained_query(self._engine, sql))
        results = [Result(policy) for policy in self._engine.policies_read]
        lines = [Text(printable(line)) for line in explained_lines(body)]
        return Report(self._call.command, self._call.now, results, list(lines), extra={"explain": body})

    def _results(self) -> list[Result]:
        """Returns the results of the queried policies, with what was left out."""
        results = []
        for policy in dict.fromkeys(self._engine.policies_read):
            broken = self._engine.quarantined.get(policy, [])
            body = quarantine_body(broken, len(broken))
            results.append(Result(policy, LEFT_SOMETHING if broken else 0, body))
        return results

    def _deliverer(self) -> Callable[[pa.RecordBatchReader], Found]:
        if self._output is not None:
            return self._to_file
        if self._call.json or self._form is Format.table:
            return self._to_report
        return self._to_stdout

    def _to_report(self, reader: pa.RecordBatchReader) -> Found:
        """Returns all rows for JSON, the first for people."""
        rows = _rows(reader, None if self._call.json else MOST_SHOWN)
        types = [str(it) for it in reader.schema.types]
        tables = shown(reader.schema.names, rows)
        return {"columns": reader.schema.names, "types": types, "rows": rows}, tables

    def _to_file(self, reader: pa.RecordBatchReader) -> Found:
        assert self._output is not None
        with write_atomically(self._output.resolve()) as file:
            if self._form is Format.table:
                count = _write_table(reader, file)
            else:
                count = sum(write(reader, self._form, file, is_stream=False))
        written = {"format": self._form.value, "output": str(self._output), "count": count}
        line = Text(printable(f"{count:,} rows in {self._output}"))
        return {"columns": reader.schema.names, **written}, [line]

    def _to_stdout(self, reader: pa.RecordBatchReader) -> Found:
        try:
            if self._form is Format.parquet:
                with tempfile.TemporaryFile() as spool:
                    list(write(reader, self._form, spool, is_stream=False))
                    spool.seek(0)
                    shutil.copyfileobj(spool, sys.stdout.buffer)
            else:
                for _ in write(reader, self._form, sys.stdout.buffer, is_stream=True):
                    self._has_written = True
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard_buffer(sys.stdout)  # who reads has enough: `head`, for one
        return {}, []


def _rows(reader: pa.RecordBatchReader, most: int | None) -> list[list[Any]]:
    """Returns all rows, or, if there are more than `most`, some more than these."""
    rows: list[list[Any]] = []
    for batch in reader:
        rows += rows_of(batch)
        if most is not None and len(rows) > most:
            break
    return rows


def _write_table(reader: pa.RecordBatchReader, file: IO[bytes]) -> int:
    """Write the table that people see; returns how many rows it has."""
    rows = _rows(reader, MOST_SHOWN)
    text = io.StringIO()
    print_tables(shown(reader.schema.names, rows), text)
    file.write(text.getvalue().encode())
    return min(len(rows), MOST_SHOWN)


def _explained_body(found: ExplainedQuery) -> dict[str, Any]:
    summaries = None
    if (it := found.rewritten) is not None:
        through = None if it.through is None else as_date(it.through)
        summaries = {"view": it.view, "sql": it.sql, "rolled_up_through": through}
    return {
        "reads": [_read_body(it) for it in found.reads],
        "unread": list(found.unread),
        "summaries": summaries,
    }


def _read_body(read: ViewRead) -> dict[str, Any]:
    scan = read.scan
    return {
        "view": scan.view,
        "policy": read.view.context.policy.name,
        "ranges": [{"since": _bound(a), "until": _bound(b)} for a, b in scan.narrowed.ranges],
        "series": [dict(it) for it in scan.narrowed.selectors],
        "columns": list(scan.columns),
        "parts": read.parts,
        "bytes": read.bytes,
        "live": read.live and {"first": as_date(read.live[0]), "last": as_date(read.live[1])},
    }


def _bound(at: int) -> datetime | None:
    return as_date(at) if FIRST_MS < at <= LAST_MS else None
