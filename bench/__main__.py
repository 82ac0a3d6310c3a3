"""Measures every case at one size or more, and writes bench/RESULTS.md and bench/results.json."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from bench import models, publish
from bench.age.measuring import Column, after_commits, for_policies, with_series
from bench.age.receipts import Room, of_receipts
from bench.age.tables import write as write_age
from bench.cases import BESIDE, CASES, JOBS, Case, Job
from bench.measuring import measure
from bench.place import Place, places
from bench.report import Size, write
from bench.workloads import MINUTES, Workload
from jobs.embedded import embedded_mongod

_HERE = Path(__file__).parent
_READINGS = 1_728_000
_UNITS = {"k": 1_000, "M": 1_000_000}


def main() -> None:
    """Measures what the command line asks for, and writes the results."""
    options = _options()
    if options.age:
        _measure_age(options)
        return
    if options.models:
        with (
            tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=options.folder) as folder,
            embedded_mongod(Path(folder)) as mongod,
        ):
            readings = (options.scale or [models.READINGS])[0]
            models.write(*models.measure(mongod.uri, readings), options.output)
        return
    if options.publish:
        publish.measure(options.folder)
        return
    cases = [
        case
        for case in CASES
        if all(word in f"{case.workload.name} {case.job.name}" for word in options.only)
        and not (options.regular and case.is_irregular)
    ]
    growing = [Case(MINUTES, job) for job in (*JOBS, *BESIDE)]
    sizes: list[Size] = []
    grown: list[Size] = []
    runs = [(sizes, cases, readings, options.rounds) for readings in options.scale or [_READINGS]]
    runs += [(grown, growing, readings, 1) for readings in options.growth]
    for found, what, readings, rounds in runs:
        with tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=options.folder) as folder:
            found.append(_measure(what, readings, rounds, Path(folder)))
        write(sizes, grown, cases, options.rounds, options.output)


def _measure_age(options: argparse.Namespace) -> None:
    is_large = options.scale is not None
    with (
        tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=options.folder) as folder,
        embedded_mongod(Path(folder)) as mongod,
    ):
        uri = mongod.uri
        measured = {
            "commits": after_commits(uri, [10, 100, 1_000, *[20_000] * is_large]),
            "series": with_series(uri, [1_000, 10_000, *[100_000] * is_large]),
            "policies": for_policies(uri, [1, 20, 100]),
        }
        tables: dict[str, list[Column]] = {}
        rooms: list[Room] = []
        for name, columns in measured.items():
            with closing(columns):  # before mongod goes, whatever happens
                for column in columns:
                    tables.setdefault(name, []).append(column)
                    write_age(tables, rooms, datetime.now(UTC).date(), options.output)
        for room in of_receipts(uri, [1_000, 8_760, 50_000, *[1_000_000] * is_large]):
            rooms.append(room)
            write_age(tables, rooms, datetime.now(UTC).date(), options.output)


def _measure(cases: list[Case], readings: int, rounds: int, folder: Path) -> Size:
    """Measures every job once a round, so that the jobs compared ran side by side."""
    wanted: dict[tuple[Workload, Job], None] = {}
    for case in cases:
        wanted[case.workload, case.job] = None
        for against in case.against:
            wanted[against.workload or case.workload, against.job] = None
    with places(folder) as load:
        there: dict[Workload, Place] = {}
        for workload in dict.fromkeys(workload for workload, _ in wanted):
            _tell(f"loading {workload.name}")
            there[workload] = load(workload, readings)
        size = Size(readings, there)
        for number in range(rounds):
            for workload, job in wanted:
                place = there[workload]
                job.before(place)
                found = measure(job.do, place)
                size.add(workload, job, found, place)
                _tell(f"round {number + 1} of {rounds}: {workload.name} {job.name}: {found.seconds:.2f} s")
    return size


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--scale", type=_scale, nargs="*", help="readings, as 1.7M 17M 170M")
    age = (
        "instead: what commands cost after many commits, with many series, for many policies (--scale: more)"
    )
    add("--age", action="store_true", help=age)
    add("--models", action="store_true", help="instead: the same prices in each bucket model")
    published = "instead: sizes and reads of summaries in Redis, beside MongoDB"
    add("--publish", action="store_true", help=published)
    growth = "further sizes at which our own jobs and their bounds are measured, once, on minute buckets"
    add("--growth", type=_scale, nargs="+", default=[], help=growth)
    add("--rounds", type=int, default=5, help="how often each job is measured (default 5; the median counts)")
    add("--only", nargs="+", default=[], help="words that a case must have in its name")
    add("--regular", action="store_true", help="leave out the irregular buckets, which take long")
    add("--folder", type=Path, help="where the databases lie meanwhile")
    add("--output", type=Path, default=_HERE, help="where RESULTS.md and results.json go")
    return parser.parse_args()


def _scale(text: str) -> int:
    return int(float(text.rstrip("kM")) * _UNITS.get(text[-1], 1))


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
