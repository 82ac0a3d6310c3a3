"""`bucketwise remodel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.inferring.guess import Guess
from bucketwise.buckets.writing.targets import ALIASES, TARGETS, target_named
from bucketwise.config.checks.names import collection_fault
from bucketwise.config.checks.targets import reserved
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.drafts import draft_policy, policy_names, policy_text
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.lease import COLLECTION as LEASES
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.subject import subject_of
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.tables import printable
from bucketwise.jobs.remodel.remodel import COLLECTION as REMODELLED
from bucketwise.jobs.remodel.remodel import Remodel, counted

Name = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="The collection to rewrite; it is only read.")
]


To = Annotated[
    str,
    typer.Option("--to", metavar="MODEL", help=f"{', '.join(TARGETS)}, or any number of samples: samples-N."),
]


Into = Annotated[
    str, typer.Option("--into", metavar="COLLECTION", help="The collection to write: a new one.")
]


DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what the model has no place for.")]


def remodel(call: Call, name: Name, *, to: To, into: Into, dry_run: DryRun = False) -> Report:
    """Rewrite a collection in another bucket model.

    Writes a new collection, compares it with the source reading by reading, and shows the policy for it.
    The source is not touched. What the model has no place for is told first: readings that it can't hold
    keep all from being written. Run again after an interruption: it goes on where it was.
    """
    model = target_named(to)
    if model is None:
        known = ", ".join((*TARGETS, *ALIASES))
        raise UsageError(f"--to {to}: there is no such model. There are: {known}, and samples-N up to 10000")
    call.needs_policies = False
    if fault := collection_fault(into, call.settings.mongodb.database):
        raise UsageError(f"--into {into}: {fault.message}; {fault.remedy}")
    if key := reserved(call.settings.policies.values()).get(into):
        raise UsageError(f"--into {into}: {key} is this collection. Name another one")
    return remodel_collection(call, name, model, into, dry_run=dry_run)


LEFT_SOMETHING, FAILED, REFUSED = 3, 1, 2


def remodel_collection(call: Call, name: str, model: str, into: str, *, dry_run: bool) -> Report:
    """Rewrites a collection as another model. Raises UsageError, LeaseHeldError."""
    with call.database() as database:
        subject = subject_of(call, database, name)
        task = Remodel(subject, model, into, [call.stop.check], call.progress)
        task.bookmark.check()
        with task.progress.step(f"looking through {name}"):
            task.look()
        policy = _policy(task, database.list_collection_names())
        if dry_run or task.survey.uncarried:
            return _report(call, task, policy, differing=None)
        with Lease(database, f"remodel {into}") as lease:
            done = task.bookmark.check()
            task.checks = [call.stop.check, lease.check]
            task.documents = done.documents if done else 0
            if done is None or not done.done:
                with task.progress.step(f"writing {into}"):
                    task.write(is_begun=done is not None)
            with task.progress.step(f"comparing {into} with {name}"):
                differing = task.differing()
            if not differing:
                task.bookmark.set(task.documents, done=True)
        return _report(call, task, policy, differing)


def _policy(task: Remodel, taken: list[str]) -> str:
    """Returns the policy for what is written, as text; a comment says why there is none."""
    name = policy_names([task.into])[task.into]
    found = Guess(task.into, task.target.policy.model_copy(update={"name": name}))
    made = draft_policy(found, task.subject.database.name, taken)
    return policy_text(made) if made.policy else "".join(f"# {it}\n" for it in made.reasons)


def _report(call: Call, task: Remodel, policy: str, differing: int | None) -> Report:
    survey = task.survey
    body = {
        "collection": task.subject.policy.collection,
        "model": task.model,
        "into": task.into,
        "documents": task.documents,
        "readings": survey.readings,
        "equal": differing == 0,
        "left_out": survey.left_out,
        "uncarried": survey.uncarried,
        "policy": policy,
    }
    code = LEFT_SOMETHING if survey.left_out and differing == 0 else 0
    error = _complaint(task, differing)
    if error is not None:
        code = FAILED if differing else REFUSED
    return Report(call.command, call.now, [], _shown(body, differing), error, code, body)


def _complaint(task: Remodel, differing: int | None) -> str | None:
    """Returns what kept the readings from being written, or from being the same."""
    if task.survey.uncarried:
        return (
            f"nothing was written: {task.model} has no place for {counted(task.survey.uncarried)}. Correct "
            "or remove these in the source, or name another model with --to"
        )
    if differing:
        return (
            f"{task.into}: at least {differing:,} readings differ from "
            f"{task.subject.policy.collection}, which was only read. If it was written to since, stop "
            f"that, drop {task.into} and run again"
        )
    return None


def _shown(body: dict[str, Any], differing: int | None) -> list[RenderableType]:
    lines = []
    if body["left_out"]:
        named = ", ".join(f"{name} (in {count:,} documents)" for name, count in body["left_out"].items())
        lines.append(f"Left out, for {body['model']} has no place for it: {named}")
    if differing is None:
        lines.append(f"{body['readings']:,} readings were looked at; nothing was written")
    else:
        lines.append(f"{body['into']}: {body['documents']:,} documents, {body['readings']:,} readings")
        lines.append(
            "Equal to the source, reading by reading" if body["equal"] else "Not equal to the source"
        )
    return [*(Text(printable(it)) for it in lines), Text(body["policy"])]


JOB = Job(
    remodel,
    rights={REMODELLED: ("insert", "update"), LEASES: ("insert", "update")},
    examples=(
        "bucketwise remodel prices --to slots-minute --into prices_by_minute",
        "bucketwise remodel iot --to samples-200 --into iot_200 --dry-run",
        "bucketwise remodel ticks --to timeseries --into ticks_native",
    ),
)
