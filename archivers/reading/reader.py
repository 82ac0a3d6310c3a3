"""Reads archived buckets that are no longer live. With the live ones, they make up every summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.manifest import Part
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.records.pins import restored
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.writes import MAX_BUCKETS, measured, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.packing.pack import Rows
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

Document = dict[str, Any]


class ArchivedReader(ABC):
    """Reads one policy's archive. `session`: for reads at one instant of the database; a store is read as it
    is then, or later."""

    def __init__(
        self, database: Database[Document], policy: Policy, session: ClientSession | None = None
    ) -> None:
        self.policy = policy
        self._database = database
        self._session = session
        self._receipts = Receipts(database, policy.identity)

    @abstractmethod
    def at(self, session: ClientSession) -> ArchivedReader:
        """Returns the same archive, with what is known of it, at another instant."""

    @abstractmethod
    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch | Rows]:
        """Yields the archived readings of the range and series asked for, and maybe more. `is_by_rows`: as
        rows of parts where these suffice. Unlike `batches`, also yields the readings of buckets that were put
        back by hand, without a receipt."""

    @abstractmethod
    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant at or after the argument, such that no archived bucket covers one between the
        two; None where none does later either."""

    @abstractmethod
    def span(self) -> tuple[int, int] | None:
        """Returns a range that holds all archived readings; None where nothing is archived."""

    @abstractmethod
    def superseded(self) -> Iterator[tuple[int, int]]:
        """Yields the span [start, end), in milliseconds, of archived copies that count again once their live
        bucket goes, which may have moved since it was restored."""

    def batches(self, start_ms: int, end_ms: int) -> Iterator[Batch]:
        """Yields archived buckets that may hold a reading in [start, end) and are not live.

        Where a bucket is live, it counts, and not its copy: it is not deleted yet, or it was restored."""
        found = self.readings(RowFilter(start_ms, end_ms), is_by_rows=False)
        return cast(Iterator[Batch], found)  # none comes as rows

    def parts(self, row_filter: RowFilter) -> Iterator[Part] | None:
        """Returns the parts that may hold something of what is asked for; None where an archive has none."""
        del row_filter
        return None

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns in the archive's parts; empty where there are none."""
        return {}

    def take_read(self) -> set[str]:
        """Returns the commits that were read whole since the last call."""
        return set()

    def restored(self, batch: Batch) -> list[int]:
        """Returns which live buckets of a batch were restored, and are archived as well."""
        return restored(self._database, self.policy, batch)

    def _not_live(
        self, batch: Batch, may_be_live: NDArray[np.bool_], row_filter: RowFilter
    ) -> Iterator[Batch]:
        """Yields buckets without those that are live as they are here, and without old copies of live ones. A
        document that took the `_id` of a deleted bucket is another one."""
        if not len(batch):
            return
        source = Source(self._database, self.policy, session=self._session)
        if not source.model.keeps_ids_unique:
            there = measured(self.policy, batch, source, row_filter.start, row_filter.end)
            gone = np.setdiff1d(np.arange(len(batch)), there).tolist()
        else:
            mine, live = units(self.policy, batch), _by_id(source, batch)
            gone = [
                i
                for i, name in enumerate(batch.main.raw_ids)
                if name not in live or not (may_be_live[i] or live[name] == mine[i])
            ]
        if gone:
            yield batch.take(gone)


def _by_id(source: Source, batch: Batch) -> dict[bytes, bytes]:
    """Returns the live buckets that have the `_id`s of the batch."""
    ids = batch.main.ids
    return {
        live.main.raw_id(i): live.unit(i)
        for at in range(0, len(ids), MAX_BUCKETS)
        for live in source.by_ids(ids[at : at + MAX_BUCKETS])
        for i in range(len(live))
    }
