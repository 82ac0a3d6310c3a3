"""Preconditions of a run: one list, at the first of which a run or a plan stops, and all of which
`check` reports.

To add one: write a function that yields a `Problem` where something is not as a run needs it, and changes
nothing. Put it into one of the lists at the end, before those that rely on it. Its code goes into the
table of `check` in docs/begin.md. tests/jobs/keeping/test_preconditions.py wants a case of it. It is
asked once a run, and may cost a command or two, and a request to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.evidence import Evidence
from bucketwise.archivers.mirroring.changes import catch_up, is_new, note_new, standings
from bucketwise.archivers.mirroring.places import copied
from bucketwise.archivers.moving.archive import check_kind
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.records.policies import PolicyRecord
from bucketwise.archivers.records.receipt_files import TIME, recorded
from bucketwise.archivers.stores.base import Missing, StoreError
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import MAX_SKEW, as_date, as_text, later
from bucketwise.config.errors import BucketwiseError, HaltedError, UsageError
from bucketwise.config.models import LAYOUT_KEYS, layout_of
from bucketwise.config.policies import LevelName, Policy
from bucketwise.config.written import fingerprint, layout_fingerprint
from bucketwise.rollups.calendar.levels import Level, base_levels, levels_of, sources_of
from bucketwise.rollups.context import transaction
from bucketwise.rollups.progress import COLLECTION as PROGRESS
from bucketwise.rollups.summaries.targets import target


def recorded_time(context: ArchiveContext) -> datetime | None:
    """Returns the latest time that receipts and the last manifests tell; None without any. Raises HaltedError
    where the store does not hold these manifests."""
    if context.state.heads is None:
        context.state.heads = archive_of(context).heads()
    return recorded(context.receipts).among(context.state.heads)


def behind(context: ArchiveContext) -> BucketwiseError | None:
    """Returns an error where the run's `now` lies before what is recorded, by more than clocks may differ."""
    found = recorded_time(context)
    if found is None or context.now >= found - MAX_SKEW:
        return None
    return BucketwiseError(
        f"policy {context.policy.name}: the run's now is {as_text(context.now)}, and the archive recorded "
        f"{as_text(found)}, which is later. Nothing was archived, deleted or expired. Give a later --now, or "
        "none. A time in the future that was recorded by mistake is lifted by `bucketwise resume --time "
        "--reason TEXT`"
    )


def lift_time(context: ArchiveContext, reason: str, by: str) -> datetime:
    """Records that times after `now`, which is the present, were recorded by mistake. Returns the latest of
    them. Raises UsageError where there are none."""
    found = recorded_time(context)
    if found is None or found <= later(context.now, MAX_SKEW):
        told = "none is recorded" if found is None else f"the latest that is recorded is {as_text(found)}"
        raise UsageError(
            f"resume --time: policy {context.policy.name}: {told}; only a time in the future is lifted. "
            "Nothing was changed"
        )
    facts = {"recorded": found, "reason": reason, "by": by}
    transaction(context.database, context.guard, partial(_record, context, facts))
    return found


def _record(context: ArchiveContext, facts: dict[str, object], session: ClientSession) -> None:
    context.deletions.check_last(session)
    context.deletions.record_event(TIME, facts, session)


@dataclass(frozen=True)
class RollupImpact:
    """The result of a roll-up by the changed policy. Where it reads readings again: how many buckets are live
    and archived, the latter with their readings and bytes of BSON, None where they are not known.

    `standing`: summaries by the policy of today, by level. `lost`: those that end before `first`, the first
    reading that is live or archived; None where there is none.
    """

    levels: Sequence[str]
    everything: bool  # all summaries
    live_buckets: int
    archived_buckets: int
    archived_readings: int | None
    archived_bytes: int | None
    standing: Mapping[LevelName, int]
    lost: Mapping[LevelName, int]
    first: datetime | None


def rollup_impact(context: ArchiveContext, archived: Evidence, changed: Policy) -> RollupImpact | None:
    """Returns what the changed policy would roll up again, in the context of today's; None where nothing."""
    today = {level.name: level for level in levels_of(context.policy)}
    levels = levels_of(changed)
    is_whole = fingerprint(changed) != fingerprint(context.policy)
    made = [it for it in levels if is_whole or _is_new(it, today.get(it.name))]
    if not made:
        return None
    reads = is_whole or any(it in base_levels(levels) and not sources_of(it, levels) for it in made)
    first = _first(context) if is_whole else None
    stands = {name: _count(context, level) for name, level in today.items()} if is_whole else {}
    lost = {name: _count(context, level, first) for name, level in today.items()} if is_whole else {}
    live = replace(context, policy=changed).source.count() if reads else 0
    total, readings, size = archived.totals() if reads else (0, 0, 0)
    names = [level.name for level in made]
    since = None if first is None else as_date(first)
    return RollupImpact(names, is_whole, live, total, readings, size, stands, lost, since)


def dropped(context: ArchiveContext, changed: Policy) -> dict[LevelName, int]:
    """Returns how many summaries there are of levels of today's policy that the changed one lacks, or makes
    elsewhere, by level."""
    targets = changed.rollup.targets if changed.rollup else {}
    gone = [it for it in levels_of(context.policy) if targets.get(it.name) != it.collection]
    return {level.name: _count(context, level) for level in gone}


def _is_new(level: Level, before: Level | None) -> bool:
    return before is None or before.collection != level.collection


def _count(context: ArchiveContext, level: Level, before: int | None = None) -> int:
    """Returns how many summaries of a level there are, or end before an instant."""
    query: dict[str, object] = {"_id.series": {"$exists": True}}
    if before is not None:
        query |= {"start": {"$lt": DatetimeMS(before)}, "end": {"$lte": DatetimeMS(before)}}
    return target(context.database, level.collection).count_documents(query)


def _first(context: ArchiveContext) -> int | None:
    """Returns when the first reading is that is live or archived; of an offline archive the day's start."""
    span = archived_reader(context.connections, context.policy).span()
    found = (None if span is None else span[0], context.source.earliest())
    return min((it for it in found if it is not None), default=None)


#: What tells of which series, and of which days, a summary is.
_RULES_OF_SUMMARIES: dict[str, Callable[[Policy], object]] = {
    "series_fields": lambda it: it.series_names,
    "rollup.timezone": lambda it: it.rollup and it.rollup.has_days and it.rollup.timezone,
    "local_offset_field": lambda it: it.rollup and it.rollup.has_days and it.local_offset_field,
}


def unmakeable(context: ArchiveContext, archived: Evidence, before: Policy) -> str | None:
    """Says which summaries by the policy of `before` can't be made again by the present one, and don't go
    with those that can; None where there are none."""
    policy = context.policy
    changed = [key for key, rule in _RULES_OF_SUMMARIES.items() if rule(before) != rule(policy)]
    if not changed or not _targets(before) & _targets(policy):
        return None
    impact = rollup_impact(replace(context, policy=before), archived, policy)
    counts = [f"{count:,} {name}" for name, count in impact.lost.items() if count] if impact else []
    if not counts:
        return None
    keys = " and ".join(changed)
    return (
        f"{keys} changed, and {', '.join(counts)} summaries are of readings that are neither live nor "
        "archived: they can't be made again by the new rules, and don't go with those that are. Put "
        f"{keys} back; or name new collections in rollup for the summaries by the new rules: the old ones "
        "then stay where they are"
    )


def _targets(policy: Policy) -> set[str]:
    return set(policy.rollup.targets.values()) if policy.rollup else set()


def unreadable(policy: Policy, archived: Evidence, before: Policy) -> str | None:
    """Says which archived buckets break the present policy and fitted that of `before`; None where a few of
    them show none."""
    if layout_fingerprint(before) == layout_fingerprint(policy):
        return None
    for batch in archived.samples():
        fit, now = decode(batch, before), decode(batch, policy)
        if len(now.units) < len(fit.units):
            first = now.quarantined[0]
            old, new = layout_of(before), layout_of(policy)
            keys = sorted(key for key in LAYOUT_KEYS if old.get(key) != new.get(key))
            unfit = len(fit.units) - len(now.units)
            return (
                f"{', '.join(keys)} changed, and {unfit:,} of {len(batch):,} archived buckets that were seen "
                f"don't fit any more ({first.field}: {first.reason}): summaries of them could not be made "
                "again. Put it back, and give documents of another design a policy and a collection of their "
                "own"
            )
    return None


@dataclass(frozen=True)
class Problem:
    """A reason why a run can't go on. `code` is stable and for machines; `place` says where. The message of
    `error` says what, which value, and how to fix it; its class is that of the exit code."""

    code: str
    place: str
    error: BucketwiseError


Precondition = Callable[[ArchiveContext], Iterator[Problem]]


def problems(context: ArchiveContext, preconditions: Iterable[Precondition]) -> Iterator[Problem]:
    """Yields what keeps a run from going on. What this run has found in order is not asked again."""
    for precondition in preconditions:
        if precondition not in context.state.met:
            found = list(precondition(context))
            yield from found
            if not found:
                context.state.met.add(precondition)


def require(context: ArchiveContext, preconditions: Iterable[Precondition]) -> None:
    """Raises the error of the first problem."""
    for problem in problems(context, preconditions):
        raise problem.error


def destroying(context: ArchiveContext) -> ArchiveContext:
    """Returns a context in which no transaction begins while the database lacks a hold that the store tells
    of. The store is asked when the first one does."""

    def guard(session: ClientSession) -> None:
        context.guard(session)
        require(context, OF_DESTROYERS)

    return replace(context, guard=guard)


def has_source(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy's collection does not exist."""
    policy = context.policy
    if policy.may_be_missing or any(it["name"] == policy.collection for it in context.listed):
        return
    error = BucketwiseError(
        f"policy {policy.name}: there is no collection {policy.collection} in the database "
        f"{context.database.name}: is the name right? Where it may be missing, write may_be_missing = true. "
        "Nothing was changed"
    )
    yield Problem("source-missing", policy.collection, error)


def is_known(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy has no records, and one that has left the file has some of the same
    collection and model: it may be that one, renamed."""
    policy, records = context.policy, context.policy_records
    context.state.record = records.get(policy.identity)
    if context.state.record or policy.id == policy.name or records.has_any(policy.identity):
        return
    for other in records.departed(policy, context.known):
        under = f" under its id {policy.id}" if policy.id else ""
        error = HaltedError(
            f"policy {policy.name}: it has no records{under}, and policy {other}, which is not in this file, "
            f"has some of the same collection ({policy.collection}) and model ({policy.model}). If it is "
            f'{other}, renamed: write id = "{other}" into [policies.{policy.name}]. If {other} has ended: '
            f"`bucketwise retire {other} --reason TEXT`. If {other} goes on in another policy file: write "
            f'id = "{policy.name}". Nothing was changed'
        )
        yield Problem("policy-renamed", f"{PROGRESS}, {other}", error)


def reads_archive(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy reads buckets by other rules than before, and archived ones break
    these."""
    before = _changed_from(context)
    if before is not None and (fault := unreadable(context.policy, archive_of(context).evidence, before)):
        error = HaltedError(f"policy {context.policy.name}: {fault}. Nothing was changed")
        yield Problem("archive-unreadable", context.policy.collection, error)


def can_be_made_anew(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where series or days are others than before, and summaries stand that can't be made
    again."""
    before = _changed_from(context)
    if before is not None and (fault := unmakeable(context, archive_of(context).evidence, before)):
        error = HaltedError(f"policy {context.policy.name}: {fault}. Nothing was changed")
        yield Problem("summaries-lost", context.policy.collection, error)


def _changed_from(context: ArchiveContext) -> Policy | None:
    """Returns the policy as it was when it ran last; None where it has not changed since."""
    record = context.state.record
    return None if record is None or record == PolicyRecord.of(context.policy) else record.policy


def has_one_kind(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the policy has archived to another kind of archive than it says."""
    try:
        check_kind(context.database, context.policy)
    except BucketwiseError as error:
        yield Problem("archive-kind", context.policy.collection, error)


def has_store(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the directory of the policy's store does not exist."""
    try:
        context.binding.check_there()
    except (HaltedError, Missing) as error:
        yield Problem("store-absent", context.binding.place, error)


def has_copies(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where a copy without which nothing counts was not filled, or can't be brought up to
    what a run that was cut off has left. A run does that first; what waits is asked of the database alone."""
    store = copied(context)
    if store is None:
        return
    if context.fence:
        note_new(context)
    for copy, it in zip(store.copies, standings(context), strict=True):
        if it.required and it.filled_at is None and not is_new(context):
            error = HaltedError(
                f"policy {context.policy.name}: copy {it.name} at {it.url} is required, and does not have "
                "what was archived before. Nothing was archived or deleted. Fill it: `bucketwise copy`; or "
                "write required = false"
            )
            yield Problem("copy-unfilled", it.url, error)
        elif it.required and it.behind and context.fence:
            try:
                catch_up(context, store, copy)
            except (StoreError, HaltedError) as error:
                yield Problem("copy-behind", it.url, error)


def is_ours(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the archive belongs to another deployment; where nothing is written, also where
    a run would halt at its first write."""
    if context.policy.archiving is None:
        return
    try:
        context.binding.check()
        if not context.fence:
            context.binding.check_claim()
    except Missing:
        pass  # which `has_store` tells
    except HaltedError as error:
        yield Problem("archive-not-ours", context.binding.place, error)


def has_heads(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store does not hold the last commits, or collections of an online archive
    are not as they were left. A run that writes finds that when it recovers, before anything else."""
    if context.fence:
        return
    archive = archive_of(context)
    try:
        context.state.heads = archive.heads()
    except HaltedError as error:
        yield Problem("archive-incomplete", archive.place, error)


def has_all_commits(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store lacks a registered commit, or one that was dropped has come back. A
    run lists all commits, and finds that, after one that was cut off; until then `check` tells."""
    if has_heads not in context.state.met:
        return
    archive = archive_of(context)
    yield from _halting("archive-incomplete", archive.place, archive.check_complete)


def has_no_others(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the store holds a commit, or a file named for one, that no run of this database
    has left there. A run lists these where the last one was cut off, or the last commit is unknown."""
    if has_heads not in context.state.met:
        return
    archive = archive_of(context)
    yield from _halting("archive-foreign", archive.place, archive.check_own)


def _halting(code: str, place: str, check: Callable[[], None]) -> Iterator[Problem]:
    try:
        check()
    except HaltedError as error:
        yield Problem(code, place, error)


def goes_forward(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem where the run's `now` lies before what the archive has recorded. It may roll up all
    the same. Where the last commits are missing, `has_heads` and recovery tell."""
    with suppress(HaltedError):
        if (error := behind(context)) is not None:
            yield Problem("time-recorded", context.receipts.collection.name, error)


def has_holds(context: ArchiveContext) -> Iterator[Problem]:
    """Yields a problem for each hold that the store tells of, and the database lacks or can't compare."""
    for error in context.damage_of_holds():
        yield Problem("hold-missing", error.place, error)


#: Those of whatever reads the archive. It finds by itself whether what it reads is there.
OF_READERS: tuple[Precondition, ...] = (is_known, has_one_kind)
#: Those of whatever works on the archive.
OF_ARCHIVES: tuple[Precondition, ...] = (*OF_READERS, has_store, has_copies, has_heads, is_ours)
#: Those of whatever changes the archive without the source.
OF_REWRITERS: tuple[Precondition, ...] = (*OF_ARCHIVES, goes_forward)
#: Those of a run, in the order in which it asks for them, before it rolls up.
PRECONDITIONS: tuple[Precondition, ...] = (
    has_source, *OF_ARCHIVES, reads_archive, can_be_made_anew,
)  # fmt: skip
#: Those of whatever destroys something that a hold may cover.
OF_DESTROYERS: tuple[Precondition, ...] = (has_holds,)
#: All: also those that it asks for once it has rolled up.
OF_WRITERS: tuple[Precondition, ...] = (*PRECONDITIONS, goes_forward)
#: What `check` looks for.
OF_CHECKS: tuple[Precondition, ...] = (*OF_WRITERS, *OF_DESTROYERS, has_all_commits, has_no_others)
#: What a step does that has preconditions. A hold is not told to the store of somebody else.
Needs = Literal["knowing", "reading", "working", "rewriting", "erasing", "rolling up", "archiving", "holding"]
LISTS: Mapping[Needs, Sequence[Precondition]] = {
    "knowing": (is_known,),
    "reading": OF_READERS,
    "working": OF_ARCHIVES,
    "rewriting": OF_REWRITERS,
    "erasing": (*OF_REWRITERS, *OF_DESTROYERS),
    "rolling up": PRECONDITIONS,
    "archiving": OF_WRITERS,
    "holding": (has_store, is_ours),
}
