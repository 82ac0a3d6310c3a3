"""Runs that failed or died and have to be repeated, with the commands for it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pymongo.database import Database

from jobs.running.ledger import Ledger, Repeat
from jobs.running.turn import Document, Done, Step, Turn

Body = dict[str, Any]


def failed_step(config: Path | None) -> Step:
    """Returns the step that lists them. `config`: that of --config, which the commands have as well."""

    def do(turn: Turn) -> Done:
        name = turn.policy.name
        return Done({"failed": failed(turn.context.database, [name], config).get(name, [])})

    return Step("failed", do)


def failed(
    database: Database[Document], policies: Sequence[str], config: Path | None
) -> dict[str, list[Body]]:
    """Returns the failed runs, by policy, the newest first. It takes one command, and one more for each run
    that has not ended."""
    found = Ledger(database).to_repeat(policies)
    return {policy: [_body(it, config) for it in some] for policy, some in found.items()}


def _body(it: Repeat, config: Path | None) -> Body:
    run = it.run
    ran = {"verb": run.verb, "started": run.started, "outcome": run.outcome, "error": run.error}
    return {
        **ran,
        "command": None if it.arguments is None else command(run.verb, run.policy, it.arguments, config),
    }


def command(verb: str, policy: str, arguments: Sequence[str], config: Path | None) -> str:
    """Returns the command as it is typed in a shell."""
    chosen = ["--config", str(config)] if config else []
    return shlex.join(["bucketwise", verb, *chosen, "--policy", policy, *arguments])
