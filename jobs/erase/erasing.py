"""Erases a series from everything, and searches everything for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain, groupby, islice

import bson
from bson.datetime_ms import DatetimeMS
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import STAYED, Erasure, ErasureWork, check_edges, check_erasable
from bucketwise.archivers.erasing.kind import (
    COUNTS,
    ArchivedSeries,
    ErasureReport,
    PlaceHolding,
    Remaining,
    SeriesOf,
    TextSearch,
    remaining_in,
)
from bucketwise.archivers.erasing.online import CollectionEraser, holdings_in, source_of
from bucketwise.archivers.upkeep import roll_up_all
from bucketwise.archivers.writes import MAX_BUCKETS
from bucketwise.buckets.bson.cursor import find_raw, ids_query
from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.selectors import series_text, summary_query
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.models.shape import split
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Level, levels_of
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST
from bucketwise.rollups.progress import forget_held, note_left
from bucketwise.rollups.rolling.linking import beside, reach_of
from bucketwise.rollups.rolling.plan import RollupOptions
from bucketwise.rollups.rolling.quarantine import Quarantine
from bucketwise.rollups.standing import count_changes, delete_summaries, month_of
from bucketwise.rollups.summaries.documents import OPTIONS, is_of_series
from bucketwise.rollups.summaries.documents import series_of as series_of_summary
from bucketwise.rollups.summaries.targets import target


@dataclass(frozen=True)
class ErasureFacts:
    """Other facts that matter to an erasure. `others`: policies that read the same collection.
    `is_deleted_early`: something removes raw data that is in no archive of this policy."""

    others: Sequence[Policy] = ()
    is_deleted_early: bool = False


def plan_erasure(
    context: ArchiveContext, archived: ArchivedSeries, erasure: Erasure, others: Sequence[Policy]
) -> ErasureReport:
    """Returns what `erase` would do. Changes nothing. Raises UsageError as it does."""
    check_erasable(context, erasure, others)
    counts, counted, across, left = Counter[str](), set[int](), 0, list[Remaining]()
    live = holdings_in(context, source_of(context.policy), erasure)
    for it in chain(live, archived.holdings(erasure)):
        context.check()
        new = it.names.all - counted
        counts.update({"buckets": len(new), "rewritten": len(new & it.names.rewritten), it.kind: it.erased})
        counts["commits_rewritten"] += it.kind == "archived" and it.erased > 0
        counted |= it.names.all
        across += it.across
        left += [Remaining(it.place, it.unread, True)] if it.unread else []
    counts += count_records(context, erasure)
    counts["summaries"] = sum(len(it) for _, it in summaries_of(context, erasure))
    check_edges(erasure, across)
    named = {name: counts[name] for name in COUNTS}
    return ErasureReport(named, [*left, *unreached(archived, erasure)])


def erase_series(
    context: ArchiveContext, series_of: SeriesOf, erasure: Erasure, facts: ErasureFacts
) -> ErasureReport:
    """Erases a series, or continues where an earlier call was cut off. Returns what was erased, and what
    remains. Raises UsageError, and has changed nothing, where another erasure of the policy has not ended, a
    hold forbids it, or buckets reach over the edge of the range."""
    work, archived = ErasureWork(context, erasure, facts.others), series_of(context)
    begun = check_erasable(context, erasure, facts.others)
    if begun is None and erasure.within.is_bounded:
        plan_erasure(context, archived, erasure, facts.others)  # which raises where the range cuts buckets
    if context.policy.archiving is not None:
        context.binding.claim()
    work.counted.update(work.erasures.counted())
    if begun is None:
        request = erasure.text, erasure.within, erasure.reason, context.now
        work.transaction(lambda session: work.erasures.begin(*request, session))
    left = _erase_all(work, archived, is_deleted_early=facts.is_deleted_early)
    left += remaining(context, series_of, erasure, facts.others)
    return ErasureReport(work.transaction(lambda session: _end(work, session)), left)


def _erase_all(work: ErasureWork, archived: ArchivedSeries, *, is_deleted_early: bool) -> list[Remaining]:
    live = CollectionEraser(work, source_of(work.context.policy))
    live.run()
    archived.erase(work)
    live.run()  # documents inserted since
    return erase_summaries(work, is_deleted_early=is_deleted_early)


def _end(work: ErasureWork, session: ClientSession) -> dict[str, int]:
    """Writes the receipt in place of the record of the beginning. Returns the counts."""
    begun = work.erasures.begun(session)
    assert begun is not None  # written under the lease, which this transaction checks
    counts = {name: begun.counts.get(name, 0) for name in COUNTS}
    facts = {
        "collection": work.context.policy.collection,
        "series": work.context.keys.sign(work.erasure.text) or begun.hashed,
        "since": begun.within.since,
        "until": begun.within.until,
        "reason": begun.reason,
        "begun": begun.at,
        "erased": counts,
        "stayed": begun.counts.get(STAYED, 0),
    }
    work.context.deletions.record_event("erase", facts, session)
    work.erasures.end(session)
    return counts


_ACROSS = "buckets of the series reach over an edge of the range, or have a time that can't be read"

_WHAT = {
    "live": "buckets are of the series",
    "online": "buckets are of the series",
    "versions": "versions of buckets are of the series",
    "archived": "buckets of the commit are of the series",
    "set_aside": "documents are of the series",
}

_NUMBERS = (
    "numbers, true, false, and texts of one or two characters are looked for as values of the series, and "
    "not inside texts"
)

_OPLOG = "it contains what was deleted until that is overwritten"
_OTHERS = "backups, exports, logs, and collections into which buckets were restored are not searched"


def remaining(
    context: ArchiveContext, series_of: SeriesOf, erasure: Erasure, others: Sequence[Policy]
) -> Iterator[Remaining]:
    """Yields the places that hold something of the series, then those that no erasure reaches. `others`:
    policies that read the same collection."""
    archived = series_of(context)
    yield from _reported(holdings_in(context, source_of(context.policy), erasure))
    yield from _by_series(context, archived, erasure)
    for policy in others:
        if set(erasure.series) <= set(policy.series_names):
            theirs = Erasure(policy, erasure.series, erasure.within, "")
            other = replace(context, policy=policy)
            for it in _by_series(other, series_of(other), theirs):
                yield it._replace(why=f"{it.why}: erase them with policy {policy.name}")
    if not erasure.within.is_bounded:  # else what lies outside the range has the same values
        yield from _texts(context, archived, TextSearch(context, erasure))
    yield from unreached(archived, erasure)


def _by_series(context: ArchiveContext, archived: ArchivedSeries, erasure: Erasure) -> Iterator[Remaining]:
    """Yields what a policy holds of the series by its fields, besides its source."""
    yield from _reported(archived.holdings(erasure))
    for level, some in summaries_of(context, erasure, is_within=True):
        yield from remaining_in(level.collection, "summaries are of the series", len(some))
    yield from archived.leftovers(erasure)


def _texts(context: ArchiveContext, archived: ArchivedSeries, search: TextSearch) -> Iterator[Remaining]:
    """Yields where a value of the series stands as text."""
    policy = context.policy
    yield from search.collections([*source_of(policy)[1:], *(it.collection for it in levels_of(policy))])
    yield from search.own()
    yield from archived.texts(search)


def _reported(places: Iterable[PlaceHolding]) -> Iterator[Remaining]:
    for (kind, place), some in groupby(places, lambda it: (it.kind, it.place)):
        held = list(some)
        for why in {it.unread: None for it in held if it.unread}:
            yield Remaining(place, why, True)
        yield from remaining_in(place, _WHAT[kind], sum(it.erased for it in held))
        yield from remaining_in(place, _ACROSS, sum(it.across for it in held))


def count_records(context: ArchiveContext, erasure: Erasure) -> Counter[str]:
    """Returns how many live buckets of the series are pinned, and how many are recorded as quarantined."""
    counts = Counter[str]()
    recorded = Quarantine(context.database, erasure.policy, context.now).recorded()
    ids = (it["_id"]["id"] for it in recorded)
    pages = iter(lambda: list(islice(ids, MAX_BUCKETS)), [])
    for name, found in (("pins", context.pins.pages()), ("quarantine", pages)):
        for batch in chain.from_iterable(map(context.source.by_ids, found)):
            it = erasure.sort(batch)
            counts[name] += len(it.erased if name == "pins" else it.affected)
    return counts


def unreached(archived: ArchivedSeries, erasure: Erasure) -> Iterator[Remaining]:
    """Yields the places that an erasure does not reach. Only older versions of files count as found."""
    yield from archived.unreached(erasure)
    if not erasure.matcher.is_whole and not erasure.within.is_bounded:
        yield Remaining("collections and files", _NUMBERS, False)
    yield Remaining("the oplog of MongoDB", _OPLOG, False)
    yield Remaining("elsewhere", _OTHERS, False)


_AT_ONCE = 1000
_MS = timedelta(milliseconds=1)


def summaries_of(
    context: ArchiveContext, erasure: Erasure, *, is_within: bool = False
) -> Iterator[tuple[Level, list[bytes]]]:
    """Yields the summaries of the series whose windows touch the range: the level, and the `_id`s of
    some. `is_within`: only those whose windows lie in it."""
    start, end = DatetimeMS(erasure.within.start_ms), DatetimeMS(erasure.within.end_ms)
    ranged = (
        {"start": {"$gte": start, "$lt": end}, "end": {"$lte": end}}
        if is_within
        else {"start": {"$lt": end}, "end": {"$gt": start}}
    )
    query = {**summary_query(erasure.series), **ranged, "_id.series": {"$exists": True}}
    for level in levels_of(erasure.policy):
        collection = target(context.database, level.collection)
        for documents in find_raw(collection, query, fields={"_id": 1}):
            mine = [documents.raw_id(i) for i, it in enumerate(documents) if _is_of(it, erasure)]
            for at in range(0, len(mine), _AT_ONCE):
                yield level, mine[at : at + _AT_ONCE]


def _is_of(document: bytes, erasure: Erasure) -> bool:
    return all(
        series_text(as_queried(first_at(document, ("_id", "series", *split(name))))) == text
        for name, text in erasure.series.items()
    )


def erase_summaries(work: ErasureWork, *, is_deleted_early: bool) -> list[Remaining]:
    """Deletes the summaries of all windows that touch the range, has those beside it tell nothing of it, then
    rolls up those at its edges again, from what is left. Returns which of these wait, since the archive can't
    be read there: each run tries them again. `is_deleted_early`: something removes raw data that is in no
    archive of this policy."""
    context, waiting = work.context, dict[str, None]()
    for level, raw_ids in summaries_of(work.context, work.erasure):
        work.context.check()
        work.transaction(partial(_delete, work, level, raw_ids))
    for level in levels_of(work.erasure.policy) if work.erasure.within.is_bounded else ():
        _relink(work, level)
    for edge in _edges(work.erasure.within):
        options = RollupOptions(edge, is_deleted_early=is_deleted_early, leaves_unreadable=True)
        left = roll_up_all(context, options).left
        note_left(context.database, context.policy, [it.slice for it in left])
        waiting |= dict.fromkeys(it.reason for it in left)
    return [Remaining("summaries at the edges of the range", f"they wait: {it}", True) for it in waiting]


def _delete(work: ErasureWork, level: Level, raw_ids: list[bytes], session: ClientSession) -> None:
    work.check_not_held(session)
    database, policy = work.context.database, work.erasure.policy
    deleted = delete_summaries(database, policy, level, ids_query(raw_ids), session)
    work.erasures.count({"summaries": deleted}, session)
    found = [{"_id": bson.decode(it[1:], OPTIONS)} for it in raw_ids]
    keys = {series_key(series_of_summary(policy, it)) for it in found if is_of_series(policy, it)}
    span = work.erasure.within.start_ms, work.erasure.within.end_ms
    forget_held(database, policy, keys, span, session)


def _relink(work: ErasureWork, level: Level) -> None:
    """Writes the summaries again that stand beside the range, and tell of the readings in it."""
    context, erasure = work.context, work.erasure
    reach, within = reach_of(erasure.policy, level), erasure.within
    if not reach:
        return
    edges = level.edges(max(LOWEST, within.start_ms), min(HIGHEST - 1, within.end_ms))
    low, high = max(LOWEST, edges[0] - reach), min(HIGHEST, edges[-1] + reach)
    around = {"start": {"$gte": DatetimeMS(low), "$lt": DatetimeMS(high)}}
    query = {**summary_query(erasure.series), **around, "_id.series": {"$exists": True}}
    found = find_raw(target(context.database, level.collection), query, fields={"_id": 1})
    summaries = [bson.decode(it, OPTIONS) for documents in found for it in documents if _is_of(it, erasure)]
    series = [series_of_summary(erasure.policy, it) for it in summaries if is_of_series(erasure.policy, it)]
    changes = beside(context, level, (edges[0], edges[-1]), series)
    put = [bytes(identity.raw) for identity, _ in changes.replaced]
    if put:
        context.listener(level.collection, put, ())
    changes.apply(erasure.policy, context.guard, partial(_count_written, context, level))


def _count_written(
    context: ArchiveContext,
    level: Level,
    added: Sequence[int],
    removed: Sequence[int],
    session: ClientSession,
) -> None:
    counts = Counter(map(month_of, added))
    counts.subtract(map(month_of, removed))
    count_changes(context.database, context.policy, level, counts, session)


def _edges(within: TimeRange) -> Iterator[TimeRange]:
    """Yields ranges that touch only the windows which may reach beyond the edges of this one."""
    if within.since is not None:
        yield TimeRange(within.since, within.since + _MS)
    if within.until is not None:
        yield TimeRange(within.until - _MS, within.until)
