"""The steps at the end of an archive, in the words of the JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archivers.expiring.expire import expire_archive, plan_expiry, undelete
from archivers.expiring.report import Amount
from archivers.expiring.rule import LIFTED_FOR
from jobs.running.lease import touching
from jobs.running.turn import Done, Step, Turn, pick

Body = dict[str, Any]


def _end(turn: Turn) -> Done:
    report = (plan_expiry if turn.dry_run else expire_archive)(turn.context)
    amounts = pick(report, "tombstoned", "standing", "expired", "lifted")
    body: Body = {name: _amount(it) for name, it in amounts.items()}
    return Done({**body, "held": dict(sorted(report.held.items())), "live": report.live})


def _amount(it: Amount) -> Body:
    return {"days": len(it.days), "buckets": it.buckets, "bytes": it.bytes}


def _undelete(turn: Turn) -> Done:
    context = turn.context
    lifting = replace(context, guard=touching(context.database, turn.policy.name))  # it takes no lease
    days = undelete(lifting, turn.within)
    return Done({"days": len(days), "until": context.now + LIFTED_FOR if days else None})


ARCHIVE_EXPIRY = Step("archive_expiry", _end, by_present=True)
UNDELETE = Step("undelete", _undelete, by_present=True)
