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
from bench.age.receipts import ReceiptBytes, of_receipts
from bench.age.tables import write as write_age
from bench.cases import CASES, JOBS, SERVER_JOBS, Case, Job
from bench.measuring import measure
from bench.report import Size, write
from bench.sizes import measure as measure_sizes
from bench.testbed import Testbed, testbeds
from bench.workloads import MINUTES, Workload
from bucketwise.jobs.core.embedded import embedded_mongod

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
    if options.sizes:
        measure_sizes(options.folder)
        return
    cases = [
        case
        for case in CASES
        if all(word in f"{case.workload.name} {case.job.name}" for word in options.only)
        and not (options.regular and case.is_irregular)
    ]
    growing = [Case(MINUTES, job) for job in (*JOBS, *SERVER_JOBS)]
    sizes: list[Size] = []
    grown: list[Size] = []
    runs = [(sizes, cases, readings, options.rounds) for readings in options.scale or [_READINGS]]
    runs += [(grown, growing, readings, 1) for readings in options.growth]
    for found, cases_of_run, readings, rounds in runs:
        with tempfile.TemporaryDirectory(prefix="bucketwise-bench-", dir=options.folder) as folder:
            found.append(_measure(cases_of_run, readings, rounds, Path(folder)))
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
        receipts: list[ReceiptBytes] = []
        for name, columns in measured.items():
            with closing(columns):  # before mongod goes, whatever happens
                for column in columns:
                    tables.setdefault(name, []).append(column)
                    write_age(tables, receipts, datetime.now(UTC).date(), options.output)
        for receipt_bytes in of_receipts(uri, [1_000, 8_760, 50_000, *[1_000_000] * is_large]):
            receipts.append(receipt_bytes)
            write_age(tables, receipts, datetime.now(UTC).date(), options.output)


def _measure(cases: list[Case], readings: int, rounds: int, folder: Path) -> Size:
    """Measures every job once a round, so that the jobs compared ran side by side."""
    jobs: dict[tuple[Workload, Job], None] = {}
    for case in cases:
        jobs[case.workload, case.job] = None
        for against in case.against:
            jobs[against.workload or case.workload, against.job] = None
    with testbeds(folder) as load:
        loaded: dict[Workload, Testbed] = {}
        for workload in dict.fromkeys(workload for workload, _ in jobs):
            _print(f"loading {workload.name}")
            loaded[workload] = load(workload, readings)
        size = Size(readings, loaded)
        for number in range(rounds):
            for workload, job in jobs:
                testbed = loaded[workload]
                job.prepare(testbed)
                found = measure(job.action, testbed)
                size.add(workload, job, found, testbed)
                _print(f"round {number + 1} of {rounds}: {workload.name} {job.name}: {found.seconds:.2f} s")
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
    summaries = "instead: bytes of summaries, with their indexes"
    add("--sizes", action="store_true", help=summaries)
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


def _print(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
