"""`bucketwise audit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config import VERSION
from bucketwise.config.errors import HaltedError
from bucketwise.jobs import copy, lake
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import PAUSED, Code, Job
from bucketwise.jobs.core.turn import (
    NOT_KEPT,
    Finding,
    RunOptions,
    Step,
    StepResult,
    Turn,
    findings_result,
    perform,
)
from bucketwise.jobs.lake import lake_findings
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import check_folder, write_atomically
from bucketwise.jobs.output.tables import closing, counted, findings_table, sums
from bucketwise.jobs.publish import verb as publish
from bucketwise.jobs.publish.verb import publishing

Body = dict[str, Any]

_EXIT_5 = "Follow “What to do at exit 5” in the operations manual."
_RECEIPTS = "Restore `bucketwise_receipts` from a backup. Find out who changed or removed them."
#: A policy that has run since then is in use, whichever policy file it is in.
_LATELY = timedelta(days=7)
_FOREIGN = "Find out who put it there, and move it away. Readers of `data/` beside bucketwise see it."

AUDITED = (
    PAUSED,
    Code(
        "policy-departed",
        "If it has ended: `bucketwise retire NAME`. If it goes on in another policy file, audit that one. If "
        "it was removed by mistake, put it back.",
        severities=("warning",),
    ),
    Code("overdue", "Run `bucketwise run`. If it stays: `bucketwise plan` says why."),
    Code(
        "not-rolled-up",
        "Run `bucketwise rollup`; where late readings are found by scan, with `--since` and `--until`.",
    ),
    Code(
        "readings-gone",
        "Find out what deleted them, and restore it from a backup. If it was intended, `erase` removes "
        "the summaries of a series and range. Those that a hold covers stay until its release.",
    ),
    Code(
        "summaries-outdated",
        "Nothing, or put the settings back: nothing can make these summaries again.",
        severities=("warning",),
    ),
    Code("summaries-missing", "Run `bucketwise run`. Find out who removed them."),
    Code(
        "summaries-lost",
        "Restore them, or their readings, from a backup of MongoDB, if there is one: the next run then "
        "counts them again. Else this stays until they are past their `retain`. Find out who removed them.",
        severities=("warning",),
    ),
    Code("summaries-past-retention", "Run `bucketwise run`."),
    Code("archive-past-retention", "Run `bucketwise run`."),
    Code("part-missing", _EXIT_5),
    Code("part-differs", _EXIT_5),
    Code("chain-broken", _EXIT_5),
    Code(
        "checkpoint-missing",
        "Find out who removed it. The next run makes another one, if the chain is whole.",
    ),
    Code(
        "checkpoint-differs",
        "Find out who changed it, and remove the file: the next run makes another one, if the chain is "
        "whole.",
    ),
    Code("store-rolled-back", _EXIT_5),
    Code("copy-missing", "Restore the document from a backup of the collection."),
    Code("copy-differs", "Restore the document from a backup of the collection. Find out who changed it."),
    Code(
        "copy-unknown",
        "Find out who put it there, and move it away. Where receipts were lost, as by a backup: "
        "`bucketwise adopt`.",
    ),
    Code("archive-baseline", "Nothing; it stays on record.", severities=("ok",)),
    Code("archive-not-ours", "Follow “Whose archive it is” in the operations manual."),
    Code(
        "archive-missing",
        "Put the collection back, or correct `archive.collection`. Where it was restored or moved on "
        "purpose: `bucketwise adopt`.",
    ),
    Code(
        "archive-replaced",
        "Put the collection back. Where it was restored from a backup on purpose: `bucketwise adopt`, then "
        "`bucketwise verify`.",
    ),
    Code("archive-short", "Restore them from a backup: `bucketwise verify` names each."),
    Code("signature-missing", "Follow “Signing” in the operations manual."),
    Code("signature-wrong", _EXIT_5),
    Code("receipt-missing", _RECEIPTS),
    Code("receipt-differs", _RECEIPTS),
    Code(
        "hold-missing",
        "Restore `bucketwise_holds` from a backup, or place it again. Find out who removed it.",
    ),
    Code("hold-differs", "Restore `bucketwise_holds` from a backup. Find out who changed it."),
    Code(
        "receipts-rolled-back",
        "If a backup was restored on purpose: `bucketwise adopt`, which records it. Otherwise restore "
        "`bucketwise_receipts` from a backup.",
    ),
    Code("record-differs", _RECEIPTS),
    Code(
        "commit-unregistered",
        "If the database was restored from a backup on purpose: `bucketwise adopt`. Otherwise find out who "
        "wrote it.",
    ),
    Code("commit-foreign", _FOREIGN),
    Code("file-foreign", _FOREIGN),
    Code("receipts-lost", "Nothing; it stays on record.", severities=("warning",)),
    Code(
        "version-differs",
        "Restore it from a backup: of the collection with `_versions` appended to its name, or, "
        "offline, of the file under `meta/versions`.",
    ),
    Code("part-unlisted", "The next run removes it."),
    Code("ttl-conflict", "Drop the TTL index, or make its period longer."),
    Code(
        "overflow-orphaned",
        "Restore their buckets into the source, so that the next run takes both together; or remove "
        "the documents.",
    ),
    Code("quarantined", "Follow “Quarantine, and how to repair a bucket” in the operations manual."),
    Code("valueless", "Follow “Does the policy fit” in the operations manual."),
    Code("not-drilled", "Run `bucketwise drill`, or set `drill.schedule`.", severities=("warning",)),
    Code("hole", "Look at what writes the series.", severities=("warning",)),
)

Full = Annotated[bool, typer.Option("--full", help="Read the whole archive, whatever `audit.sample` says.")]

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write findings and evidence as an HTML page."),
]


def audit(
    call: Call,
    full: Full = False,
    html: Html = None,
) -> Report:
    """Check that every policy is kept.

    Tells what is overdue, missing, not as recorded, or about to be lost. Ends with exit code 4 where a
    policy is not kept. Warnings alone end with 0.
    """
    from bucketwise.archivers.records.deletions import policy_digest
    from bucketwise.config.written import policy_toml
    from bucketwise.jobs.audit.page import audit_page, words

    if html is not None:
        check_folder("--html", html)
    policies, open_executor = call.policies, call.open_executor()
    options = RunOptions(dry_run=True, open_executor=open_executor, noted=_noted)
    found = publishing(call.settings)
    step = audit_step(
        full=full,
        evidence=call.json or html is not None,
        drilled_every=call.settings.drill.every,
        finders=[
            *([found.findings] if found else []),
            partial(lake_findings, call.settings.lake),
            partial(copy.copy_findings, call.settings.store),
            *([] if call.names else [partial(departed_findings, policies[0].name)]),
        ],
    )
    results = perform(call, [step], options, policies=policies)
    for policy, result in zip(policies, results, strict=False):  # an interruption leaves some out
        url = None if call.settings.store is None else call.settings.store.url
        text = {"settings": policy_toml(policy), "policy_sha256": policy_digest(policy)}
        result.body = {"words": words(policy, url), **text, **result.body}
    findings = [it for result in results for it in result.body.get("findings", [])]
    tables = [findings_table("Audit", findings), *parts_lines(results), *audit_closing(results)]
    report = Report(call.command, call.now, results, tables, extra=_circumstances(call))
    if html is not None:
        with write_atomically(html) as file:
            file.write(audit_page(report.plain()).encode())
    return report


def departed_findings(first: str, turn: Turn) -> list[Finding]:
    """Returns, in the turn of the policy named `first`, which policies have left the file, have not ended,
    and are run from no other file either: nobody looks at what they have archived."""
    from bucketwise.jobs.core.ledger import Ledger
    from bucketwise.rollups.progress import COLLECTION as PROGRESS

    context = turn.context
    if turn.policy.name != first:
        return []
    known = {it.identity for it in context.known}
    departed = [name for it in context.policy_records.standing() if (name := it.identity) not in known]
    runs = Ledger(context.database).latest(departed, 1) if departed else {}
    found = []
    for name in departed:
        if any(it.started > context.now - _LATELY for it in runs.get(name, (None, []))[1]):
            continue
        message = (
            f"policy {name} is not in the policy file, has run nowhere for {_LATELY.days} days, and was not "
            f"retired: nobody looks at what it has archived. `bucketwise audit -p {name}` does. If it has "
            f"ended: `bucketwise retire {name} --reason TEXT`"
        )
        found.append(Finding("policy-departed", name, f"{PROGRESS}, {name}", "warning", message))
    return found


def _noted(body: Body) -> Body:
    """Returns what the history of a policy tells of an audit: findings by severity, and how much was read."""
    if "parts" not in body:  # it could not be audited
        return {}
    severities = Counter(it["severity"] for it in body["findings"])
    found = {"errors": severities["error"], "warnings": severities["warning"]}
    return {**found, "parts": body["parts"], "parts_read": body["parts_read"]}


def _circumstances(call: Call) -> dict[str, str]:
    """Returns who audits which policies, by which program."""
    from bucketwise.jobs.core.machine import this_user

    settings = call.settings
    place = {"hosts": call.hosts, "database": settings.mongodb.database, "config": str(settings.path)}
    return {"by": this_user(), "version": VERSION, **place}


def audit_step(
    *,
    full: bool = False,
    evidence: bool = False,
    drilled_every: timedelta | None = None,
    finders: Sequence[Callable[[Turn], list[Finding]]] = (),
) -> Step:
    """Returns the step that audits.

    `full`: reads all parts, whatever the policy says. `evidence`: also reports where each day is, how much
    there is, and how it is proven. `drilled_every`: how long a day may go without a drill; None: forever.
    `finders`: return further findings.
    """

    def do(turn: Turn) -> StepResult:
        from bucketwise.archivers.mirroring.places import first_alone
        from bucketwise.jobs.audit.audit import audit_policy
        from bucketwise.jobs.audit.evidence import evidence_body
        from bucketwise.jobs.core.lease import pause_findings

        context = first_alone(turn.context)
        report = audit_policy(context, turn.readers, full=full, drilled_every=drilled_every)
        further = (it for find in finders for it in find(turn))
        done = findings_result([*pause_findings(turn), *report.findings, *further], NOT_KEPT)
        read = {"parts": report.parts, "parts_read": report.parts_read, "days": report.days}
        remedies = {
            it.code: it.remedy for job in (JOB, lake.JOB, publish.JOB, copy.JOB) for it in job.audited
        }
        for it in done.body["findings"]:
            it["remedy"] = remedies[it["code"]]
        proof = evidence_body(turn.context) if evidence else {}
        code = HaltedError.exit_code if report.halted else done.exit_code
        return StepResult({**done.body, **read, **proof}, code)

    return Step("audit", do, by_present=True, preconditions="knowing")


AUDIT = audit_step()


def parts_lines(results: Iterable[Result]) -> list[RenderableType]:
    """Returns how much of each offline archive an audit has read."""
    from bucketwise.jobs.audit.page import parts_read

    read = ((it.policy, parts_read(it.body)) for it in results)
    return [Text(f"{policy}: {text}") for policy, text in read if text]


def audit_closing(results: Sequence[Result]) -> list[Text]:
    """Returns the line of `audit`: is every policy kept?"""
    kept = [it for it in results if it.exit_code == 0]
    read, parts = sums(results, "parts_read", "parts")
    told = "every one is kept" if len(kept) == len(results) else f"{len(kept):,} kept"
    return closing(results, f"{told}; {read:,} of {counted(parts, 'part')} read")


JOB = Job(
    audit,
    body=proving.Audit,
    beside=proving.AuditWhole,
    examples=(
        "bucketwise audit",
        "bucketwise audit --full",
        "bucketwise audit --html audit.html",
        "bucketwise audit -p ticks --json",
    ),
    is_measured=True,
    has_workers=True,
    reads_departed=True,
    audited=AUDITED,
)
