"""`bucketwise plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketwise.config.errors import UsageError
from bucketwise.config.loading.load import load
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.runner import RunOptions, perform
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.plan.against import against_step, against_tables, check_comparable
from bucketwise.jobs.run.verb import RUN, run_tables

Against = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="Compare with a changed policy file, now and in 90 days."),
]


def plan(call: Call, *, against: Against = None) -> Report:
    """Show what `run` would do now.

    And why what stays stays. With --against: what a changed policy file would archive, delete and keep,
    compared with this one. Changes nothing.
    """
    if against is not None:
        if call.workers is not None or call.executor is not None:
            raise UsageError("--against: it takes neither --workers nor --executor")
        return _compare(call, against)
    open_executor = call.open_executor()
    results = perform(call, RUN, RunOptions(dry_run=True, open_executor=open_executor))
    return Report(call.command, call.now, results, run_tables(results))


def _compare(call: Call, path: Path) -> Report:
    if not path.exists():
        raise UsageError(f"--against {path}: there is no such file")
    today, other = call.settings, load(path, call.environ)
    check_comparable(today, other)
    known = today.policies | {name: it for name, it in other.policies.items() if name not in today.policies}
    policies = call.chosen(known, f"{today.path} and {path} have")
    results = perform(call, [against_step(today, other)], RunOptions(dry_run=True), policies=policies)
    return Report(call.command, call.now, results, against_tables(results))


JOB = Job(
    plan,
    examples=(
        "bucketwise plan",
        "bucketwise plan -p ticks --now 2026-12-01",
        "bucketwise plan --against changed.toml",
    ),
    has_workers=True,
)
