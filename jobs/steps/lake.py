"""The steps that register archives in Iceberg tables, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from archivers.context import ArchiveContext
from archivers.lake.report import LakeReport
from archivers.proof.findings import Finding
from config.errors import UsageError
from config.tables import Lake
from jobs.failures import explain
from jobs.running.turn import Done, Step, Turn
from jobs.steps.working import prepare

Body = dict[str, Any]


@contextmanager
def installed() -> Iterator[None]:
    """Raises UsageError where what works with Iceberg can't be imported."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"[lake]: pyiceberg is not installed here ({error}). Install it: pip install 'bucketwise[lake]'; "
            "or take the table out of the policy file"
        ) from error


def sync_step(lake: Lake) -> Step:
    """Returns the step that compares a table with its archive, and registers what it lacks."""

    def do(turn: Turn) -> Done:
        prepare(turn)
        return Done(_body(_sync(turn.context, lake, whole=True)))

    return Step("lake sync", do)


def registering(lake: Lake | None, steps: Sequence[Step]) -> Sequence[Step]:
    """Returns these steps, which register in the end what they have changed. That this fails is told, and is
    no failure of theirs."""
    if lake is None:
        return steps
    if len(steps) > 1:
        return (*steps, Step("lake", lambda turn: Done(_registered(turn, lake))))
    (step,) = steps

    def do(turn: Turn) -> Done:
        done = step.do(turn)
        return done if turn.dry_run else Done({**done.body, "lake": _registered(turn, lake)}, done.exit_code)

    return (replace(step, do=do),)


def lake_findings(lake: Lake | None, turn: Turn) -> list[Finding]:
    """Returns how a policy's table differs from its archive, for an audit."""
    if lake is None:
        return []
    with installed():
        from archivers.lake.differences import differences
    found = differences(turn.context, lake)
    return [
        Finding("lake-behind", turn.policy.name, it.place, "warning", it.message)
        if it.is_behind
        else Finding("lake-differs", turn.policy.name, it.place, "error", it.message)
        for it in found
    ]


def _sync(context: ArchiveContext, lake: Lake, *, whole: bool) -> LakeReport:
    with installed():
        from archivers.lake.sync import sync
    return sync(context, lake, whole=whole)


def _registered(turn: Turn, lake: Lake) -> Body:
    try:
        return _body(_sync(turn.context, lake, whole=False))
    except Exception as error:  # noqa: BLE001  # whatever it is: what was archived is archived
        turn.context.check()  # a run that has to stop stops
        return {"error": explain(error).message}


def _body(report: LakeReport) -> Body:
    return report._asdict()
