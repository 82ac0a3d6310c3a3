"""What archiving is worth: sizes of collections before and after, and how they grow, with and without the
policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.kinds.evidence import Stored, StoredSpan
from bucketwise.archivers.kinds.offline import stored_by_records
from bucketwise.archivers.records.deletions import removed_so_far
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import span_ms
from bucketwise.rollups.progress import NO_GATE, load

#: An index without entries has a file of so many bytes.
_EMPTY_INDEX = 20_480
_IS_A_VIEW = 166


class CollectionSize(NamedTuple):
    """Bytes of a collection: of its documents, of the files of its indexes, and how much of these is free to
    be used again. `index_count`: how many there are."""

    data: int
    indexes: int
    index_free: int
    index_count: int

    @property
    def index_used(self) -> int:
        """Returns the bytes of the indexes that are in use."""
        return max(0, self.indexes - self.index_free)

    @property
    def index_entries(self) -> int:
        """Returns how many of these bytes there are for entries."""
        return max(0, self.index_used - self.index_count * _EMPTY_INDEX)

    @classmethod
    def sum(cls, sizes: Iterable[CollectionSize]) -> CollectionSize:
        """Returns the size of several collections."""
        return cls(*map(sum, zip(cls(0, 0, 0, 0), *sizes, strict=True)))


def size_of(database: Database[Any], name: str) -> CollectionSize:
    """Returns the size of a collection; zeros where there is none, or a view."""
    try:
        found = database.command("collStats", name, indexDetails=True)
    except OperationFailure as error:
        if error.code == _IS_A_VIEW:
            return CollectionSize(0, 0, 0, 0)
        raise
    shards = found.get("shards")
    parts: Iterable[Mapping[str, Any]] = [found] if shards is None else shards.values()
    free = sum(_free(detail) for part in parts for detail in part.get("indexDetails", {}).values())
    return CollectionSize(int(found["size"]), int(found["totalIndexSize"]), free, int(found["nindexes"]))


def _free(detail: Mapping[str, Any]) -> int:
    return int(detail.get("block-manager", {}).get("file bytes available for reuse", 0))


Document = dict[str, Any]
#: The growth of the last 90 days of data tells how much a month adds, which has 30.
RECENT_MS, MONTH_MS = 90 * DAY_MS, 30 * DAY_MS
_UNAUTHORIZED = 13


class Sizes(NamedTuple):
    """Bytes: of documents, of their indexes, of summaries with theirs, and in the archive."""

    data_bytes: int
    index_bytes: int
    summary_bytes: int
    store_bytes: int

    @property
    def total(self) -> int:
        """Returns all of it."""
        return sum(self)


class Forecast(NamedTuple):
    """Bytes that a month adds, with the policy and without it; None where there is no data to tell it."""

    with_policy: int | None
    without: int | None


@dataclass(frozen=True)
class Worth:
    """The sizes as they would be had nothing been removed, those of today, and what was removed."""

    before: Sizes
    now: Sizes
    removed_bytes: int
    forecast: Forecast

    @property
    def body(self) -> Document:
        """Returns it as JSON."""
        return {
            "before": self.before._asdict(),
            "now": self.now._asdict(),
            "removed_bytes": self.removed_bytes,
            "forecast": {"with": self.forecast.with_policy, "without": self.forecast.without},
        }


def worth_of(context: ArchiveContext) -> Worth:
    """Returns what the policy is worth. Asks MongoDB for sizes and records, whose number does not grow with
    the collection, and the store for nothing."""
    database, policy = context.database, context.policy
    names = [policy.collection, *([policy.overflow.collection] if policy.overflow else [])]
    live = CollectionSize.sum(size_of(database, it) for it in names)
    since = as_ms(context.now) - RECENT_MS
    if policy.has_parts:  # the page of the service has no store
        stored = stored_by_records(context.receipts, since)
    else:
        stored = archive_of(context).evidence.stored(since)
    removed = removed_so_far(context.receipts)
    removed_bytes = stored.removed if removed is None else removed
    span = context.source.span()
    held = [] if span is None else [StoredSpan(*span, live.data, live.data)]
    summaries = list(_summaries(database, policy, [*held, *stored.spans]))
    now = Sizes(live.data, live.indexes, sum(it.stored for it in summaries), stored.size)
    before = Sizes(live.data + removed_bytes, index_before(live, removed_bytes), 0, 0)
    return Worth(before, now, removed_bytes, _forecast(policy, before, held, summaries, stored))


def known_worth(context: ArchiveContext) -> Worth | None:
    """Returns what the policy is worth; None where the user may not ask for sizes."""
    try:
        return worth_of(context)
    except OperationFailure as error:
        if error.code == _UNAUTHORIZED:
            return None
        raise


def index_before(live: CollectionSize, removed: int) -> int:
    """Returns how large the indexes would be: larger in proportion to the documents, as far as they hold
    entries; and as large as they are at least, since their files do not shrink. Of a few documents their
    pages tell little: entries take no more than the documents."""
    if not live.data:
        return live.indexes
    entries = min(live.index_entries, live.data)
    return max(live.indexes, live.index_used + entries * removed // live.data)


def monthly(spans: Sequence[tuple[int, int, int]]) -> int | None:
    """Returns how many bytes a month adds, by the most recent data: spans of time in milliseconds, and the
    bytes that are spread over each evenly. None where there are none, or no time between the first and the
    last."""
    last = max((end for _, end, _ in spans), default=0)
    first = max(min((start for start, _, _ in spans), default=0), last - RECENT_MS)
    if first >= last:
        return None
    return round(sum(_recent(*it, since=first) for it in spans) * MONTH_MS / (last - first))


def _recent(start: int, end: int, size: int, *, since: int) -> float:
    """Returns the bytes of a span that lie after an instant."""
    if start >= since:
        return size
    return size * (end - since) / (end - start) if end > since else 0


def _summaries(
    database: Database[Document], policy: Policy, data: Sequence[StoredSpan]
) -> Iterator[StoredSpan]:
    """Yields the span and size of each level of summaries."""
    through = load(database, policy).through
    first = min((it.first_ms for it in data), default=0)
    last = max((it.last_ms for it in data), default=0)
    for level in levels_of(policy):
        size = size_of(database, level.collection)
        end = through.get(level.name, last)
        end = last if end == NO_GATE else end
        begin = first if level.retain is None else max(first, end - span_ms(level.retain))
        yield StoredSpan(min(begin, end), end, size.data, size.data + size.indexes)


def _forecast(
    policy: Policy,
    before: Sizes,
    held: Sequence[StoredSpan],
    summaries: Sequence[StoredSpan],
    stored: Stored,
) -> Forecast:
    grown = monthly([it.of_documents for it in (*held, *stored.spans)])
    if grown is None:
        return Forecast(None, None)
    share = before.index_bytes / before.data_bytes if before.data_bytes else 0
    without = round(grown * (1 + share))
    archive = policy.archiving
    is_archived = archive is not None and archive.after is not None
    goes = is_archived and archive is not None and archive.delete and model_of(policy).can_delete
    added = 0 if goes else without
    if is_archived:
        copied = monthly([it.of_stored for it in stored.spans])
        added += grown if copied is None else copied
    return Forecast(added + sum(monthly([it.of_stored]) or 0 for it in summaries), without)
