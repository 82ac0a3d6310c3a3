"""Measures what each command costs, and what DuckDB's queries do."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb

from bench.age.commits import commit_hourly
from bench.age.history import START, Cost, History, histories
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.jobs.audit.verb import AUDIT, audit_step
from bucketwise.jobs.check.verb import CHECK
from bucketwise.jobs.compact import COMPACT_ALL
from bucketwise.jobs.core.turn import Step
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.status import STATUS
from bucketwise.jobs.verify import VERIFY

DAY = timedelta(days=1)
#: Commands that change nothing, in the order of the tables.
ASKING: dict[str, tuple[Sequence[Step], dict[str, Any]]] = {
    "`status`": ((STATUS,), {}),
    "`plan`": (RUN, {}),
    "`check`": ((CHECK,), {}),
    "`verify` of one day": ((VERIFY,), {"within": TimeRange(START, START + DAY)}),
    "`audit`": ((audit_step(full=True),), {}),
    "`audit` with a sample of 3 %": ((AUDIT,), {}),
}
_QUERIES = {
    "DuckDB: one day": "WHERE dt = DATE '2018-06-30'",
    "DuckDB: whole archive": "",
}
_HOURS_OF_A_DAY = 24


@dataclass
class Column:
    """One state of an archive: what each command costs there."""

    name: str
    costs: dict[str, Cost] = field(default_factory=dict)
    queries: dict[str, float] = field(default_factory=dict)  # CPU seconds


Columns = Generator[Column, None, None]


def after_commits(uri: str, counts: Sequence[int]) -> Columns:
    """Measures after a commit an hour, before and after they are merged."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder, histories(uri, Path(folder)) as it:
            commit_hourly(it, count)
            it.cost(RUN)
            yield _measured(f"{it.commits():,} commits", it)
            it.cost((COMPACT_ALL,))
            it.wait()  # what was replaced may go
            it.cost(RUN)
            it.cost(RUN)
            yield _measured(f"merged: {it.commits():,}", it)


def with_series(uri: str, counts: Sequence[int]) -> Columns:
    """Measures three hours of so many series."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder, histories(uri, Path(folder), series=count) as it:
            it.write(3)
            it.archive()
            it.cost(RUN)
            yield _measured(f"{count:,} series", it)


def for_policies(uri: str, counts: Sequence[int]) -> Columns:
    """Measures a day of two series for each of so many policies; the costs of all together."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder, histories(uri, Path(folder), policies=count) as it:
            it.write(_HOURS_OF_A_DAY)
            it.archive()
            it.cost(RUN)
            yield _measured("1 policy" if count == 1 else f"{count:,} policies", it)


def _measured(name: str, history: History) -> Column:
    found = Column(name)
    found.costs["`run` with nothing to do"] = history.cost(RUN)
    for what, (steps, options) in ASKING.items():
        found.costs[what] = history.cost(steps, dry_run=True, **options)
    found.queries = {what: _query(history, where) for what, where in _QUERIES.items()}
    history.write(1)
    found.costs["`run` that archives an hour"] = history.cost(RUN)
    sys.stderr.write(f"{name}: measured\n")
    return found


def _query(history: History, where: str) -> float:
    """Returns the CPU seconds of all threads. Raises RuntimeError where the answer is not what was
    written."""
    glob = f"{history.folder}/store/p0/data/**/*.parquet"
    written = history.readings(START + DAY if where else None)
    with duckdb.connect() as connection:
        started = time.process_time()
        query = f"SELECT count(*), sum(p) FROM read_parquet('{glob}', hive_partitioning = true) {where}"
        found = connection.execute(query).fetchone()
        cpu = time.process_time() - started
    if found is None or found[0] != written:
        raise RuntimeError(f"DuckDB found {found} where {written} readings were written")
    return cpu
