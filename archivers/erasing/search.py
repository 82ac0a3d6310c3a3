"""Searches all that a policy keeps for a series, once it is erased; and names the places that no erasure
reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.collections import holdings_in, source_of
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import ArchivedSeries, PlaceHolding, SeriesOf
from bucketwise.archivers.erasing.report import Remaining, counted
from bucketwise.archivers.erasing.summaries import summaries_of
from bucketwise.archivers.erasing.texts import TextSearch
from bucketwise.archivers.writes.delete import MAX_BUCKETS
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.rolling.quarantine import Quarantine

_ACROSS = "buckets of the series reach over the edge of the range"
_WHAT = {
    "live": "buckets are of the series",
    "online": "buckets are of the series",
    "versions": "versions of buckets are of the series",
    "archived": "buckets of the commit are of the series",
    "set_aside": "documents are of the series",
}
_UNREADABLE = "the file can't be read as documents: look at it, and delete it"
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
        if set(erasure.series) <= set(policy.series_names) and not policy.sample_series:
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
        yield from counted(level.collection, "summaries are of the series", len(some))
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
        if not all(it.is_readable for it in held):
            yield Remaining(place, _UNREADABLE, True)
        yield from counted(place, _WHAT[kind], sum(it.erased for it in held))
        yield from counted(place, _ACROSS, sum(it.across for it in held))


def count_records(context: ArchiveContext, erasure: Erasure) -> Counter[str]:
    """Returns how many live buckets of the series are pinned, and how many are recorded as quarantined."""
    counts = Counter[str]()
    recorded = Quarantine(context.database, erasure.policy, context.now).recorded()
    ids = (it["_id"]["id"] for it in recorded)
    pages = iter(lambda: list(islice(ids, MAX_BUCKETS)), [])
    for name, found in (("pins", context.pins.pages()), ("quarantine", pages)):
        for batch in chain.from_iterable(map(context.source.by_ids, found)):
            counts[name] += len(erasure.sort(batch).erased)
    return counts


def unreached(archived: ArchivedSeries, erasure: Erasure) -> Iterator[Remaining]:
    """Yields the places that an erasure does not reach. Only older versions of files count as found."""
    yield from archived.unreached(erasure)
    if not erasure.matcher.is_whole and not erasure.within.is_bounded:
        yield Remaining("collections and files", _NUMBERS, False)
    yield Remaining("the oplog of MongoDB", _OPLOG, False)
    yield Remaining("elsewhere", _OTHERS, False)
