"""The steps that expire archived data, and that lift tombstones, in the words of the JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archivers.expiring.lifting import undelete
from archivers.expiring.report import Amount
from archivers.expiring.rule import LIFTED_FOR
from archivers.kinds import archive_of
from jobs.running.lease import touching
from jobs.running.turn import Step, StepResult, Turn, pick

Body = dict[str, Any]


def _end(turn: Turn) -> StepResult:
    archive = archive_of(turn.context)
    report = archive.plan_expiry() if turn.dry_run else archive.expire()
    amounts = pick(report, "tombstoned", "standing", "expired", "lifted")
    body: Body = {name: _amount(it) for name, it in amounts.items()}
    return StepResult({**body, "held": dict(sorted(report.held.items())), "live": report.live})


def _amount(it: Amount) -> Body:
    return {"days": len(it.days), "buckets": it.buckets, "bytes": it.bytes}


def _undelete(turn: Turn) -> StepResult:
    context = turn.context
    lifting = replace(context, guard=touching(context.database, turn.policy.identity))  # it takes no lease
    days = undelete(lifting, turn.within)
    return StepResult({"days": len(days), "until": context.now + LIFTED_FOR if days else None})


ARCHIVE_EXPIRY = Step("archive_expiry", _end, by_present=True)
UNDELETE = Step("undelete", _undelete, by_present=True)
