"""`bucketwise status`: how far each policy is, what waits, and how its last runs went."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_date
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import Document, RunOptions, Step, StepResult, Turn, perform, pick
from bucketwise.jobs.output.bodies import asking
from bucketwise.jobs.output.report import Report, Result, own_error
from bucketwise.jobs.output.tables import cell, closing, counted, job_table, outcome_table, pause_lines, sums
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.config.policies import Policy
    from bucketwise.jobs.core.ledger import Repeat

Body = dict[str, Any]

Failed = Annotated[
    bool, typer.Option("--failed", help="List the runs that failed or died, and the commands to repeat them.")
]


def status(call: Call, failed: Failed = False) -> Report:
    """Show where each policy stands.

    How far it is rolled up and archived, what waits, whether it is paused, and how the last runs
    went. With --failed: which runs have to be repeated, and how.
    """
    step = failed_step(call.config) if failed else STATUS
    results = perform(call, [step], RunOptions(dry_run=True))
    if failed:
        return Report(call.command, call.now, results, [*failed_lines(results)])
    return Report(call.command, call.now, results, [*status_tables(results), *pause_lines(results)])


LAST_RUNS = 5
#: Exit codes of runs that failed or halted.
_BAD = (1, 5)
#: Columns of them that go first.
_MINOR = ("ended", "runs")


def _status(turn: Turn) -> StepResult:
    from bucketwise.archivers.mirroring.changes import standings
    from bucketwise.archivers.worth import known_worth
    from bucketwise.jobs.core.lease import pauses
    from bucketwise.jobs.core.ledger import Ledger
    from bucketwise.rollups.progress import NO_GATE, load, rolled_up_through

    runs = [asdict(run) for run in Ledger(turn.context.database).last_runs(turn.policy.identity, LAST_RUNS)]
    through = rolled_up_through(turn.context.database, turn.policy)
    pinned, pinned_until = turn.context.pins.count_and_next_end()
    worth = known_worth(turn.context)
    reached = load(turn.context.database, turn.policy).through
    return StepResult(
        {
            "rolled_up_through": None if through in (None, NO_GATE) else as_date(through),
            "levels": {name: as_date(end) for name, end in reached.items()},
            "archived_through": _archived_through(turn),
            "waiting": _waiting(turn),
            "pinned": pinned,
            "pinned_until": pinned_until,
            "quarantined": _quarantined(turn),
            "worth": None if worth is None else worth.body,
            **pauses(turn),
            "copies": [it._asdict() for it in standings(turn.context)],
            "last_runs": runs,
        }
    )


def _place(turn: Turn) -> StepResult:
    """Returns where a policy stands. Takes a few commands, each of which reads one document where there is an
    index; makes no request to the store."""
    from bucketwise.jobs.core.gauges import gauges
    from bucketwise.rollups.progress import NO_GATE, rolled_up_through

    through = rolled_up_through(turn.context.database, turn.policy)
    return StepResult(
        {
            "rolled_up_through": None if through in (None, NO_GATE) else as_date(through),
            "archived_through": _archived_through(turn),
            **gauges(turn.context),
        }
    )


def _archived_through(turn: Turn) -> datetime | None:
    from bucketwise.archivers.reading.archived import archived_reader

    if turn.policy.has_parts:  # by receipts: the page of the service has no store
        days = turn.context.receipts.span()
        return None if days is None else as_date((days[1] + 1) * DAY_MS)
    span = archived_reader(turn.context.connections, turn.policy).span()
    return None if span is None else as_date(span[1])


def _waiting(turn: Turn) -> int:
    """Returns how many buckets have expired and are still in the source."""
    if turn.policy.archiving is None:
        return 0
    context = turn.context
    return context.source.count_due(context.rules.due(FIRST_MS, context.expired_before))


def _quarantined(turn: Turn) -> int:
    from bucketwise.rollups.rolling import quarantine

    return turn.context.database[quarantine.COLLECTION].count_documents({"_id.policy": turn.policy.identity})


STATUS = Step("status", _status)
PLACE = Step("place", _place)


def failed_step(config: Path | None) -> Step:
    """Returns the step that lists them. `config`: that of --config, which the commands have as well."""

    def do(turn: Turn) -> StepResult:
        found = failed(turn.context.database, [turn.policy], config)
        return StepResult({"failed": found.get(turn.policy.name, [])})

    return Step("failed", do)


def failed(
    database: Database[Document], policies: Sequence[Policy], config: Path | None
) -> dict[str, list[Body]]:
    """Returns the failed runs, by policy, the newest first. It takes one command, and one more for each run
    that has not ended."""
    from bucketwise.jobs.core.ledger import Ledger

    found = Ledger(database).to_repeat([it.identity for it in policies])
    return {
        it.name: [_failed_body(one, it.name, config) for one in found[it.identity]]
        for it in policies
        if it.identity in found
    }


def _failed_body(it: Repeat, policy: str, config: Path | None) -> Body:
    run = it.run
    return {
        **pick(run, "verb", "started", "outcome", "error"),
        "command": None if it.arguments is None else command(run.verb, policy, it.arguments, config),
    }


def command(verb: str, policy: str, arguments: Sequence[str], config: Path | None) -> str:
    """Returns the command as it is typed in a shell."""
    chosen = ["--config", str(config)] if config else []
    return shlex.join(["bucketwise", verb, *chosen, "--policy", policy, *arguments])


def status_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `status` prints: how far each policy is, and its last runs."""
    runs = outcome_table("Last runs", "policy", "started", "verb", "ended", "runs", "error", minor=_MINOR)
    for result in results:
        for run in result.body.get("last_runs", []):
            cells = [cell(key, run[key]) for key in ("started", "verb", "ended", "runs")]
            error = own_error(run["error"], result.policy).partition("\n")[0]
            runs.add_row(result.policy, *cells, Text(error), run["outcome"])
    waiting, quarantined = sums(results, "waiting", "quarantined")
    what = f"{counted(waiting, 'expired bucket')} wait"
    broken = f"; {counted(quarantined, 'bucket')} quarantined" if quarantined else ""
    failed = sum(it.body["last_runs"][0]["exit_code"] in _BAD for it in results if it.body.get("last_runs"))
    whose = f"; the last run of {counted(failed, 'policy')} failed: see bucketwise status --failed"
    told = f"{what}{broken}{whose if failed else ''}"
    return [job_table(JOB, results), runs, *closing(results, told)]


UNTOLD = "repeat it as it was given: the ledger does not record which series it named"


def failed_lines(results: Sequence[Result]) -> list[Text]:
    """Returns two lines for each run: what happened, and the command; and a line on all."""
    lines = [
        line
        for result in results
        for it in result.body.get("failed", ())
        for line in _failed_lines(result, it)
    ]
    count = len(lines) // 2
    what = f"{counted(count, 'run')} to repeat" if count else "no run has to be repeated"
    return [*lines, *closing(results, what)]


def _failed_lines(result: Result, it: dict[str, Any]) -> Iterator[Text]:
    error = (it["error"] or "it never finished").partition("\n")[0]
    what = f"{result.policy}: {it['verb']} of {iso(it['started'])}: {it['outcome']}: {error}"
    yield Text(printable(what), style="bold red")
    yield Text(f"    {printable(it['command'] or UNTOLD)}")


JOB = Job(
    status,
    body=asking.Status,
    examples=(
        "bucketwise status",
        "bucketwise status -p ticks --json",
        "bucketwise status --failed",
    ),
    title="Status",
    columns=("rolled_up_through", "archived_through", "waiting", "pinned", "pinned_until", "quarantined"),
    reads_departed=True,
    answers=True,
)
