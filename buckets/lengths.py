"""How long buckets are whose first and last time two fields tell.

An index on one of the fields finds a range of time up to where the collection begins or ends: who reads one
day after another would look at each bucket once a day. Where it is known how long most buckets are, and which
are longer, the range has two ends in either field.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bucketwise.buckets.bson.raw import Docs, as_queried
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.timeforms import TimeForm, any_of
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS

Document = dict[str, Any]
#: The fields of a bucket's first and last time.
Fields = tuple[str, str]
_HOUR_MS = 3_600_000
#: How long most buckets may be, in milliseconds: the first of these that few are longer than.
_USUAL = (6 * _HOUR_MS, 8 * 24 * _HOUR_MS)
#: So many may be longer.
MOST_LONGER = 500
#: A number of seconds stands for the whole second.
_SECOND_MS = 1000


class Lengths(NamedTuple):
    """What is known of the buckets in [start, end), milliseconds."""

    start: int
    end: int
    fields: Fields
    usual: int  # in milliseconds: others are `longer`, or can't be told
    longer: Sequence[tuple[Any, Any]]  # the first and the last time of each, as queries take them

    @classmethod
    def among(
        cls,
        start: int,
        end: int,
        fields: Fields,
        form: TimeForm,
        find: Callable[[Document, int], Iterator[Docs]],
    ) -> Lengths | None:
        """Returns the lengths of the buckets of a range; None where too many are long. `find`: gives those
        that meet a query, at most so many."""
        paths = [tuple(it.split(".")) for it in fields]
        inside = _pairs(form, fields, (FIRST_MS, start), (end, LAST_MS + 1))
        for usual in _USUAL:
            longer = list[tuple[Any, Any]]()
            for both in inside:  # one by one, each by one index: all at once take far longer
                query = {"$and": [*both, longer_query(form, fields, usual)]}
                for it in itertools.chain.from_iterable(find(query, MOST_LONGER + 1)):
                    first, last = (as_queried(first_at(it, path)) for path in paths)
                    longer.append((first, last))
            if len(longer) <= MOST_LONGER:
                return cls(start, end, fields, usual, longer)
        return None

    def range_query(self, form: TimeForm, start: int, end: int) -> Document | None:
        """Returns a query for the buckets that may hold a reading in [start, end); None where that is not in
        the range. One may be missing that has become longer since, by more than what is usual."""
        if start < self.start or self.end < end:
            return None
        reach = self.usual + _SECOND_MS
        near = overlaps(form, self.fields, (max(start - reach, FIRST_MS), start), (end, end + reach))
        if not self.longer:
            return near
        anywhere = overlaps(form, self.fields, (FIRST_MS, start), (end, LAST_MS + 1))
        times = zip(self.fields, zip(*self.longer, strict=True), strict=True)
        named = [{field: {"$in": list(found)}} for field, found in times]
        return {"$or": [near, {"$and": [*named, anywhere]}]}


class Looked(NamedTuple):
    """What somebody has found who looked: see `Source.look_at_texts` and `Source.look_at_lengths`."""

    is_plain: bool = False
    lengths: Lengths | None = None


NOT_LOOKED = Looked()


def overlaps(
    form: TimeForm, fields: Sequence[str], starts: tuple[int, int], ends: tuple[int, int]
) -> Document:
    """Returns a query for the buckets whose first time is in [starts[0], ends[0]), and whose last time is in
    [starts[1], ends[1]), in milliseconds."""
    return any_of([{"$and": both} for both in _pairs(form, fields, starts, ends)])


def _pairs(
    form: TimeForm, fields: Sequence[str], starts: tuple[int, int], ends: tuple[int, int]
) -> list[list[Document]]:
    first, last = fields
    begun = form.ranges(first, starts[0], ends[0] - 1)
    ended = form.ranges(last, starts[1], min(ends[1] - 1, LAST_MS), is_end=True)
    return [list(both) for both in itertools.product(begun, ended)]


def longer_query(form: TimeForm, fields: Fields, most: int) -> Document:
    """Returns a query for the buckets that are longer than so many milliseconds, or of which the server can't
    tell it: with times of two types, or of one that it does not subtract."""
    first, last = (f"${it}" for it in fields)
    cases = []
    for (low, behind, high), length in form.lengths(most):
        usable = [{op: [it, edge]} for it in (first, last) for op, edge in (("$gte", low), (behind, high))]
        cases.append({"case": {"$and": usable}, "then": {"$gt": [{"$subtract": [last, first]}, length]}})
    return {"$expr": {"$switch": {"branches": cases, "default": True}}}
