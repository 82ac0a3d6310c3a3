"""How long buckets are whose first and last time two fields tell.

A bucket holds something of a range of time if it begins before the end and ends after the start. An index on
one of the two fields finds these from where the collection begins or ends: who reads one day after another
would look at each bucket once a day. Where it is known how long most buckets are, and which are longer, the
first time has to lie in a range with two ends.
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


class Lengths(NamedTuple):
    """What is known of the buckets in [start, end), milliseconds."""

    start: int
    end: int
    fields: Fields
    usual: int  # in milliseconds: others are longer, or it can't be told
    longer: Sequence[Any]  # the first time of each of these, as queries take it

    @classmethod
    def among(
        cls,
        start: int,
        end: int,
        fields: Fields,
        form: TimeForm,
        find: Callable[[Document], Iterator[Docs]],
    ) -> Lengths | None:
        """Returns the lengths of the buckets of a range; None where too many are long, or one has no first
        time that a query finds again. `find`: gives those that meet a query, at most MOST_LONGER + 1."""
        first, last = fields
        begun = form.ranges(first, FIRST_MS, end - 1)
        ended = form.ranges(last, start, LAST_MS, is_end=True)
        for usual in _USUAL:
            longer = list[Any]()
            for both in itertools.product(begun, ended):  # each by one index: all at once take far longer
                query = {"$and": [*both, _longer_query(form, fields, usual)]}
                found = itertools.chain.from_iterable(find(query))
                longer += [as_queried(first_at(it, tuple(first.split(".")))) for it in found]
            if None in longer:
                return None
            if len(longer) <= MOST_LONGER:
                return cls(start, end, fields, usual, longer)
        return None

    def range_query(self, form: TimeForm, start: int, end: int) -> Document | None:
        """Returns a query for the buckets that may hold a reading in [start, end); None where that is not in
        the range.

        A bucket may be filled meanwhile, and so become longer. What it held before is found all the same,
        unless its first time has moved back since."""
        if start < self.start or self.end < end:
            return None
        first, last = self.fields
        # Not by an index: it would lead from the start on to where the collection ends.
        ranges = [it[last] for it in form.ranges(last, start, LAST_MS, is_end=True)]
        inside = [{"$and": [{op: [f"${last}", edge]} for op, edge in it.items()]} for it in ranges]
        ended = {"$expr": {"$ne": [{"$or": inside}, False]}}
        begun = form.ranges(first, max(start - self.usual, FIRST_MS), end - 1)
        if longer := [it for it in self.longer if (ms := form.milliseconds(it)) is None or ms < end]:
            begun = [*begun, {first: {"$in": longer}}]
        return any_of([{"$and": [it, ended]} for it in begun])


class Looked(NamedTuple):
    """What somebody has found who looked: see `Source.look_at_texts` and `Source.look_at_lengths`."""

    is_plain: bool = False
    lengths: Lengths | None = None


NOT_LOOKED = Looked()


def _longer_query(form: TimeForm, fields: Fields, most: int) -> Document:
    """Returns a query for the buckets that are longer than so many milliseconds, or of which the server can't
    tell it: with times of two types, or of one that it does not subtract."""
    first, last = (f"${it}" for it in fields)
    cases = []
    for (low, behind, high), length in form.lengths(most):
        usable = [{op: [it, edge]} for it in (first, last) for op, edge in (("$gte", low), (behind, high))]
        cases.append({"case": {"$and": usable}, "then": {"$gt": [{"$subtract": [last, first]}, length]}})
    return {"$expr": {"$switch": {"branches": cases, "default": True}}}
