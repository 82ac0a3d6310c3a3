"""Registers archives in Iceberg tables, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.lake.report import LakeReport
from bucketwise.archivers.preconditions import OF_ARCHIVES
from bucketwise.archivers.proof.findings import Finding
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import Lake
from bucketwise.jobs.running.turn import Follower, Step, StepResult, Turn
from bucketwise.jobs.steps.working import prepare

Body = dict[str, Any]


@contextmanager
def installed() -> Iterator[None]:
    """Makes the block raise UsageError where what works with Iceberg can't be imported."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"[lake]: pyiceberg is not installed here ({error}). Install it: pip install 'bucketwise[lake]'; "
            "or remove the table from the policy file"
        ) from error


def sync_step(lake: Lake) -> Step:
    """Returns the step that compares a table with its archive, and registers what it lacks."""

    def do(turn: Turn) -> StepResult:
        prepare(turn)
        return StepResult(_body(_sync(turn.context, lake, whole=True)))

    return Step("lake sync", do, preconditions=OF_ARCHIVES)


def registering(lake: Lake | None) -> tuple[Follower, ...]:
    """Returns the follower that registers, at the end, what a run has archived; or none. Where the run
    failed, something may be half-done, and the next one registers it."""
    if lake is None:
        return ()
    return (Follower("lake", lambda turn: _body(_sync(turn.context, lake, whole=False))),)


def lake_findings(lake: Lake | None, turn: Turn) -> list[Finding]:
    """Returns how a policy's table differs from its archive, for an audit."""
    if lake is None:
        return []
    with installed():
        found = archive_of(turn.context).lake_differences(lake)
    return [
        Finding("lake-behind", turn.policy.name, it.place, "warning", it.message)
        if it.is_behind
        else Finding("lake-differs", turn.policy.name, it.place, "error", it.message)
        for it in found
    ]


def _sync(context: ArchiveContext, lake: Lake, *, whole: bool) -> LakeReport:
    with installed():
        return archive_of(context).sync_lake(lake, whole=whole)


def _body(report: LakeReport) -> Body:
    return report._asdict()
