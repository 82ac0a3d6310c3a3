"""Counts what policies would do with today's buckets by some instant. Moves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.context import ArchiveContext
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_ms
from bucketwise.config.policies import Policy
from bucketwise.config.written import layout_fingerprint
from bucketwise.jobs.core.ledger import COMPLETED, SCHEDULED, Ledger, Run
from bucketwise.jobs.core.turn import Step, StepResult, Turn
from bucketwise.rollups.calendar.due import Calendar, over_before
from bucketwise.rollups.rolling.expiry import count_expired

Body = dict[str, Any]

#: So many of the last runs are asked; fewer readings in all of them tell too little.
_RUNS, _LEAST_READINGS = 10, 1_000


@dataclass(frozen=True)
class Pace:
    """The pace of the last runs: seconds for each reading that they rolled up or archived, bytes in the
    archive for each reading, and bytes of documents for each bucket."""

    seconds_a_reading: float | None
    stored_a_reading: float | None
    removed_a_bucket: float | None

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Pace:
        """Returns the pace of runs, without those that did not come to their end."""
        seconds, worked, readings, buckets, stored, removed, deleted = 0.0, 0, 0, 0, 0, 0, 0
        for run in runs:
            if run.exit_code not in COMPLETED or run.ended is None:
                continue
            archived = _counts(run.counts, "archive")
            rolled_up = _counts(run.counts, "rollup").get("readings", 0)
            if done := rolled_up + archived.get("readings", 0):
                seconds += (run.ended - run.started).total_seconds()
                worked += done
            readings += archived.get("readings", 0)
            buckets += archived.get("buckets", 0)
            stored += archived.get("bytes", 0)
            removed += archived.get("removed_bytes", 0)
            deleted += archived.get("deleted", 0)
        return cls(
            seconds / worked if worked >= _LEAST_READINGS else None,
            stored / readings if readings >= _LEAST_READINGS else None,
            removed / deleted if deleted and readings >= _LEAST_READINGS else None,
        )

    def estimate(self, planned: Mapping[str, Any]) -> Body:
        """Returns the estimates for a plan, as JSON: null where the last runs tell nothing."""
        archived = _counts(planned, "archive")
        readings = archived.get("readings", 0)
        worked = readings + _counts(planned, "rollup").get("readings", 0)
        return {
            "seconds": _times(worked, self.seconds_a_reading),
            "bytes": _whole(_times(readings, self.stored_a_reading)),
            "removed_bytes": _whole(_times(archived.get("deleted", 0), self.removed_a_bucket)),
        }


def _counts(body: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    found = body.get(step)
    return found if isinstance(found, Mapping) else {}


def _times(count: int, each: float | None) -> float | None:
    return None if each is None else round(count * each, 3)


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _pace(turn: Turn) -> StepResult:
    runs = Ledger(turn.context.database).last_of(turn.policy.identity, [SCHEDULED], _RUNS)
    return StepResult({"pace": Pace.of(runs)})


#: The step that asks the ledger; its body is replaced by the estimates.
ESTIMATE = Step("estimate", _pace, weight=0.0)
#: Before it there is no bucket.
NEVER = FIRST_MS
_PAGE = 1000


@dataclass
class Totals:
    """Counts of buckets and what they hold. `bytes`: of their BSON, with overflow; `days`: since 1970,
    UTC."""

    buckets: int = 0
    readings: int = 0
    bytes: int = 0
    days: set[int] = field(default_factory=set)

    def add(self, decoded: Decoded, sizes: NDArray[np.int64], chosen: NDArray[np.bool_]) -> None:
        """Adds the chosen buckets. `sizes`: bytes of each bucket, as `chosen` in the order of columns."""
        columns = decoded.columns
        self.buckets += int(chosen.sum())
        self.readings += int(columns.lengths[chosen].sum())
        self.bytes += int(sizes[chosen].sum())
        self.days.update(np.unique(columns.time[chosen[columns.bucket]] // DAY_MS).tolist())


@dataclass(frozen=True)
class PolicyRule:
    """The rules of a policy for its buckets up to `now` of the context. They are archived, and deleted, if
    their last reading is before these instants (milliseconds), one for each rule of the policy."""

    context: ArchiveContext
    archived_before: Sequence[int]
    deleted_before: Sequence[int]

    @classmethod
    def none(cls, context: ArchiveContext) -> PolicyRule:
        """Returns the rules of a policy that moves nothing."""
        never = [NEVER] * len(context.rules.policies)
        return cls(context, never, never)

    def before(self, decoded: Decoded, limits: Sequence[int]) -> NDArray[np.bool_]:
        """Returns which buckets end before the limits of their rules."""
        return decoded.last < self.context.rules.limits_of(decoded.columns, limits)


@dataclass
class RuleOutcome:
    """The outcome of a rule for buckets. `total`: in the collection; `broken`: of those that were read,
    the ones that break their model."""

    archived: Totals = field(default_factory=Totals)
    deleted: int = 0  # buckets
    total: int = 0
    broken: int = 0

    @property
    def kept(self) -> int:
        """Returns how many buckets stay in the collection."""
        return max(0, self.total - self.deleted)


def rule(context: ArchiveContext, readers: Sequence[Policy], present: datetime) -> PolicyRule:
    """Returns which buckets the policy has archived and deleted by the instant of the context, if it runs
    from now on. `readers`: other policies that roll up the collection."""
    if context.policy.archiving is None:
        return PolicyRule.none(context)
    archived = _archived_before(context, readers)
    deleted = _deleted_before(context, readers, present)
    return PolicyRule(context, archived, list(map(min, archived, deleted)))


def _archived_before(context: ArchiveContext, readers: Sequence[Policy]) -> list[int]:
    """Returns for each rule the instant before which a bucket must end to be archived by then: expired, and
    rolled up."""
    through = over_before((context.policy, *readers), context.now)
    ready = context.cutoffs if through is None else [min(it, through) for it in context.cutoffs]
    return [max(NEVER, it) for it in ready]


def _deleted_before(context: ArchiveContext, readers: Sequence[Policy], present: datetime) -> list[int]:
    """Returns for each rule the instant before which a bucket must end to be deleted by then: its copy has to
    be older than the grace."""
    if context.kept:
        return [NEVER] * len(context.cutoffs)
    if not context.archive.grace:
        return _archived_before(context, readers)
    earlier = replace(context, now=context.now - context.archive.grace)
    copied = _copied_before(earlier)
    ready = _archived_before(earlier, readers) if earlier.now >= present else [NEVER] * len(context.cutoffs)
    return [max(copied, it) for it in ready]


def _copied_before(context: ArchiveContext) -> int:
    """Returns the instant before which a bucket must end to have been copied by `now` of the context, by
    receipts: runs copy in the order of time."""
    receipts = context.receipts
    mine = {"_id.policy": receipts.policy, "kind": "offline", "copied": {"$lte": context.now}}
    latest = {"$group": {"_id": None, "last": {"$max": "$last"}}}
    found = receipts.collection.aggregate([{"$match": {**mine, "state": "open"}}, latest])
    ends = [as_ms(it["last"]) + 1 for it in found if it["last"] is not None]
    copied = receipts.in_state("copied", "online")
    ids = [identity for it in copied if it["copied"] <= context.now for identity in it["ids"]]
    for at in range(0, len(ids), _PAGE):
        ends += [end for _, end in context.source.spans(ids[at : at + _PAGE])]
    return max(ends, default=NEVER)


def outcomes(rules: Sequence[PolicyRule]) -> list[RuleOutcome]:
    """Returns the outcome of each rule. Reads the buckets that any of them archives; rules that decode
    buckets alike share one reading."""
    found = [RuleOutcome() for _ in rules]
    until = max((at for it in rules for at in it.archived_before), default=NEVER)
    alike: dict[str, list[int]] = {}
    for i, it in enumerate(rules):
        alike.setdefault(layout_fingerprint(it.context.policy), []).append(i)
    for places in alike.values():
        _outcomes_of([rules[i] for i in places], [found[i] for i in places], until)
    return found


def _outcomes_of(rules: Sequence[PolicyRule], found: Sequence[RuleOutcome], until: int) -> None:
    context = rules[0].context
    source, policy = context.source, context.policy
    total = source.collection.count_documents({})
    for outcome in found:
        outcome.total = total
    source.look_at_texts()
    for batch in source.ending(NEVER, until):
        context.check()
        decoded = decode(batch, policy, plausible=context.plausible)
        sizes = batch.sizes[decoded.units]
        for it, outcome in zip(rules, found, strict=True):
            movable = np.isin(decoded.units, it.context.movable(batch))
            outcome.archived.add(decoded, sizes, movable & it.before(decoded, it.archived_before))
            outcome.deleted += int((movable & it.before(decoded, it.deleted_before)).sum())
            outcome.broken += len(batch) - len(decoded.units)
        context.progress("buckets weighed", len(batch))


def expired_summaries(context: ArchiveContext) -> dict[str, int]:
    """Returns how many of the summaries that are there now are past their `retain` at the instant of the
    context, by level."""
    rollup = context.policy.rollup
    if rollup is None:
        return {}
    calendar = Calendar(context.policy, rollup, context.now)
    through = {level.name: level.through(calendar.due_end) for level in calendar.levels}
    report = count_expired(context, through)
    return {level: count + report.waiting[level] for level, count in report.gone.items()}
