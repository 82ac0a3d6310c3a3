"""Delivers the rows of a query where they are wanted, and reports them in the words of the JSON."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from rich.text import Text

from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, as_date
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.rows import MOST_SHOWN, Format, explained_lines, rows_of, shown, write
from bucketwise.jobs.output.streams import discard_buffer, print_tables, write_atomically
from bucketwise.jobs.output.text.cells import printable
from bucketwise.jobs.output.text.tables import report_quarantined
from bucketwise.jobs.steps.working import LEFT_SOMETHING, quarantine_body

if TYPE_CHECKING:
    from bucketwise.archivers.querying.engine import Engine
    from bucketwise.archivers.querying.explaining import ExplainedQuery, ViewRead

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
        from bucketwise.archivers.querying.tables import Misfit

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
        from bucketwise.archivers.querying.explaining import explain

        body = _explained_body(explain(self._engine, sql))
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
