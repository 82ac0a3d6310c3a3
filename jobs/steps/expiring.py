"""The steps that expire archived data and summaries, and that lift tombstones, in the words of the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bucketwise.archivers.expiring.lifting import undelete
from bucketwise.archivers.expiring.report import Amount
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.preconditions import OF_DESTROYERS, destroying, require
from bucketwise.archivers.report import DeleteLimit
from bucketwise.config.errors import HaltedError
from bucketwise.jobs.running.lease import touching
from bucketwise.jobs.running.turn import Step, StepResult, Turn, pick
from bucketwise.rollups.rolling.expiry import ExpiryLimit, count_expired, expire_summaries, lift_tombstones
from bucketwise.rollups.summaries.tombstones import LIFTED_FOR

Body = dict[str, Any]


def _end(turn: Turn) -> StepResult:
    if turn.dry_run:
        report = archive_of(turn.context).plan_expiry()
        if report.tombstoned.buckets or report.expired.buckets:
            require(turn.context, OF_DESTROYERS)
    else:
        report = archive_of(destroying(turn.context)).expire()
    amounts = pick(report, "tombstoned", "standing", "expired", "lifted")
    body: Body = {name: _amount(it) for name, it in amounts.items()}
    return StepResult({**body, "held": dict(sorted(report.held.items())), "live": report.live})


def _amount(it: Amount) -> Body:
    return {"days": len(it.days), "buckets": it.buckets, "bytes": it.bytes}


def _expire(turn: Turn) -> StepResult:
    context = turn.context
    if turn.dry_run:
        report = count_expired(context)
        if any(report.gone.values()):
            require(context, OF_DESTROYERS)
    else:
        report = expire_summaries(destroying(context), allow_large=turn.allow_large)
    none = {"hourly": 0, "daily": 0}
    body = {**none, **report.gone, "waiting": {**none, **report.waiting}, **held_body(report.held)}
    if not turn.dry_run or turn.allow_large:
        return StepResult(body)
    limits = [{"level": it.level, "collection": it.collection, **limit_body(it)} for it in report.limits]
    would_stop = any(it.is_exceeded for it in report.limits)
    return StepResult(body | {"limits": limits}, HaltedError.exit_code if would_stop else 0)


def held_body(held: Mapping[str, int]) -> Body:
    """Returns how much stays for each hold as JSON; nothing where no hold keeps anything."""
    return {"held": dict(sorted(held.items()))} if held else {}


def limit_body(limit: DeleteLimit | ExpiryLimit) -> Body:
    """Returns a limit on what a run removes as a plan's JSON."""
    stops = f"this run would stop: {limit.message}" if limit.is_exceeded else None
    return {"due": limit.due, "of": limit.total, "most": limit.most, "stops": stops}


def _undelete(turn: Turn) -> StepResult:
    context = turn.context
    lifting = replace(context, guard=touching(context.database, turn.policy.identity))  # it takes no lease
    days, summaries = len(undelete(lifting, turn.within)), lift_tombstones(lifting, turn.within)
    until = context.now + LIFTED_FOR if days or summaries else None
    return StepResult({"days": days, "summaries": summaries, "until": until})


EXPIRY = Step("expiry", _expire, by_present=True)
ARCHIVE_EXPIRY = Step("archive_expiry", _end, by_present=True)
UNDELETE = Step("undelete", _undelete, by_present=True)
