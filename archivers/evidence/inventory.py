"""What there is of some adjoining rows at one instant: live, online, in commits, in summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.grid import Counts, Grid, Tally
from bucketwise.archivers.evidence.kind import ArchivedRows, Evidence, HeldPart
from bucketwise.archivers.evidence.summary_counts import SummaryCounter, SummaryCounts
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.models.asked import is_of_series
from bucketwise.buckets.models.covered import covered_span
from bucketwise.buckets.source import Source
from bucketwise.rollups.holds import Holds


@dataclass(frozen=True)
class Inventory:
    """Rows, and what there is in each."""

    grid: Grid
    live: Tally
    pinned: Counts  # buckets
    quarantined: Counts  # buckets
    held: Counts  # holds
    archived: ArchivedRows
    summary_counts: SummaryCounts

    @cached_property
    def file_bytes(self) -> Counts:
        """Returns the bytes of the parts, each in the row of its first reading."""
        found = self.grid.zeros()
        for held in self.archived.parts:
            found[self.grid.rows(*held.span).start] += held.bytes
        return found


class InventoryReader:
    """Reads what there is of one policy, or of some of its series."""

    def __init__(self, context: ArchiveContext, archived: Evidence, selector: Selector) -> None:
        self._context = context
        self._selector = selector
        self._archived = archived

    def read(self, grid: Grid, counter: SummaryCounter, session: ClientSession) -> Inventory:
        """Returns what lies in the time of these rows."""
        summary_counts = counter.count(grid, session)
        archived = self._archived.rows(grid, self._selector, session)
        live, pinned, broken = self._live(grid, archived.parts, session)
        held = self._held(grid, session)
        return Inventory(grid, live, pinned, broken, held, archived, summary_counts)

    def _held(self, grid: Grid, session: ClientSession) -> Counts:
        """Returns how many holds cover some of each row."""
        counts = grid.zeros()
        for hold in Holds(self._context.database, self._context.policy.identity).active(session):
            if hold.may_cover(self._selector) and hold.touches(grid.start, grid.end):
                counts[grid.rows(hold.within.start_ms, hold.within.end_ms - 1)] += 1
        return counts

    def _live(
        self, grid: Grid, parts: Sequence[HeldPart], session: ClientSession
    ) -> tuple[Tally, Counts, Counts]:
        context = self._context
        tally = Tally(grid, context.policy, self._selector)
        pinned, broken = grid.zeros(), grid.zeros()
        # Manifests count all series: counts of some series follow from what is live of all.
        may_hold = any(it.may_hold for it in parts)
        narrow = None if may_hold else selector_query(context.policy, self._selector)
        source = Source(context.database, context.policy, session=session)
        for batch in source.batches(grid.start, grid.end, narrow):
            decoded = decode(batch, context.policy)
            tally.add(batch, decoded)
            pinned += self._pinned(tally, batch, decoded)
            broken += self._broken(grid, batch, decoded)
        return tally, pinned, broken

    def _pinned(self, tally: Tally, batch: Batch, decoded: Decoded) -> Counts:
        pins = self._context.pins.of(batch)
        columns = decoded.columns
        is_pinned = np.isin(decoded.units, list(pins))[columns.bucket]
        return tally.rows_of(columns, is_pinned & tally.chosen(columns))

    def _broken(self, grid: Grid, batch: Batch, decoded: Decoded) -> Counts:
        """Counts buckets that break their model, by the time that their fields tell."""
        counts = grid.zeros()
        for i in np.setdiff1d(np.arange(len(batch)), decoded.units).tolist():
            span = covered_span(self._context.policy, batch.main[i])
            if span is not None and is_of_series(self._context.policy, batch.main[i], self._selector):
                counts[grid.rows(span[0], span[1] - 1)] += 1
        return counts
