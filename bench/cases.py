"""What is measured against what, and how fast it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import bounds, engines, ours, peers
from bench.identities import UNORDERED
from bench.shapes import FURTHER, TEXTS
from bench.testbed import Action, Testbed
from bench.workloads import (
    AVERAGES,
    GAPS,
    IRREGULAR,
    MINUTES,
    MIXED,
    NAMED,
    READINGS,
    SAMPLES,
    SPARSE,
    STEPS,
    UPSERTED,
    Workload,
)


@dataclass(frozen=True)
class Job:
    """An action, and what has to be there before each time it is measured."""

    name: str
    action: Action
    prepare: Callable[[Testbed], None] = Testbed.clear


@dataclass(frozen=True)
class Comparison:
    """Another job to compare with, and how much faster a case has to be."""

    job: Job
    at_least: float | None  # the speed, as a multiple of this one's; None: only told
    workload: Workload | None = None  # None: the same; of another one, speeds are compared a reading


@dataclass(frozen=True)
class Case:
    """A job on a workload, and what it is compared with."""

    workload: Workload
    job: Job
    against: tuple[Comparison, ...] = ()

    @property
    def is_irregular(self) -> bool:
        """Returns whether documents of the workload differ in shape."""
        return self.workload in (*IRREGULAR, SPARSE, UPSERTED, *FURTHER, *UNORDERED)


def _nothing(_testbed: Testbed) -> None:
    """Does nothing: the job only reads."""


_DRAIN = Job("draining raw batches", bounds.drain, _nothing)
_COLUMNS = Job("→ columns", ours.to_columns, _nothing)
_PARQUET = Job("→ Parquet on disk, sorted", ours.to_parquet)
_SUMMARIES = Job("→ hourly and daily summaries with percentiles", ours.to_summaries)
_MOVE = Job("whole archive: export, re-read, verify, commit, guarded delete", ours.move, Testbed.fill_copy)
_INTO_TWO = Job("whole archive, into a store and a copy of it", ours.move_into_two, Testbed.fill_copy)
_ENCRYPTED = Job("whole archive, encrypted", ours.move_encrypted, Testbed.fill_copy)
_ASK = Job("query of all archived readings", ours.ask, ours.prepare_restore)
_ASK_ENCRYPTED = Job("query of all archived readings, encrypted", ours.ask_encrypted, ours.prepare_encrypted)
_RESTORE = Job("restore", ours.restore, ours.prepare_restore)
_SCAN = Job("look-back by scan, nothing changed", ours.look_back_by_scan, ours.prepare_scan)
_STREAM = Job("look-back by change stream, nothing changed", ours.look_back_by_stream, ours.prepare_stream)
_DELETE = Job("a raw drain and a bare delete by _id", bounds.drain_and_delete, Testbed.fill_copy)
_INSERT = Job("insert_many of the same raw documents", bounds.insert)
_BY_PYMONGO = Job("pymongo → pyarrow script", peers.minutes_by_pymongo)
_BY_PYMONGOARROW = Job("pymongoarrow → pyarrow script", peers.minutes_by_pymongoarrow)
_SAMPLES_BY_PYMONGO = Job("pymongo → pyarrow script", peers.samples_by_pymongo)
_UNWOUND = Job("$unwind + $group + $merge", peers.minutes_unwound)
_MAPPED = Job("best server pipeline + $merge", peers.minutes_mapped)
_IN_WINDOWS = Job("server $setWindowFields + $group + $merge, averages by time", peers.averages_in_windows)
_BY_DUCKDB = Job(
    "DuckDB over exported Parquet, averages by time", peers.averages_by_duckdb, ours.prepare_exported
)
_ENGINE_PARQUET = (
    Job("DuckDB over exported JSON", engines.parquet_by_duckdb_json),
    Job("chdb over exported JSON", engines.parquet_by_chdb),
    Job("pymongoarrow on 2 workers of Dask", engines.parquet_by_dask),
)
_ENGINE_SUMMARIES = (
    Job("DuckDB over exported JSON, summaries", engines.summaries_by_duckdb_json),
    Job("pymongo → DuckDB script, summaries", engines.summaries_by_duckdb_bson),
    Job("chdb over exported JSON, summaries", engines.summaries_by_chdb),
    Job("pymongoarrow → Polars script, summaries", engines.summaries_by_polars),
    Job("pymongoarrow → Polars on 2 workers of Dask, summaries", engines.summaries_by_dask),
)
_GROUPED = Job("server $group + $merge", peers.readings_grouped)

#: The jobs whose memory and growth are told.
JOBS = (_PARQUET, _SUMMARIES, _MOVE, _RESTORE, _SCAN, _STREAM)
#: What the server does for them, alone: where it slows down as readings grow, so do they.
SERVER_JOBS = (_DRAIN, _DELETE, _INSERT)

#: No cliff worse than this, from regular buckets to irregular ones, and to other shapes;
_MIN_IRREGULAR = 1 / 3
#: and of shapes that many have, none as bad.
_MIN_COMMON = {
    (GAPS, _PARQUET): 0.65,
    (GAPS, _SUMMARIES): 0.75,
    (MIXED, _PARQUET): 0.7,
    (NAMED, _PARQUET): 0.8,
    (NAMED, _SUMMARIES): 0.8,
    (SPARSE, _PARQUET): 0.6,
    (SPARSE, _SUMMARIES): 0.65,
}
#: Nor from other times to text, nor to slots in any order.
_MIN_TEXT = 1 / 5

CASES = [
    Case(MINUTES, _COLUMNS, (Comparison(_DRAIN, None),)),
    Case(
        MINUTES,
        _PARQUET,
        (Comparison(_DRAIN, 0.65), Comparison(_BY_PYMONGO, 8), Comparison(_BY_PYMONGOARROW, 3.5)),
    ),
    Case(
        MINUTES,
        _SUMMARIES,
        (Comparison(_DRAIN, 0.5), Comparison(_UNWOUND, 6), Comparison(_MAPPED, 3)),
    ),
    Case(MINUTES, _MOVE, (Comparison(_DELETE, 0.5),)),
    Case(MINUTES, _INTO_TWO, (Comparison(_MOVE, 0.8),)),
    Case(MINUTES, _ENCRYPTED, (Comparison(_MOVE, 0.8),)),
    Case(MINUTES, _ASK_ENCRYPTED, (Comparison(_ASK, 0.6),)),
    Case(MINUTES, _RESTORE, (Comparison(_INSERT, 0.7),)),
    Case(MINUTES, _SCAN, (Comparison(_DRAIN, 0.8),)),
    Case(MINUTES, _STREAM, (Comparison(_SUMMARIES, 50),)),
    Case(READINGS, _PARQUET, (Comparison(_DRAIN, 0.85),)),
    Case(READINGS, _SUMMARIES, (Comparison(_GROUPED, 0.7),)),
    Case(SAMPLES, _PARQUET, (Comparison(_SAMPLES_BY_PYMONGO, 8), Comparison(_DRAIN, 0.68))),
    Case(SAMPLES, _SUMMARIES, (Comparison(_DRAIN, 0.65),)),
]
CASES += [
    Case(irregular, job, (Comparison(job, _MIN_COMMON.get((irregular, job), _MIN_IRREGULAR), regular),))
    for regular, irregular_ones in ((MINUTES, IRREGULAR), (SAMPLES, (SPARSE,)))
    for irregular in irregular_ones
    for job in (_PARQUET, _SUMMARIES, _MOVE, _RESTORE)
]
CASES += [
    Case(shape, job, (Comparison(job, _MIN_TEXT if shape.name in TEXTS else _MIN_IRREGULAR, like),))
    for shape, like in FURTHER.items()
    for job in (_PARQUET, _SUMMARIES, _MOVE, _RESTORE)
]
CASES += [Case(UPSERTED, job, (Comparison(job, _MIN_TEXT, MINUTES),)) for job in (_PARQUET, _SUMMARIES)]
CASES += [
    Case(MINUTES, job, tuple(Comparison(it, None) for it in engine_jobs))
    for job, engine_jobs in ((_PARQUET, _ENGINE_PARQUET), (_SUMMARIES, _ENGINE_SUMMARIES))
]
CASES += [Case(steps, _SUMMARIES, (Comparison(_SUMMARIES, 0.6, plain),)) for steps, plain in STEPS.items()]
CASES += [Case(AVERAGES, _SUMMARIES, (Comparison(_IN_WINDOWS, 4), Comparison(_BY_DUCKDB, None)))]
CASES += [Case(unordered, _MOVE, (Comparison(_DELETE, 0.5),)) for unordered in UNORDERED]
