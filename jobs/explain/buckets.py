"""The buckets of a question: where each is, how it got there, and what happens to it next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.coverage import CoverageQuery, coverage_of
from bucketwise.archivers.expiring.rule import RetentionRules
from bucketwise.archivers.kinds.evidence import (
    ArchivedState,
    Copy,
    Event,
    Evidence,
    Located,
    Searched,
    Span,
    covering_in,
)
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.records.pins import Pin
from bucketwise.archivers.versions.history import one_of
from bucketwise.archivers.writes import covered, same_id, units
from bucketwise.buckets.bson.raw import TOLERANT, Batch, as_queried, without_uuid
from bucketwise.buckets.columns import Quarantined, Series
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, check_selector
from bucketwise.buckets.fields.times import TimeRange, as_date, as_ms, later
from bucketwise.buckets.models import model_of
from bucketwise.buckets.rules import SeriesRules
from bucketwise.config.policies import Archive, Policy
from bucketwise.config.times import format_duration
from bucketwise.rollups.calendar.due import settled_at
from bucketwise.rollups.calendar.windows import HOUR
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.rolling import quarantine

BucketState = ArchivedState | Literal["live", "both", "quarantined", "unknown"]
#: `archive`: it is copied, and deleted at once or after its grace; `delete`: it goes, and its copy stays;
#: `expire`: the copy goes, for good.
Action = Literal["archive", "delete", "expire"]
_MS = timedelta(milliseconds=1)
_NOTHING = timedelta(0)


class End(NamedTuple):
    """When an archived bucket goes by `retain.archive`, by which rule (nothing: the policy's own), and
    whether it is under a tombstone."""

    by: str
    keep: str
    at: datetime
    has_tombstone: bool


class Windows(NamedTuple):
    """How far windows are rolled up. `through`: what ends before it (milliseconds) is; None where nothing has
    to be. `settled`: returns the present (milliseconds) from which on a run rolls up those of an instant."""

    through: int | None = None
    settled: Callable[[int], int | None] = lambda _: None


@dataclass(frozen=True)
class Facts:
    """The facts of one bucket. `last`: its last time, milliseconds. `copied`: when the last copy was made
    that equals it and whose original no run has deleted; None where there is none. `end`: of what is
    archived; None: it stays forever. `hold`: keeps it from being destroyed."""

    is_live: bool
    archived: ArchivedState | None  # where a copy is that counts
    last: int | None = None
    copied: datetime | None = None
    pin: Pin | None = None
    freeze: Hold | None = None
    fault: Quarantined | None = None
    windows: Windows = field(default_factory=Windows)
    end: End | None = None
    hold: Hold | None = None


@dataclass(frozen=True)
class Fate:
    """The next event of a bucket's life. `at`: a run after this instant does it; None where nothing is to
    come."""

    state: BucketState
    rule: str | None = None
    action: Action | None = None
    at: datetime | None = None


def fate(policy: Policy, it: Facts, by: str = "") -> Fate:
    """Returns what will happen to a bucket, and why. `policy`: as it is for the series of the bucket; `by`:
    the rule that says so, in front of what it says."""
    if it.is_live and it.fault is not None:
        return Fate("quarantined", f"it breaks its model, and stays: {it.fault.field}: {it.fault.reason}")
    if it.is_live:
        found = _of_live(policy, it, "both" if it.archived else "live")
        return replace(found, rule=f"{by}{found.rule}") if by else found
    if (state := it.archived) is None or policy.archive is None:
        return Fate("unknown")
    if it.end is None:
        return Fate(state, f'archive.to = "{policy.archive.to}": it stays there')
    rule = f'{it.end.by}retain.archive = "{it.end.keep}"'
    if it.hold is not None:
        return Fate(state, f"{rule}; held by {it.hold.name}: it stays until that is released")
    if it.end.has_tombstone:
        rule += ", under a tombstone: `bucketwise undelete` lifts it"
    return Fate(state, rule, "expire", it.end.at)


def _of_live(policy: Policy, it: Facts, state: BucketState) -> Fate:
    if (archive := policy.archiving) is None:
        return Fate(state, "the policy archives nothing: it stays")
    if it.freeze is not None:
        return Fate(state, it.freeze.freeze_reason)
    due = None if it.last is None else due_at(archive, it.last)
    if it.pin is not None and (it.pin.until is None or due is None):
        return Fate(state, it.pin.reason)
    if due is None:
        return Fate(state, 'archive.after = "forever": it stays')
    if it.copied is None:
        return _pinned(it, Fate(state, _waiting(archive, it), "archive", max(due, _rolled_up(it) or due)))
    if reason := model_of(policy).undeletable:
        return Fate(state, reason)
    if not archive.delete:
        return Fate(state, "archive.delete = false: it is copied, and stays")
    rule = _waiting(archive, it)
    if archive.grace > _NOTHING:
        rule = f'archive.grace = "{format_duration(archive.grace)}": it is copied, and waits'
    return _pinned(it, Fate(state, rule, "delete", max(due, later(it.copied, archive.grace))))


def _pinned(it: Facts, unpinned: Fate) -> Fate:
    if it.pin is None or it.pin.until is None or unpinned.at is None:
        return unpinned
    return Fate(unpinned.state, it.pin.reason, unpinned.action, max(unpinned.at, it.pin.until))


def _waiting(archive: Archive, it: Facts) -> str:
    rule = f'archive.after = "{format_duration(archive.after)}"'
    if archive.batch is not None:
        rule += f', archive.batch = "{format_duration(archive.batch)}"'
    return rule if _rolled_up(it) is None else f"{rule}, once its windows are rolled up"


def _rolled_up(it: Facts) -> datetime | None:
    """Returns when a run can roll up the bucket's windows; None where they are rolled up."""
    through, settled = it.windows
    if through is None or it.last is None or it.last < through:
        return None
    at = settled(it.last)
    return None if at is None else as_date(at)


def due_at(archive: Archive, last_ms: int) -> datetime | None:
    """Returns when a bucket with this last reading, and all of its batch, has expired; None where it never
    does."""
    if archive.after is None:
        return None
    if archive.batch is not None:
        batch = archive.batch // _MS
        last_ms = (last_ms // batch + 1) * batch
    return as_date(last_ms + archive.after // _MS)


#: Buckets that are explained for one instant.
MOST_BUCKETS = 100


@dataclass
class FoundBucket:
    """One bucket: as it is live, and as it was archived, the oldest version first."""

    raw_id: bytes
    live: Batch | None = None
    copies: list[Copy] = field(default_factory=list)

    @property
    def latest(self) -> tuple[Batch, Policy | None]:
        """Returns the bucket as it is now, and the policy it was archived by, where it is not live."""
        if self.live is not None:
            return self.live, None
        version = self.copies[-1].version
        return version.bucket, version.policy


class BucketFinder:
    """Finds the buckets of one policy."""

    def __init__(self, context: ArchiveContext, archived: Evidence) -> None:
        self._source, self._archived = context.source, archived
        self.searched: Searched | None = None

    def by_id(self, identity: Any, at_ms: int | None) -> list[FoundBucket]:
        """Returns the bucket with this `_id`, or none. `at_ms`: on the UTC day of this instant."""
        live = [one_of(it, i) for it in self._source.by_ids([identity]) for i in range(len(it))]
        if live:
            return self._with_copies(live[:1], self._source.policy)
        found = self._archived.find(identity, at_ms)
        if isinstance(found, Located):
            return self._with_copies([found.bucket], found.policy)
        self.searched = found
        return []

    def at(self, at_ms: int, selector: Selector) -> list[FoundBucket]:
        """Returns the buckets that cover an instant, of some series: the first hundred."""
        found: dict[Policy, dict[bytes, Batch]] = {}
        there = chain(covering_in(self._source, at_ms, selector), self._archived.covering(at_ms, selector))
        for policy, bucket in islice(there, 4 * MOST_BUCKETS):
            name = same_id(bucket.main.raw_id(0))
            if not any(name in some for some in found.values()):
                found.setdefault(policy, {})[name] = bucket
        located = [
            it for policy, some in found.items() for it in self._with_copies(list(some.values()), policy)
        ]
        return located[:MOST_BUCKETS]

    def _with_copies(self, buckets: list[Batch], policy: Policy) -> list[FoundBucket]:
        """Returns each bucket with its live document, and its versions in the archive."""
        found = {same_id(it.main.raw_id(0)): FoundBucket(it.main.raw_id(0)) for it in buckets}
        for batch in self._source.by_raw_ids([it.raw_id for it in found.values()]):
            for i, raw_id in enumerate(batch.main.raw_ids):
                found[same_id(raw_id)].live = one_of(batch, i)
        live = [it.live.main[0] for it in found.values() if it.live is not None]
        for name, copies in self._archived.copies(Batch.concat(buckets), policy, live).items():
            found[name].copies = copies
        return [it for it in found.values() if it.live is not None or it.copies]


def history(
    context: ArchiveContext, archived: Evidence, found: FoundBucket, span: Span, pin: Pin | None
) -> list[Event]:
    """Returns what has happened to a bucket, in the order of time; events without a time come last. `span`:
    its first and last time, milliseconds."""
    events = [*_quarantined(context, found.raw_id), *archived.events(found.raw_id, found.copies, span)]
    if pin is not None:
        events.append(Event(None, "pinned", detail=pin.reason))
    return sorted(dict.fromkeys(events), key=lambda it: (it.at is None, it.at and as_ms(it.at)))


def _quarantined(context: ArchiveContext, raw_id: bytes) -> Iterator[Event]:
    name = {"policy": context.policy.identity, "id": without_uuid(as_queried(raw_id))}
    records = context.database.get_collection(quarantine.COLLECTION, codec_options=TOLERANT)
    for it in records.find({"_id": name}):
        yield Event(it["first_seen"], "quarantined", detail=f"{it['field']}: {it['reason']}")


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
    """The buckets that were found. `hour`: the coverage of the hour of an instant that no bucket covers."""

    buckets: list[ExplainedBucket]
    searched: Searched | None = None
    hour: str | None = None


def explained_buckets(
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
    (row,) = coverage_of(context, archived, CoverageQuery(within, question.series, HOUR))
    return row.state


def _explained(
    context: ArchiveContext, archived: Evidence, found: FoundBucket, windows: Windows
) -> ExplainedBucket:
    bucket, archived_by = found.latest
    policy = archived_by or context.policy
    never_archived = found.live is not None and not found.copies
    decoded = decode(bucket, policy, plausible=context.plausible if never_archived else None)
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
    columns, rules = decoded.columns, context.rules
    numbers = rules.governing(columns, context.cutoffs, policy.series_names)
    number = numbers[0] if numbers else rules.own
    return ExplainedBucket(
        id=bucket.main.legible_id(0),
        series=columns.series[columns.bucket_series[0]] if is_sound and not policy.sample_series else None,
        first=first,
        last=last,
        readings=len(columns.time) if is_sound else None,
        versions=len(found.copies),
        fate=fate(rules.policies[number], facts, _by(rules, number)),
        history=history(context, archived, found, (first or 0, last or 0), pin),
        holds=holds,
    )


def _end(context: ArchiveContext, archived: Evidence, copies: Sequence[Copy], last: int | None) -> End | None:
    """Returns when the last copy of a bucket goes by `retain.archive`."""
    rules = RetentionRules(context.policy, context.now)
    if not any(rules.rules) or last is None or not copies:
        return None
    with_it = archived.expires_with(copies[-1], last)
    rule = None if with_it.rule is None else rules.rules[with_it.rule]
    if with_it.rule is None or rule is None:
        return None
    tombstone = (context.receipts.get(with_it.record) or {}).get("tombstone")
    at = rule.expires_at(with_it.last_ms, with_it.archived, tombstone)
    return End(
        _by(rules.series, with_it.rule), rule.text, at, rule.due(tombstone, with_it.archived) is not None
    )


def _by(rules: SeriesRules, number: int) -> str:
    """Returns the name of a rule, to be put in front of what it says; nothing for the policy's own."""
    return f"{text}: " if (text := rules.text(number)) else ""


def _holds(context: ArchiveContext, policy: Policy, decoded: Decoded) -> list[Hold]:
    """Returns the holds that cover a bucket, decoded as `policy` says."""
    holds = Holds(context.database, context.policy.identity).active()
    return [it for it in holds if covered(decoded, policy, [it])]


def _span(policy: Policy, bucket: Batch) -> tuple[int | None, int | None]:
    span = model_of(policy).covered_span(bucket.main[0])
    return (span[0], span[1] - 1) if span else (None, None)


def _equal_copy(policy: Policy, found: FoundBucket) -> Any:
    """Returns when the copy was made that equals the live bucket, and whose original no run has deleted."""
    if found.live is None:
        return None
    mine = units(policy, found.live)
    equal = [it for it in found.copies if it.may_be_live and units(policy, it.version.bucket) == mine]
    return equal[-1].copied if equal else None
