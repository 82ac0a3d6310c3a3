"""`bucketwise verify`: re-reads archived parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Since, Until
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import proving
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, instant, job_table, sums

Body = dict[str, Any]


def verify(call: Call, since: Since = None, until: Until = None) -> Report:
    """Re-read archived parts.

    They are read from where they lie and held against their manifests, in the store and in each of its
    copies. A part that is not what its manifest says ends with exit code 5: a person must look.
    """
    # It changes nothing, so it needs no lease: dry.
    options = RunOptions(call.ranges(since, until), dry_run=True, noted=_noted)
    results = perform(call, [VERIFY], options)
    return Report(call.command, call.now, results, verify_tables(results))


def _verify(turn: Turn) -> StepResult:
    from bucketwise.archivers.copying.repairing import verify_everywhere

    report, bad = verify_everywhere(turn.context, turn.within)
    damage = [pick(it, "code", "place", "message") for it in bad]
    body = {"parts": report.parts, "readings": report.readings, "bad": len(damage), "damage": damage}
    if report.cold:
        body["cold"] = [
            {"commit": it.commit, "parts": it.parts, "proven_at": it.proven} for it in report.cold
        ]
    return StepResult(body, HaltedError.exit_code if damage else 0)


def _noted(body: Body) -> Body:
    """Returns the counts that the history of an archive tells."""
    return {key: it for key, it in body.items() if key not in ("damage", "cold")}


VERIFY = Step("verify", _verify, preconditions="reading")


def verify_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `verify` prints: counts, and each damage."""
    damage = [
        Text(
            f"{result.policy}: {it['code']} {it['place']}: {it['message'].removeprefix(it['place'] + ': ')}",
            style="bold red",
        )
        for result in results
        for it in result.body.get("damage", [])
    ]
    parts, readings = sums(results, "parts", "readings")
    told = f"{len(damage):,} bad" if damage else "all are as they were written"
    what = f"read {counted(parts, 'part')} with {counted(readings, 'reading')}; {told}"
    cold = list(_cold_lines(results))
    closed = closing(results, what if parts or damage or cold else "nothing is archived")
    return [job_table(JOB, results), *damage, *cold, *closed]


def _cold_lines(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        if cold := result.body.get("cold"):
            count, since = counted(len(cold), "cold commit"), instant(min(it["proven_at"] for it in cold))
            told = "were not read; the store has their parts as they were put there"
            yield Text(f"{result.policy}: {count} {told}. The oldest proof is of {since}")


JOB = Job(
    verify,
    body=proving.Verify,
    examples=(
        "bucketwise verify",
        "bucketwise verify -p ticks --since 2018-06-01 --until 2018-07-01",
    ),
    title="Verify",
    columns=("parts", "readings", "bad"),
    is_measured=True,
    reads_departed=True,
)
