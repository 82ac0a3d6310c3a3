"""Counts what cold sections hold of a slice by their states, where these tell the same as their buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.states import CellState, has_states
from bucketwise.archivers.reading.archived import ArchivedReader, ColdSection
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.rolling.slices import SliceRequest


class ColdReader:
    """Reads the archived half of one slice: buckets where they can be read, and the states of others."""

    def __init__(
        self, archived: ArchivedReader, source: Source, policy: Policy, request: SliceRequest
    ) -> None:
        self.found: list[CellState] = []  # of the sections that were met
        self._archived, self._source, self._policy, self._edges = archived, source, policy, request.edges

    def batches(self, start_ms: int, end_ms: int) -> Iterator[Batch]:
        """Yields the buckets that may hold a reading in [start, end), are not live, and can be read. Raises
        ColdCommit where others have to be thawed."""

        @cache
        def live() -> set[bytes]:
            found = self._source.batches(start_ms, end_ms)
            return {it for batch in found for it in batch.main.raw_ids}

        return self._archived.batches(start_ms, end_ms, partial(self._take, live))

    def _take(self, live: Callable[[], set[bytes]], cold: ColdSection) -> None:
        """Takes the states of a section. They count all its buckets: one that came back as it was would count
        twice. Where they are damaged, which `verify` tells, its parts have to be read as well. `live`: gives
        the `_id`s of the live buckets of the slice."""
        try:
            states = cold.states if has_states(self._policy) else None
            if states is None or (ids := cold.ids) is None or not live().isdisjoint(ids):
                raise cold.error
            self.found += states.cells(self._policy, self._edges)
        except (DamagedError, ValueError) as error:
            raise cold.error from error
