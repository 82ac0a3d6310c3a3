"""The buckets of one policy in MongoDB, as raw batches: the source, or a collection archived to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.client_session import ClientSession
from pymongo.collation import Collation
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import ALL, First, find_raw, is_sharded
from bucketwise.buckets.bson.raw import Batch, Docs, as_queried
from bucketwise.buckets.bson.types import DECODED, first_at
from bucketwise.buckets.collations import Comparison, find_by_ids, find_ids
from bucketwise.buckets.fields.isoforms import UNSORTED_MS
from bucketwise.buckets.fields.timeforms import UnsortedRange, any_of
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, as_ms
from bucketwise.buckets.lengths import MOST_LONGER, Lengths, Looked
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.overflow import attach, flagged_buckets, orphan_ids
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.rules import Due
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Buckets whose overflow is looked up at once.
_LOOKUP = 1000
_HOUR_MS = 3_600_000


class Source:
    """Reads buckets; never writes.

    `collection` and `overflow` name other collections than the policy's own, laid out alike.
    """

    def __init__(
        self,
        database: Database[Document],
        policy: Policy,
        collection: str | None = None,
        overflow: str | None = None,
        session: ClientSession | None = None,
    ) -> None:
        self.policy = policy
        self.model = model_of(policy)
        self.collection: Collection[Document] = database.get_collection(
            collection or policy.collection, codec_options=DECODED
        )
        self._session = session
        self.overflow: Collection[Document] | None = None
        if policy.overflow is not None:
            self.overflow = database.get_collection(
                overflow or policy.overflow.collection, codec_options=DECODED
            )
        self._form = self.model.own_form
        self._lengths: Lengths | None = None
        #: By the last field buckets are found in the order of their last times.
        self._first, self.last_field = self.model.first_field, self.model.last_field

    @cached_property
    def listed(self) -> list[Document]:
        """Returns the policy's collections that exist, as MongoDB lists them. Asks once."""
        query = {"name": {"$in": self.policy.sources}}
        return [dict(info) for info in self.collection.database.list_collections(filter=query)]

    @cached_property
    def indexes(self) -> list[Document]:
        """Returns the indexes of the buckets' collection, which is no view. Asks once."""
        return [dict(index) for index in self.collection.list_indexes()]

    @cached_property
    def comparison(self) -> Comparison:
        """Returns by which collations queries compare texts, so that an index finds them."""
        return Comparison(self.model, lambda: self.indexes)

    @property
    def has_texts(self) -> bool:
        """Returns whether the time of a bucket may be text."""
        return self._form.has_texts

    @property
    def is_sorted(self) -> bool:
        """Returns whether an index may find the time of a bucket."""
        return self._form.is_sorted

    @property
    def rough(self) -> Source:
        """Returns a source that treats all texts as plain. It may find texts with an offset from UTC up
        to a day off."""
        source = copy.copy(self)
        source._form = self._form.rough  # noqa: SLF001  (of its own class)
        return source

    @property
    def looked(self) -> Looked:
        """Returns what was found where somebody has looked at texts or lengths."""
        return Looked(self._form.is_plain, self._lengths)

    def after(self, looked: Looked) -> Source:
        """Returns a source for which somebody has looked."""
        source = copy.copy(self)
        source._lengths = looked.lengths  # noqa: SLF001  (of its own class)
        source._form = self._form.plain if looked.is_plain else self._form  # noqa: SLF001
        return source

    def look_at_texts(self) -> None:
        """Looks once at each text of a time, where there are any, up to the first that is none or does not
        sort as time does. Without such a text, this source takes all for plain ones from now on.

        A text of another kind that comes in later is then found up to a day off, or not at all. So call it
        once the change stream has been read: the next run learns of what came in since."""
        others = [it for it in map(self._form.not_plain, self.model.own_times) if it is not None]
        if others and not self._form.is_plain:
            found = self.collection.find_one(
                {"$or": others}, {"_id": 1}, session=self._session, collation=self.comparison.of()
            )
            if found is None:
                self._form = self._form.plain

    def look_at_lengths(self, start_ms: int, end_ms: int) -> None:
        """Looks once at the buckets that may hold a reading in [start, end), and at how long they are: where
        many ranges of it are read, each is found faster then, by an index. What buckets are filled with from
        then on may be missed: so call it once the change stream has been read."""
        fields, some = self.model.own_times, First(MOST_LONGER + 1, None, self.comparison.of())

        def find(query: Document) -> Iterator[Docs]:
            return find_raw(self.collection, query, self._session, _only(*fields), some)

        if self.model.tells_span and not self.has_texts and self.comparison.has_index(self._first):
            self._lengths = Lengths.among(start_ms, end_ms, (fields[0], fields[1]), self._form, find)

    def timed(self, at_or_after_ms: int = FIRST_MS) -> list[Document]:
        """Returns queries for the buckets with a usable last time from then on: one for each type of it."""
        return self._ranges(self.last_field, at_or_after_ms, LAST_MS)

    def time_of(self, document: bytes) -> int:
        """Returns the last time of a bucket that such a query has found."""
        return self._time_in(document, self.last_field, ASCENDING, FIRST_MS)

    def batches(self, start_ms: int, end_ms: int, also: Document | None = None) -> Iterator[Batch]:
        """Yields every bucket that may hold a reading in [start, end), and matches the query `also`."""
        if _is_empty(start_ms, end_ms):
            return iter(())
        found = self._lengths and self._lengths.range_query(self._form, start_ms, end_ms)
        return self._read(found or self.model.range_query(self._form, start_ms, end_ms), also)

    def matching(self, also: Document) -> Iterator[Batch]:
        """Yields every bucket that matches a query, whatever its times."""
        return self._read({}, also)

    def ending(self, start_ms: int, end_ms: int, also: Document | None = None) -> Iterator[Batch]:
        """Yields every bucket whose last time by its fields (`slots`: whose start) lies in [start, end), and
        that matches the query `also`. Fetches overflow ahead, but no buckets: a caller that goes on to the
        next days fetches ahead across them."""
        if _is_empty(start_ms, end_ms):
            return
        # Not all at once: the server would check for each whether another range has found it already.
        for span in self.model.ending_queries(self._form, start_ms, end_ms - 1):
            yield from self._read(span, also, reads_ahead=False)

    def by_ids(self, ids: Sequence[Any]) -> Iterator[Batch]:
        """Yields the buckets with these `_id`s that are there."""
        found = find_ids(self.collection, {"_id": {"$in": list(ids)}}, self._session)
        return map(self.with_overflow, found)

    def by_raw_ids(self, raw_ids: Sequence[bytes]) -> Iterator[Batch]:
        """Yields the buckets with these `_id`s (as `Docs.raw_id` gives them) that are there."""
        are_unique = self.model.keeps_ids_unique
        found = find_by_ids(self.collection, raw_ids, self._session, are_unique=are_unique)
        return map(self.with_overflow, found)

    def present(self, ids: Sequence[Any]) -> set[bytes]:
        """Returns which of these `_id`s are there, as `Docs.raw_id` gives them."""
        query = {"_id": {"$in": list(ids)}}
        # From the `_id` index alone, a NaN would come without its payload.
        present: set[bytes] = set()
        last = self._form.fields(self.last_field)[0]
        fields = {"_id": 1, **({} if _is_in_id(last) else {last: 1})}
        for documents in find_ids(self.collection, query, self._session, fields):
            present |= {documents.raw_id(i) for i in range(len(documents))}
        return present

    def spans(self, ids: Sequence[Any]) -> Iterator[tuple[int, int]]:
        """Yields [start, end) in milliseconds of the buckets with these `_id`s, as their fields tell it."""
        fields = _with_id(*self.model.span_paths)
        for found in find_ids(self.collection, {"_id": {"$in": list(ids)}}, self._session, fields):
            for document in found:
                if span := self.model.covered_span(document):
                    yield span

    def owners(self, ids: Sequence[Any]) -> list[Any]:
        """Returns the `_id`s of the buckets that the overflow documents with these `_id`s refer to."""
        if self.overflow is None or self.policy.overflow is None:
            return []
        ref_field = self.policy.overflow.ref_field
        found = find_ids(self.overflow, {"_id": {"$in": list(ids)}}, self._session, _with_id(ref_field))
        return [as_queried(first_at(document, split(ref_field))) for docs in found for document in docs]

    def orphans(self) -> Iterator[Docs]:
        """Yields the overflow documents that refer to no bucket that is there."""
        if self.overflow is None or self.policy.overflow is None:
            return
        ids = orphan_ids(self.collection, self.overflow, self.policy.overflow.ref_field)
        while batch_ids := list(islice(ids, _LOOKUP)):
            yield from find_ids(self.overflow, {"_id": {"$in": batch_ids}}, self._session)

    def untimed(self) -> Iterator[Batch]:
        """Yields the buckets with no usable time. No query by time finds them."""
        return self._read({"$or": self.model.untimed_queries(self._form)})

    def earliest(self, at_or_after_ms: int | None = None, but: Sequence[Any] = ()) -> int | None:
        """Returns the first instant, at or after the argument, that a bucket covers; None where there is
        none. Where bounds are seconds, it may return the argument for the whole second in which a bucket
        ended. `but`: `_id`s of buckets that may cover it all the same."""
        at = FIRST_MS if at_or_after_ms is None else at_or_after_ms
        if at > LAST_MS:
            return None
        if self._is_running(at, but):
            return at
        found = self._first_from(max(FIRST_MS, at - self.model.reach_ms))
        while found is not None and found < at and not self.has_texts:
            # Days and months are not all as long as the longest: this one may have ended before.
            if self.model.end_of(found) > at:
                break
            found = self._extreme(self._first, found + 1, ASCENDING)
        return None if found is None else max(found, at)

    def days_begun(self, most: int) -> list[int] | None:
        """Returns the first UTC days, at most so many, of which buckets tell their first time; None where an
        index finds times, so that `earliest` costs less. A text counts as one of UTC."""
        field = next(iter(self.model.own_times), "")
        unsorted = self._form.unsorted(field, FIRST_MS, LAST_MS) if field else None
        if unsorted is None or self.is_sorted or not self.model.tells_first:
            return None
        whole = self._whole(field)
        time: Document = {"$project": {"_id": 0, "time": f"${field}"}}
        parts = [unsorted.stages(whole)]
        for dates in self._ranges(field, FIRST_MS, LAST_MS, is_sound=True)[:-1]:
            parts.append([{"$match": {"$and": [dates, whole]}}, time])
        by_day: list[Document] = [
            {"$group": {"_id": {"$dateTrunc": {"date": "$time", "unit": "day"}}}},
            {"$sort": {"_id": ASCENDING}},
            {"$limit": most},
        ]
        days = set[int]()
        for stages in parts:
            collation = self.comparison.of()
            found = self.collection.aggregate(stages + by_day, session=self._session, collation=collation)
            days.update(as_ms(it["_id"]) for it in found)
        return sorted(days)[:most]

    def earliest_of(self, series: Document) -> int | None:
        """Returns the first time of the buckets that match the query, by their fields; None if there is
        none."""
        return self._first_from(FIRST_MS, series)

    def earliest_ending(self, at_or_after_ms: int, also: Document | None = None) -> int | None:
        """Returns the first time, at or after the argument, for which `ending` finds a bucket that matches
        `also`. Where times are text, which sorts otherwise, it may be up to three days early."""
        if not self.model.own_times:
            found = self._first_hour(
                at_or_after_ms,
                lambda start, end: any_of(self.model.ending_queries(self._form, start, end)),
                also,
            )
            return min((max(end - 1, at_or_after_ms) for _, end in found), default=None)
        return self._extreme(self.last_field, at_or_after_ms, ASCENDING, also)

    def count_ending(self, start_ms: int, end_ms: int, also: Document | None = None) -> int:
        """Returns how many buckets `ending` finds that also match the query `also`."""
        if _is_empty(start_ms, end_ms):
            return 0
        ending: Document = {"$or": self.model.ending_queries(self._form, start_ms, end_ms - 1)}
        query = {"$and": [ending, also]} if also else ending
        return self.collection.count_documents(
            query, session=self._session, collation=self.comparison.of(also)
        )

    def count_due(self, spans: Sequence[Due], also: Document | None = None) -> int:
        """Returns how many buckets end in these stretches, and match the query `also`."""
        return sum(
            self.count_ending(it.start, it.end, {"$and": [it.also, also or {}]} if it.also or also else None)
            for it in spans
        )

    def count(self) -> int:
        """Returns how many buckets there are, as MongoDB keeps count of them. A sharded cluster also counts
        what migrations have left behind: there they are counted one by one."""
        if is_sharded(self.collection.database):
            return self.collection.count_documents({})
        return self.collection.estimated_document_count()

    def span(self) -> tuple[int, int] | None:
        """Returns the earliest and the latest time of all buckets; None where there are none."""
        first, last = self.earliest(), self.latest()
        return None if first is None or last is None else (first, last)

    def latest(self) -> int | None:
        """Returns the last time that a bucket's fields tell (`slots`: the start of the last bucket)."""
        if not self.model.tells_last:
            return self._latest_sample()
        return self._extreme(self.last_field, FIRST_MS, DESCENDING)

    def _latest_sample(self) -> int | None:
        """Returns the last time of buckets whose last time no field tells. An index sorts by type first, so
        that a time of one type may hide a later one of another: times after the one found are looked at as
        well."""
        projection = _only(*self.model.span_paths)
        sort = self.model.sample_index or self.model.span_fields[1]
        last = First(1, [(sort, DESCENDING)], self.comparison.of())
        found = self._ends(find_raw(self.collection, {}, self._session, projection, last))
        later = self.model.range_query(self._form, max(found, default=FIRST_MS) + 1, LAST_MS + 1)
        every = ALL._replace(collation=self.comparison.of())
        found += self._ends(find_raw(self.collection, later, self._session, projection, every))
        latest = max(found, default=None)
        return latest if latest is None or not self.model.reading_form.has_texts else latest + UNSORTED_MS

    def _ends(self, raw: Iterator[Docs]) -> list[int]:
        """Returns the last time that any of these buckets tells, if one does."""
        spans = (self.model.covered_span(document) for docs in raw for document in docs)
        latest = max((span[1] - 1 for span in spans if span), default=None)
        return [] if latest is None else [latest]

    def _first_from(self, at: int, also: Document | None = None) -> int | None:
        """Returns the first time, at or after `at`, in the buckets that match `also`: the first one that a
        bucket tells, or where none tells it, the first of its samples or its last."""
        model = self.model
        found = [self._extreme(field, at, ASCENDING, also) for field in model.own_times[:1]]
        if not model.tells_first:
            found.append(self._first_sample(at, also))
        return min((it for it in found if it is not None), default=None)

    def _first_sample(self, at: int, also: Document | None) -> int | None:
        """Returns the first time of a sample at or after `at`."""
        found = self._first_hour(at, self.model.sample_query, also)
        return min((max(start, at) for start, _ in found), default=None)

    def _first_hour(
        self, at: int, query: Callable[[int, int], Document], also: Document | None
    ) -> list[tuple[int, int]]:
        """Returns what the buckets cover, from its beginning on, that meet `also` and the query of the first
        hour, at or after `at`, that any meets. An index tells at once whether there are any before an
        instant: so the hour is searched for by halves."""

        def holding(end: int, limit: int) -> list[tuple[int, int]]:
            only, asked = _only(*self.model.span_fields), {"$and": [query(at, end), also or {}]}
            first = First(limit, collation=self.comparison.of(also))
            raw = find_raw(self.collection, asked, self._session, only, first, reads_ahead=False)
            return [it for docs in raw for it in map(self.model.covered_span, docs) if it]

        if at > LAST_MS or not holding(LAST_MS, 1):
            return []
        low, high = at, LAST_MS  # the first is not before the one, and not after the other
        while high - low >= _HOUR_MS:
            middle = (low + high) // 2
            low, high = (low, middle) if holding(middle, 1) else (middle + 1, high)
        return [(max(start, low), end) for start, end in holding(high, 0)]

    def _is_running(self, at: int, but: Sequence[Any]) -> bool:
        """Returns whether a bucket of unknown length covers the instant, and none of these."""
        known = self._lengths and self._lengths.range_query(self._form, at, at + 1)
        running = known or (self.model.running_query(self._form, at) if at > FIRST_MS else None)
        if running is None:
            return False
        others: Document = {"_id": {"$nin": list(but)}} if but else {}
        found = self.collection.find(
            {"$and": [running, others]},
            {"_id": 1},
            session=self._session,
            collation=self.comparison.of(others),
        )
        return any(True for _ in found.limit(1))

    def _ranges(self, field: str, first_ms: int, last_ms: int, *, is_sound: bool = False) -> list[Document]:
        return self.model.time_queries(self._form, field, first_ms, last_ms, is_sound=is_sound)

    def _extreme(self, field: str, at: int, direction: int, also: Document | None = None) -> int | None:
        """Returns the lowest or highest time in this field, at or after `at`, of buckets that match
        `also`."""
        if at > LAST_MS:
            return None
        found: list[int] = []
        first, last = at, LAST_MS
        for number in range(len(self._ranges(field, first, last))):
            spans = self._ranges(field, first, last, is_sound=True)
            others, collation = {"$and": [self._whole(field), also or {}]}, self.comparison.of(also)
            unsorted = self._form.unsorted(field, first, last)
            if unsorted is not None and number == len(spans) - 1:
                found += self._extreme_of(unsorted, others, direction, collation)
            else:
                query = {"$and": [spans[number], others]}
                first_one = First(1, [(field, direction)], collation)
                only = _only(*self._form.fields(field))
                raw = find_raw(self.collection, query, self._session, only, first_one)
                found += [self._time_in(document, field, direction, at) for docs in raw for document in docs]
            if found and direction == ASCENDING and min(found) <= at:
                break
            if found:  # of another type only what is still nearer counts
                first, last = (first, min(found)) if direction == ASCENDING else (max(found), last)
        if not found:
            return None
        return min(found) if direction == ASCENDING else max(found)

    def _whole(self, field: str) -> Document:
        """Returns a query for what has no array where a time lies: the server would look inside."""
        return {"$nor": [it for path in self._form.fields(field) for it in _arrays(path)]}

    def _extreme_of(
        self, times: UnsortedRange, query: Document, direction: int, collation: Collation | Document
    ) -> list[int]:
        """Returns the lowest or highest time of the buckets that match a query, by an expression; nothing
        where there are none."""
        if (lead := self._form.lead) is None:
            return self._least(times, query, direction, collation)
        found: list[int] = []
        for kind in ("number", "string"):
            of_kind = {"$and": [query, {lead: {"$type": kind}}]}
            within = {"$and": [times.query, of_kind]}
            first = First(1, [(lead, direction)], collation)
            nearest = find_raw(self.collection, within, self._session, _only(lead), first)
            for value in [first_at(it, split(lead)) for docs in nearest for it in docs]:
                same = {"$and": [of_kind, {lead: as_queried(value)}]}
                found += self._least(times, same, direction, collation)
        return found

    def _least(
        self, times: UnsortedRange, query: Document, direction: int, collation: Collation | Document
    ) -> list[int]:
        """Returns the lowest or highest time of the buckets that match a query, all of which are read."""
        group = {"_id": None, "time": {"$min" if direction == ASCENDING else "$max": "$time"}}
        steps = [*times.stages(query), {"$group": group}]
        found = self.collection.aggregate(steps, session=self._session, collation=collation)
        return [self._form.placed_as_shown(as_ms(it["time"])) for it in found if it["time"] is not None]

    def _time_in(self, document: bytes, field: str, direction: int, at: int) -> int:
        value = self._form.value_in(document, field)
        found = self._form.placed(value)
        if found is None:
            return at
        return max(self._form.sorted_from(found, direction, value), at)

    def _read(
        self, query: Document, also: Document | None = None, *, reads_ahead: bool = True
    ) -> Iterator[Batch]:
        collation, is_meant = self.comparison.reading(also)
        asked = {"$and": [query, also]} if also and query else also or query
        first = ALL._replace(collation=collation)
        for found in find_raw(self.collection, asked, self._session, first=first, reads_ahead=reads_ahead):
            kept = (
                found if is_meant is None else found.take([i for i, it in enumerate(found) if is_meant(it)])
            )
            yield self.with_overflow(kept)

    def with_overflow(self, main: Docs) -> Batch:
        """Returns the buckets with the overflow of those that are flagged."""
        if self.overflow is None or self.policy.overflow is None:
            return Batch.of(main)
        flagged = flagged_buckets(main, self.policy)
        if not len(flagged):
            return Batch.of(main)
        identities = [main.decode_id(int(index)) for index in flagged]
        found: list[Docs] = [Docs.none()]
        for at in range(0, len(identities), _LOOKUP):
            reference = {self.policy.overflow.ref_field: {"$in": identities[at : at + _LOOKUP]}}
            found += find_raw(self.overflow, reference, self._session)
        return attach(main, Docs.concat(found), self.policy)


def _is_empty(start_ms: int, end_ms: int) -> bool:
    """Dates are clipped to the years 1 to 9999: a range with nothing in it would find what is at its rim."""
    return end_ms <= max(start_ms, FIRST_MS)


def _arrays(field: str) -> list[Document]:
    """Returns what is met where the field, or one on the way to it, is an array: a query would look
    inside."""
    parts = field.split(".")
    return [{".".join(parts[:depth]): {"$type": "array"}} for depth in range(1, len(parts) + 1)]


def _only(*fields: str) -> dict[str, int]:
    """Returns a projection of these fields: `_id` has to be left out by name, unless one lies in it."""
    without = {} if any(map(_is_in_id, fields)) else {"_id": 0}
    return {**without, **dict.fromkeys(fields, 1)}


def _with_id(*fields: str) -> dict[str, int]:
    """Returns a projection of these fields and `_id`."""
    return {"_id": 1, **dict.fromkeys((it for it in fields if not _is_in_id(it)), 1)}


def _is_in_id(field: str) -> bool:
    return field.split(".")[0] == "_id"
