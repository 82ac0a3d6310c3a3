"""Gathers buckets for one commit, up to a bounded number of readings, bytes and days."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.config.tables import USUAL_MEMORY

#: A commit is closed at about this many readings, or bytes of BSON, with the default memory; with twice the
#: memory, at twice as many. At fewer readings where these take more memory: see `BucketSet.cells`.
MAX_READINGS = 900_000
MAX_BYTES = 32_000_000
#: … or a month: sparse readings make few commits, and a query of a day reads no more than a month.
MAX_SPAN_MS = 31 * DAY_MS
#: Bytes of BSON that a cell takes, a low estimate: while no reading was seen.
_LEAST_PER_CELL = 12


class Filling:
    """The commit being filled: batches as they were read, then the buckets of them that may go, decoded."""

    def __init__(self, memory: int) -> None:
        self._share = memory / USUAL_MEMORY
        self._per_cell: float | None = None
        self._read: list[Batch] = []
        self._selected: list[BucketSet] = []

    @property
    def is_empty(self) -> bool:
        """Returns whether nothing was added since the last commit was taken."""
        return not (self._read or self._selected)

    @property
    def is_measured(self) -> bool:
        """Returns whether it is known how many bytes a reading takes."""
        return self._per_cell is not None

    @property
    def is_full(self) -> bool:
        """Returns whether no more fits into the commit, as far as is known."""
        return self._room() <= 0

    def measure(self, buckets: BucketSet) -> None:
        """Estimates from some buckets how many bytes a reading takes."""
        if buckets.readings:  # else there is nothing to learn
            self._per_cell = buckets.batch.size / buckets.cells

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """Cuts a batch that would make more than a commit into pieces, each to fill the commit."""
        at, count = 0, len(batch)
        is_much = batch.size > MAX_READINGS * self._share * (self._per_cell or _LEAST_PER_CELL)
        while at < len(batch):
            if is_much:
                count = max(1, math.ceil(self._room() / batch.size * len(batch)))
            yield batch.slice(at, min(at + count, len(batch)))
            at += count

    def add(self, batch: Batch) -> None:
        """Adds a batch as it was read."""
        self._read.append(batch)

    def take_read(self) -> Batch | None:
        """Returns the buckets that were read and not decoded yet, and forgets them."""
        read, self._read = self._read, []
        return Batch.concat(read) if read else None

    def add_selected(self, buckets: BucketSet) -> None:
        """Adds buckets that may go."""
        self._selected.append(buckets)

    def take(self) -> BucketSet | None:
        """Returns the buckets of the commit, if any, and begins another one."""
        selected, self._selected = self._selected, []
        return BucketSet.concat(selected) if selected else None

    def _room(self) -> float:
        """Returns about how many more bytes fill the commit."""
        size = sum(buckets.batch.size for buckets in self._selected)
        cells = sum(buckets.cells for buckets in self._selected)
        per_cell = self._per_cell or _LEAST_PER_CELL
        room = min(MAX_BYTES * self._share - size, (MAX_READINGS * self._share - cells) * per_cell)
        return room - sum(batch.size for batch in self._read)
