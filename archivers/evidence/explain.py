"""Explains a bucket, or all that cover an instant: where they are, why, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.copies import BucketFinder, FoundBucket
from bucketwise.archivers.evidence.coverage import CoverageQuery, coverage
from bucketwise.archivers.evidence.fate import End, Facts, Fate, Windows, fate
from bucketwise.archivers.evidence.history import history
from bucketwise.archivers.evidence.kind import Copy, Event, Evidence, Searched
from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.writes.delete import units
from bucketwise.archivers.writes.held import covered
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, check_selector
from bucketwise.buckets.fields.times import TimeRange, as_date
from bucketwise.buckets.models.covered import covered_span
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import settled_at
from bucketwise.rollups.calendar.windows import HOUR
from bucketwise.rollups.holds import Hold, Holds


@dataclass(frozen=True)
class ExplainQuery:
    """The buckets that are asked about: the one with an `_id`, maybe known to lie on the day of an instant;
    or those that cover the instant, of some series."""

    identity: Any = None
    has_identity: bool = False
    at: int | None = None  # milliseconds
    series: Selector = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainedBucket:
    """A bucket. `series` is None where it has several, or breaks its model."""

    id: Any
    series: Series | None
    first: int | None  # milliseconds
    last: int | None
    readings: int | None
    versions: int  # in the archive
    fate: Fate
    history: list[Event]
    holds: list[Hold]


@dataclass(frozen=True)
class ExplainResult:
    """What was found. `hour`: the coverage of the hour of an instant that no bucket covers."""

    buckets: list[ExplainedBucket]
    searched: Searched | None = None
    hour: str | None = None


def explain(
    context: ArchiveContext,
    archived: Evidence,
    question: ExplainQuery,
    through: int | None,
    readers: Sequence[Policy] = (),
) -> ExplainResult:
    """Returns all that is known of a bucket. `through`: windows that end before it (milliseconds) are rolled
    up; None: none has to be. `readers`: other policies that roll up the collection. Raises UsageError where
    there is no such series, HaltedError where the archive is not all there."""
    check_selector(context.policy, question.series)
    check_archive(context.connections, context.policy)
    finder = BucketFinder(context, archived)
    if question.has_identity:
        found = finder.by_id(question.identity, question.at)
    else:
        assert question.at is not None
        found = finder.at(question.at, question.series)
    windows = Windows(through, partial(settled_at, (context.policy, *readers)))
    buckets = [_explained(context, archived, it, windows) for it in found]
    buckets.sort(key=lambda it: (it.first is None, it.first or 0))
    hour = None if buckets or question.has_identity else _hour(context, archived, question)
    return ExplainResult(buckets, finder.searched, hour)


def _hour(context: ArchiveContext, archived: Evidence, question: ExplainQuery) -> str:
    assert question.at is not None
    within = TimeRange(as_date(question.at), as_date(question.at + 1))
    (row,) = coverage(context, archived, CoverageQuery(within, question.series, HOUR))
    return row.state


def _explained(
    context: ArchiveContext, archived: Evidence, found: FoundBucket, windows: Windows
) -> ExplainedBucket:
    bucket, archived_by = found.latest
    policy = archived_by or context.policy
    decoded = decode(bucket, policy)
    is_sound = bool(len(decoded.units))
    first, last = _span(policy, bucket) if not is_sound else decoded.spans()[0].tolist()
    holds = _holds(context, policy, decoded)
    pin = None if found.live is None else context.pins.of(found.live).get(0)
    facts = Facts(
        is_live=found.live is not None,
        archived=archived.state if any(not it.version.is_superseded for it in found.copies) else None,
        last=last,
        copied=_equal_copy(context.policy, found),
        pin=pin,
        freeze=next((it for it in holds if it.freeze), None),
        fault=None if is_sound else decoded.quarantined[0],
        windows=windows,
        end=_end(context, archived, found.copies, last),
        hold=next(iter(holds), None),
    )
    columns = decoded.columns
    return ExplainedBucket(
        id=bucket.main.legible_id(0),
        series=columns.series[columns.bucket_series[0]] if is_sound and not policy.sample_series else None,
        first=first,
        last=last,
        readings=len(columns.time) if is_sound else None,
        versions=len(found.copies),
        fate=fate(context.policy, facts),
        history=history(context, archived, found, (first or 0, last or 0), pin),
        holds=holds,
    )


def _end(context: ArchiveContext, archived: Evidence, copies: Sequence[Copy], last: int | None) -> End | None:
    """Returns when the last copy of a bucket goes by `retain.archive`."""
    rule = RetentionRule.of(context.policy, context.now)
    if rule is None or last is None or not copies:
        return None
    last, record = archived.expires_with(copies[-1], last)
    tombstone = (context.receipts.get(record) or {}).get("tombstone")
    return End(rule.text, rule.expires_at(last, tombstone), rule.due(tombstone) is not None)


def _holds(context: ArchiveContext, policy: Policy, decoded: Decoded) -> list[Hold]:
    """Returns the holds that cover a bucket, decoded as `policy` says."""
    holds = Holds(context.database, context.policy.identity).active()
    return [it for it in holds if covered(decoded, policy, [it])]


def _span(policy: Policy, bucket: Batch) -> tuple[int | None, int | None]:
    span = covered_span(policy, bucket.main[0])
    return (span[0], span[1] - 1) if span else (None, None)


def _equal_copy(policy: Policy, found: FoundBucket) -> Any:
    """Returns when the copy was made that equals the live bucket, and whose original no run has deleted."""
    if found.live is None:
        return None
    mine = units(policy, found.live)
    equal = [it for it in found.copies if it.may_be_live and units(policy, it.version.bucket) == mine]
    return equal[-1].copied if equal else None
