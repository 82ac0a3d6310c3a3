"""The step of a run that moves parts to the storage classes that they are due for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from bucketwise.jobs.core.turn import Step, StepResult, Turn, pick
from bucketwise.jobs.output.closing import counted
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text import size


def _move(turn: Turn) -> StepResult:
    from bucketwise.archivers.classes.moving import move_parts

    report = move_parts(turn.context, writes=not turn.dry_run)
    if not report:
        return StepResult({})
    return StepResult({**pick(report, "commits", "parts", "bytes", "waiting"), "to": dict(report.classes)})


CLASSES = Step("classes", _move, by_present=True, preconditions="rewriting", weight=0.1)


def class_lines(results: Sequence[Result], *, dry_run: bool = False) -> Iterator[Text]:
    """Yields what a run moved to other storage classes, if anything."""
    for result in results:
        if not (body := result.body.get("classes")):
            continue
        if body["commits"]:
            to = ", ".join(f"{parts:,} to {named}" for named, parts in sorted(body["to"].items()))
            what = f"parts of {counted(body['commits'], 'commit')}, {size(body['bytes'])}"
            yield Text(f"{result.policy}: {what}, {'would move' if dry_run else 'moved'}: {to}")
        if body["waiting"]:
            waits = "wait for a copy of the store that lags, before their parts move"
            yield Text(f"{result.policy}: {counted(body['waiting'], 'commit')} {waits}")
