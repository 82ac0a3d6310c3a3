"""The steps that expire archived data and summaries, in the words of the JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bucketwise.config.errors import HaltedError
from bucketwise.jobs.core.turn import Step, StepResult, Turn, held_body, limit_body, pick

if TYPE_CHECKING:
    from bucketwise.archivers.expiring.rule import Amount

Body = dict[str, Any]


def _end(turn: Turn) -> StepResult:
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.archivers.preconditions import OF_DESTROYERS, destroying, require

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
    from bucketwise.archivers.preconditions import OF_DESTROYERS, destroying, require
    from bucketwise.rollups.rolling.expiry import count_expired, expire_summaries

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


EXPIRY = Step("expiry", _expire, by_present=True, weight=0.1)


ARCHIVE_EXPIRY = Step("archive_expiry", _end, by_present=True, weight=0.1)
