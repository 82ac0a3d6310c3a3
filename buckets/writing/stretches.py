"""All readings of a collection, a stretch of time after another, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.source import Source
from bucketwise.buckets.writing.documents import in_order
from bucketwise.buckets.writing.exact import ExactReadings, Losses, exact_of, joined

#: Readings of a stretch, unless they share a millisecond.
AT_MOST = 250_000
_LONGEST = 32 * DAY_MS


class Stretch(NamedTuple):
    """The readings of [start, end) in milliseconds, by series, then time, then `_id`."""

    start: int
    end: int
    exact: ExactReadings


def stretches(
    source: Source,
    table: SeriesTable,
    losses: Losses,
    check: Callable[[], None],
    at_most: int = AT_MOST,
) -> Iterator[Stretch]:
    """Yields stretches of the source in the order of time; none is empty, and they are always the same for
    the same documents. `check` is called before each, and raises where to stop."""
    length, at = DAY_MS, source.earliest(FIRST_MS)
    while at is not None and at <= LAST_MS:
        check()
        end = min((at // length + 1) * length, LAST_MS + 1)
        exact = readings_in(source, at, end, table, losses, at_most if length > 1 else None)
        if exact is None:
            length = max(1, length // 8)
            continue
        if len(exact):
            yield Stretch(at, end, exact)
        at = end if len(exact) else source.earliest(end)
        if len(exact) < at_most // 8:
            length = min(length * 2, _LONGEST)


def readings_in(
    source: Source, start: int, end: int, table: SeriesTable, losses: Losses, at_most: int | None = None
) -> ExactReadings | None:
    """Returns the readings of [start, end); None where these are more than `at_most`."""
    parts: list[ExactReadings] = []
    orders: list[np.ndarray[tuple[int], np.dtype[np.bytes_]]] = []
    count, found = 0, Losses()
    for batch in source.batches(start, end):
        exact, order = exact_of(batch, source.policy, table, found, (start, end))
        parts.append(exact)
        orders.append(order)
        count += len(exact)
        if at_most is not None and count > at_most:
            return None
    losses.add(found)
    if not parts:
        return ExactReadings.none(source.policy.value_names)
    whole = joined(parts)
    return in_order(whole.take(np.argsort(np.concatenate(orders), kind="stable")))
