"""Runs a backfill: a roll-up of a range, slice by slice, that resumes where an earlier call for the
same range stopped."""

from __future__ import annotations

from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from bucketwise.config.fingerprint import fingerprint
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.context import Document
from bucketwise.rollups.progress import progress_collection


class Backfill:
    """How far the summaries of a range are computed again. Times are in milliseconds.

    `begins`: where this call begins, which is later than the range where an earlier call was cut off.
    """

    def __init__(
        self, database: Database[Document], policy: Policy, span: Span, length: int, *, restart: bool
    ) -> None:
        """`length`: that of a slice; so often it is stored how far the call came. `restart`: forgets how far
        an earlier one came."""
        self._collection = progress_collection(database)
        self._id = {"backfill": policy.identity}
        self._request = {
            "fingerprint": fingerprint(policy),
            "since": DatetimeMS(span[0]),
            "until": DatetimeMS(span[1]),
        }
        self._span, self._length = span, length
        found = self._collection.find_one({"_id": self._id, **self._request})
        reached = span[0] if found is None else to_ms(found["reached"])
        self.begins = reached if reached < span[1] else span[0]
        self.total = self._slices(span[1] - 1) + 1
        self.before = self._slices(self.begins)
        self._stored = self.before
        if restart and self.before:
            self.begins, self.before = span[0], 0
            self._store(span[0])

    def reach(self, at: int) -> None:
        """Stores, once a slice, that all windows of the range that end by then are written."""
        if self._slices(at) > self._stored:
            self._store(min(at, self._span[1]))

    def finish(self) -> None:
        """Records that all windows are written. The next call starts over."""
        self._store(self._span[1])

    def _store(self, at: int) -> None:
        self._stored = self._slices(at)
        document = {"_id": self._id, **self._request, "reached": DatetimeMS(at)}
        self._collection.replace_one({"_id": self._id}, document, upsert=True)

    def _slices(self, at: int) -> int:
        """Returns how many slices are over by then."""
        return (at - self._span[0]) // self._length
