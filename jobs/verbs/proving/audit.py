"""`bucketwise audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from config.errors import UsageError
from jobs.call import Call
from jobs.options import Executor, WorkerCount
from jobs.output.html import audit_page
from jobs.output.report import Report
from jobs.output.tables import findings_table, parts_lines
from jobs.running.runner import Runner, RunOptions
from jobs.running.steps import audit_step

EXAMPLES = [
    "bucketwise audit",
    "bucketwise audit --full",
    "bucketwise audit --html audit.html",
    "bucketwise audit -p ticks --json",
]
Full = Annotated[bool, typer.Option("--full", help="Read the whole archive, whatever `audit.sample` says.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the findings as an HTML page.")
]


def audit(
    call: Call,
    full: Full = False,
    html: Html = None,
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Check that every policy is kept.

    Tells what is overdue, missing, not as recorded, or about to be lost. Ends with exit code 4 where a
    policy is not kept. Warnings alone end with 0.
    """
    if html is not None and not html.parent.is_dir():
        raise UsageError(f"--html {html}: there is no folder {html.parent}")
    policies, staff = call.policies, call.staff(workers, executor)
    with call.database() as database:
        options = RunOptions(dry_run=True, staff=staff)
        step = audit_step(full=full, drilled_every=call.settings.drill.every)
        results = Runner.of(call, database, [step], options).run_all(policies)
    if html is not None:
        html.write_text(audit_page(results, call.now), encoding="utf-8")
    findings = [it for result in results for it in result.body.get("findings", [])]
    tables = [findings_table("Audit", findings), *parts_lines(results)]
    return Report(call.command, call.now, results, tables)
