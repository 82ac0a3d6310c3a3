"""`bucketwise audit`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bucketwise import __version__
from bucketwise.archivers.records.deletions import policy_digest
from bucketwise.config.errors import UsageError
from bucketwise.config.written import policy_toml
from bucketwise.jobs.call import Call
from bucketwise.jobs.options import Executor, WorkerCount
from bucketwise.jobs.output.page.render import audit_page
from bucketwise.jobs.output.page.words import words
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.streams import write_atomically
from bucketwise.jobs.output.text.tables import findings_table, parts_lines
from bucketwise.jobs.running.machine import this_user
from bucketwise.jobs.running.runner import RunOptions, perform
from bucketwise.jobs.steps.lake import lake_findings
from bucketwise.jobs.steps.publish import publishing
from bucketwise.jobs.steps.working import audit_step

EXAMPLES = [
    "bucketwise audit",
    "bucketwise audit --full",
    "bucketwise audit --html audit.html",
    "bucketwise audit -p ticks --json",
]
Full = Annotated[bool, typer.Option("--full", help="Read the whole archive, whatever `audit.sample` says.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write findings and evidence as an HTML page."),
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
    policies, open_executor = call.policies, call.open_executor(workers, executor)
    options = RunOptions(dry_run=True, open_executor=open_executor)
    found = publishing(call.settings)
    step = audit_step(
        full=full,
        evidence=call.json or html is not None,
        drilled_every=call.settings.drill.every,
        finders=[*([found.findings] if found else []), partial(lake_findings, call.settings.lake)],
    )
    results = perform(call, [step], options, policies=policies)
    for policy, result in zip(policies, results, strict=False):  # an interruption leaves some out
        url = None if call.settings.store is None else call.settings.store.url
        text = {"settings": policy_toml(policy), "policy_sha256": policy_digest(policy)}
        result.body = {"words": words(policy, url), **text, **result.body}
    findings = [it for result in results for it in result.body.get("findings", [])]
    tables = [findings_table("Audit", findings), *parts_lines(results)]
    report = Report(call.command, call.now, results, tables, extra=_circumstances(call))
    if html is not None:
        with write_atomically(html) as file:
            file.write(audit_page(report.plain()).encode())
    return report


def _circumstances(call: Call) -> dict[str, str]:
    """Who audits what, with what."""
    settings = call.settings
    place = {"hosts": call.hosts, "database": settings.mongodb.database, "config": str(settings.path)}
    return {"by": this_user(), "version": __version__, **place}
