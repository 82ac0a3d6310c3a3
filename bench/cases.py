"""What is measured against what, and how fast it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench import bounds, ours, peers
from bench.identities import UNORDERED
from bench.place import Action, Place
from bench.shapes import FURTHER
from bench.workloads import IRREGULAR, MINUTES, READINGS, SAMPLES, SPARSE, Workload


@dataclass(frozen=True)
class Job:
    """An action, and what has to be there before each time it is measured."""

    name: str
    do: Action
    before: Callable[[Place], None] = Place.clear


@dataclass(frozen=True)
class Against:
    """Another job to compare with, and how much faster a case has to be."""

    job: Job
    at_least: float | None  # the speed, as a multiple of this one's; None: only told
    workload: Workload | None = None  # None: the same; of another one, speeds are compared a reading


@dataclass(frozen=True)
class Case:
    """A job on a workload, and what it is compared with."""

    workload: Workload
    job: Job
    against: tuple[Against, ...] = ()

    @property
    def is_irregular(self) -> bool:
        """Returns whether documents of the workload differ in shape."""
        return self.workload in (*IRREGULAR, SPARSE, *FURTHER, *UNORDERED)


def _nothing(_place: Place) -> None:
    """Does nothing: the job only reads."""


_DRAIN = Job("draining raw batches", bounds.drain, _nothing)
_COLUMNS = Job("→ columns", ours.to_columns, _nothing)
_PARQUET = Job("→ Parquet on disk, sorted", ours.to_parquet)
_SUMMARIES = Job("→ hourly and daily summaries with percentiles", ours.to_summaries)
_MOVE = Job("whole archive: export, re-read, verify, commit, guarded delete", ours.move, Place.fill_copy)
_RESTORE = Job("restore", ours.bring_back, ours.moved)
_SCAN = Job("look-back by scan, nothing changed", ours.look_back_by_scan, ours.rolled_up_for_scan)
_STREAM = Job(
    "look-back by change stream, nothing changed", ours.look_back_by_stream, ours.rolled_up_for_stream
)
_DELETE = Job("a raw drain and a bare delete by _id", bounds.drain_and_delete, Place.fill_copy)
_INSERT = Job("insert_many of the same raw documents", bounds.insert)
_BY_PYMONGO = Job("pymongo → pyarrow script", peers.minutes_by_pymongo)
_BY_PYMONGOARROW = Job("pymongoarrow → pyarrow script", peers.minutes_by_pymongoarrow)
_SAMPLES_BY_PYMONGO = Job("pymongo → pyarrow script", peers.samples_by_pymongo)
_UNWOUND = Job("$unwind + $group + $merge", peers.minutes_unwound)
_MAPPED = Job("best server pipeline + $merge", peers.minutes_mapped)
_GROUPED = Job("server $group + $merge", peers.readings_grouped)

#: The jobs whose memory and growth are told.
JOBS = (_PARQUET, _SUMMARIES, _MOVE, _RESTORE, _SCAN, _STREAM)
#: What the server does for them, alone: where it slows down as readings grow, so do they.
BESIDE = (_DRAIN, _DELETE, _INSERT)

#: No cliff worse than this, from regular buckets to irregular ones, and to other shapes.
_CLIFF = 1 / 3

CASES = [
    Case(MINUTES, _COLUMNS, (Against(_DRAIN, None),)),
    Case(
        MINUTES,
        _PARQUET,
        (Against(_DRAIN, 0.6), Against(_BY_PYMONGO, 8), Against(_BY_PYMONGOARROW, 3.5)),
    ),
    Case(
        MINUTES,
        _SUMMARIES,
        (Against(_DRAIN, 0.5), Against(_UNWOUND, 6), Against(_MAPPED, 3)),
    ),
    Case(MINUTES, _MOVE, (Against(_DELETE, 0.5),)),
    Case(MINUTES, _RESTORE, (Against(_INSERT, 0.7),)),
    Case(MINUTES, _SCAN, (Against(_DRAIN, 0.8),)),
    Case(MINUTES, _STREAM, (Against(_SUMMARIES, 50),)),
    Case(READINGS, _PARQUET, (Against(_DRAIN, 0.85),)),
    Case(READINGS, _SUMMARIES, (Against(_GROUPED, 0.7),)),
    Case(SAMPLES, _PARQUET, (Against(_SAMPLES_BY_PYMONGO, 8), Against(_DRAIN, None))),
    Case(SAMPLES, _SUMMARIES, (Against(_DRAIN, None),)),
]
CASES += [
    Case(irregular, job, (Against(job, _CLIFF, regular),))
    for regular, some in ((MINUTES, IRREGULAR), (SAMPLES, (SPARSE,)))
    for irregular in some
    for job in (_PARQUET, _SUMMARIES, _MOVE, _RESTORE)
]
CASES += [
    Case(shape, job, (Against(job, _CLIFF, like),))
    for shape, like in FURTHER.items()
    for job in (_PARQUET, _SUMMARIES, _MOVE, _RESTORE)
]
CASES += [Case(unordered, _MOVE, (Against(_DELETE, 0.5),)) for unordered in UNORDERED]
