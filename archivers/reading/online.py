"""Reads what an online archive holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.reading.reader import ArchivedReader, Document
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.writes import archived_source
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import selector_query
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy


class OnlineReader(ArchivedReader):
    """The `ArchivedReader` of an online archive."""

    def __init__(
        self,
        database: Database[Document],
        policy: Policy,
        session: ClientSession | None = None,
        keys: Keys = UNSIGNED,
    ) -> None:
        """`keys`: receipts must be signed by one of them, if there are any."""
        super().__init__(database, policy, session)
        self._keys = keys
        self._copies = CopyReceipts(database, policy, keys.for_reading, session)

    def at(self, session: ClientSession) -> OnlineReader:
        """Returns the same archive at another instant."""
        return OnlineReader(self._database, self.policy, session, self._keys)

    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch]:
        """Yields the archived buckets that may hold what is asked for, and are not live."""
        del is_by_rows  # there are none
        for batch in self.copies(row_filter):
            yield from self.gone(batch, row_filter)

    def copies(self, row_filter: RowFilter) -> Iterator[Batch]:
        """Yields the archived buckets that may hold what is asked for, live or not. Raises DamagedError where
        one is not as it was archived."""
        query = selector_query(self.policy, *row_filter.series)
        return self._copies.sound(self._archived.batches(row_filter.start, row_filter.end, query))

    def gone(self, batch: Batch, row_filter: RowFilter) -> Iterator[Batch]:
        """Yields those of these archived buckets that are not live."""
        copied = self._receipts.copied(batch.main.ids, self._session)
        ours = np.array([raw_id in copied for raw_id in batch.main.raw_ids], dtype=np.bool_)
        return self._not_live(batch, ours, row_filter)

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns the first instant from then on that an archived bucket covers; None where there is none."""
        return self._archived.earliest(at_or_after_ms)

    def span(self) -> tuple[int, int] | None:
        """Returns a range that holds all archived readings; None where nothing is archived."""
        found = self._archived.span()
        return None if found is None else (found[0], found[1] + DAY_MS)

    def superseded(self) -> Iterator[tuple[int, int]]:
        """Yields the spans of copies whose originals no run has deleted."""
        for receipt in self._receipts.in_state("copied", "online"):
            yield from self._archived.spans(receipt["ids"])

    @property
    def _archived(self) -> Source:
        return archived_source(self._database, self.policy, self._session)
