"""What was measured, as bench/RESULTS.md for people and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.cases import JOBS, SERVER_JOBS, Case, Comparison, Job
from bench.measuring import Measured, medians
from bench.testbed import Testbed
from bench.workloads import Workload
from bucketwise.jobs.core.embedded import find_mongod

_PACKAGES = ("pymongo", "pyarrow", "numpy", "pymongoarrow")
_MAX_BYTES = 1.2  # of Parquet, a reading of the minute buckets
_MAX_MB = 400
#: The sections that `bench.models` and `bench.age` write; the last.
MODELS, AGE = "## Models", "## Age"


@dataclass
class Size:
    """All figures of one size."""

    readings: int  # asked for
    testbeds: dict[Workload, Testbed]
    found: dict[tuple[Workload, Job], list[Measured]] = field(default_factory=dict)
    bytes_each: dict[Workload, float] = field(default_factory=dict)  # of Parquet, a reading

    def add(self, workload: Workload, job: Job, measured: Measured, testbed: Testbed) -> None:
        """Adds one measurement of a job, and the size of the parts that it left."""
        self.found.setdefault((workload, job), []).append(measured)
        if parts := list(testbed.store.glob("copy/data/*/*.parquet")):
            self.bytes_each[workload] = sum(part.stat().st_size for part in parts) / testbed.readings

    def speed(self, workload: Workload, job: Job) -> float:
        """Returns million readings a second."""
        return self.testbeds[workload].readings / medians(self.found[workload, job]).seconds / 1e6

    def ratio(self, case: Case, against: Comparison, of: Callable[[Measured], float]) -> float:
        """Returns the speed as a multiple: the median of the rounds."""
        other = against.workload or case.workload
        pairs = zip(self.found[other, against.job], self.found[case.workload, case.job], strict=True)
        fewer = self.testbeds[case.workload].readings / self.testbeds[other].readings
        return median(of(theirs) / of(ours) for theirs, ours in pairs) * fewer


class Row(NamedTuple):
    """One comparison."""

    readings: int
    workload: str
    job: str
    against: str
    speed: float  # million readings a second
    other: float
    ratio: float
    of_cpu: float  # the same of the CPU that both processes took
    at_least: float | None


def write(
    sizes: Sequence[Size], grown: Sequence[Size], cases: Sequence[Case], rounds: int, folder: Path
) -> None:
    """Writes the report. `grown`: sizes at which our own jobs were measured, and what the server does for
    them."""
    rows = [row for size in sizes for row in _rows(size, cases)]
    setup = about(rounds)
    jobs = [entry for size in (*sizes, *grown) for entry in _jobs(size)]
    data = {"about": setup, "cases": [row._asdict() for row in rows], "jobs": jobs}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(data, indent=1) + "\n")
    path = folder / "RESULTS.md"
    path.write_text("\n".join(_page(sizes, grown, rows, setup)) + "\n" + _kept(path))


def without_age(path: Path) -> str:
    """Returns the page up to the section on age."""
    return path.read_text().partition(AGE)[0] if path.exists() else ""


def _kept(path: Path) -> str:
    """Returns what other benches have written."""
    text = path.read_text() if path.exists() else ""
    _, heading, section = text.partition(MODELS if MODELS in text else AGE)
    return heading + section


def _rows(size: Size, cases: Sequence[Case]) -> Iterator[Row]:
    for case in cases:
        for against in case.against:
            other = against.workload or case.workload
            yield Row(
                size.testbeds[case.workload].readings,
                case.workload.name,
                case.job.name,
                f"the same of {other.name}" if against.workload else against.job.name,
                size.speed(case.workload, case.job),
                size.speed(other, against.job),
                size.ratio(case, against, lambda it: it.seconds),
                size.ratio(case, against, lambda it: it.cpu + it.server_cpu),
                against.at_least,
            )


def _jobs(size: Size) -> Iterator[dict[str, Any]]:
    for (workload, job), found in size.found.items():
        readings = size.testbeds[workload].readings
        yield {
            "workload": workload.name,
            "job": job.name,
            "readings": readings,
            "is_ours": job in JOBS,
            **medians(found)._asdict(),
            "all_seconds": [it.seconds for it in found],
        }


def about(rounds: int) -> dict[str, str]:
    """Returns how it was measured: command, machine, versions."""
    mongod = subprocess.run(
        [find_mongod(Path("/nowhere")), "--version"], capture_output=True, text=True, check=True
    )
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "rounds": str(rounds),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.machine()}",
        "versions": ", ".join(
            [f"Python {platform.python_version()}", f"mongod {mongod.stdout.split()[2].lstrip('v')}"]
            + [f"{name} {it}" for name, it in versions.items()]
        ),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _page(
    sizes: Sequence[Size], grown: Sequence[Size], rows: Sequence[Row], setup: dict[str, str]
) -> Iterator[str]:
    yield "# Results\n"
    yield f"`{setup['command']}`: {setup['rounds']} rounds, medians."
    yield f"{setup['machine']}; {setup['versions']}.\n"
    yield "Speeds are those of one machine on one day, which may have had other work; ratios travel. In each"
    yield "round every job runs once, so that what is compared ran side by side.\n"
    for size in sizes:
        of_size = [row for row in rows if row.readings in {it.readings for it in size.testbeds.values()}]
        yield f"## {size.readings / 1e6:g} million readings\n"
        yield from _comparisons(of_size)
        yield from _figures(size)
    if len(sizes) + len(grown) > 1:
        yield from _growth(sorted((*sizes, *grown), key=lambda size: size.readings))


def _comparisons(rows: Sequence[Row]) -> Iterator[str]:
    yield from head("case", "against", "million readings/s", "theirs", "ratio", "of CPU", "at least", "")
    for row in rows:
        target = "" if row.at_least is None else f"{row.at_least:.2g}"
        missed = row.at_least is not None and row.ratio < row.at_least
        yield line(
            f"{row.workload} {row.job}" if row.job.startswith("→") else f"{row.workload}: {row.job}",
            row.against,
            f"{row.speed:.3g}",
            f"{row.other:.3g}",
            f"{row.ratio:.2f}",
            f"{row.of_cpu:.2f}",
            target,
            "missed" if missed else "",
        )
    yield ""


def _figures(size: Size) -> Iterator[str]:
    """Yields what bounds each job: where both processes worked without waiting for each other, the larger
    CPU."""
    yield "CPU is that of bucketwise (or the script) and of mongod meanwhile. The larger of the two is the"
    yield "time that it would take on a core of its own; a job that works on two at once may take less.\n"
    yield from head("job", "readings", "seconds", "CPU", "mongod's CPU", "bound by", "times that", "peak MB")
    for (workload, job), found in size.found.items():
        figures = medians(found)
        bound = max(figures.cpu, figures.server_cpu, 1e-3)
        yield line(
            f"{workload.name}: {job.name}",
            f"{size.testbeds[workload].readings:,}",
            f"{figures.seconds:.3f}",
            f"{figures.cpu:.3f}",
            f"{figures.server_cpu:.2f}",
            "itself" if figures.cpu > figures.server_cpu else "mongod",
            f"{figures.seconds / bound:.2f}",
            f"{figures.peak_mb:.0f}{_too_much(job, figures.peak_mb)}",
        )
    yield ""
    for workload, each in size.bytes_each.items():
        limit = f" (at most {_MAX_BYTES})" if workload.name == "minute buckets" else ""
        yield f"Parquet, {workload.name}: {each:.2f} bytes a reading{limit}.  "
    yield ""


def _growth(sizes: Sequence[Size]) -> Iterator[str]:
    yield "## Growth\n"
    yield "Nanoseconds a reading, and peak MB; linear is where the first stays within 15 %. The last rows are"
    yield "what the server does alone, at the same size.\n"
    yield from head("job", *(f"{size.readings / 1e6:g} M" for size in sizes))
    for workload, job in sizes[0].found:
        if job not in (*JOBS, *SERVER_JOBS) or not all((workload, job) in size.found for size in sizes):
            continue
        figures = [(size.speed(workload, job), medians(size.found[workload, job]).peak_mb) for size in sizes]
        yield line(
            f"{workload.name}: {job.name}",
            *(f"{1e3 / speed:.0f} ns, {peak:.0f} MB{_too_much(job, peak)}" for speed, peak in figures),
        )
    yield ""


def _too_much(job: Job, peak_mb: float) -> str:
    return " (too much)" if job in JOBS and peak_mb > _MAX_MB else ""


def head(*names: str) -> Iterator[str]:
    """Yields the head of a Markdown table."""
    yield line(*names)
    yield line(*("---" for _ in names))


def line(*cells: str) -> str:
    """Returns a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"
