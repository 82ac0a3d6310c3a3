"""The state of each policy: how far it is, what waits, and how its last runs went."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pymongo.database import Database

from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_date, as_ms
from bucketwise.config.policies import Policy
from bucketwise.jobs.running.gauges import gauges
from bucketwise.jobs.running.ledger import Ledger, Repeat
from bucketwise.jobs.running.pausing import pauses
from bucketwise.jobs.running.turn import Document, Step, StepResult, Turn
from bucketwise.rollups.progress import NO_GATE, load, rolled_up_through
from bucketwise.rollups.rolling import quarantine

LAST_RUNS = 5


def _status(turn: Turn) -> StepResult:
    runs = [asdict(run) for run in Ledger(turn.context.database).last_runs(turn.policy.identity, LAST_RUNS)]
    through = rolled_up_through(turn.context.database, turn.policy)
    pinned, pinned_until = turn.context.pins.count_and_next_end()
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
            **pauses(turn),
            "last_runs": runs,
        }
    )


def _place(turn: Turn) -> StepResult:
    """Returns where a policy stands. Takes a few commands, each of which reads one document where there is an
    index; makes no request to the store."""
    through = rolled_up_through(turn.context.database, turn.policy)
    return StepResult(
        {
            "rolled_up_through": None if through in (None, NO_GATE) else as_date(through),
            "archived_through": _archived_through(turn),
            **gauges(turn.context),
        }
    )


def _archived_through(turn: Turn) -> datetime | None:
    if turn.policy.has_parts:  # by receipts: the page of the service has no store
        days = turn.context.receipts.span()
        return None if days is None else as_date((days[1] + 1) * DAY_MS)
    span = archived_reader(turn.context.connections, turn.policy).span()
    return None if span is None else as_date(span[1])


def _waiting(turn: Turn) -> int:
    """Returns how many buckets have expired and are still in the source."""
    archive = turn.policy.archiving
    if archive is None or archive.after is None:
        return 0
    cutoff = as_ms(turn.context.now - archive.after)
    return turn.context.source.count_ending(FIRST_MS, cutoff)


def _quarantined(turn: Turn) -> int:
    return turn.context.database[quarantine.COLLECTION].count_documents({"_id.policy": turn.policy.identity})


STATUS, PLACE = Step("status", _status), Step("place", _place)


Body = dict[str, Any]


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
    found = Ledger(database).to_repeat([it.identity for it in policies])
    return {
        it.name: [_failed_body(one, it.name, config) for one in found[it.identity]]
        for it in policies
        if it.identity in found
    }


def _failed_body(it: Repeat, policy: str, config: Path | None) -> Body:
    run = it.run
    ran = {"verb": run.verb, "started": run.started, "outcome": run.outcome, "error": run.error}
    return {
        **ran,
        "command": None if it.arguments is None else command(run.verb, policy, it.arguments, config),
    }


def command(verb: str, policy: str, arguments: Sequence[str], config: Path | None) -> str:
    """Returns the command as it is typed in a shell."""
    chosen = ["--config", str(config)] if config else []
    return shlex.join(["bucketwise", verb, *chosen, "--policy", policy, *arguments])
