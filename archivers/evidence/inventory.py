"""What there is of some adjoining rows at one instant: live, online, in commits, in summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.grid import Counts, Grid, Tally
from bucketwise.archivers.evidence.summary_counts import SummaryCounter, SummaryCounts
from bucketwise.archivers.expiring.online import tombstones_of
from bucketwise.archivers.expiring.rule import RetentionRule
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.records.receipts import live_of
from bucketwise.archivers.records.registry import Registry
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.models.asked import is_of_series
from bucketwise.buckets.models.covered import covered_span
from bucketwise.buckets.source import Source
from bucketwise.rollups.holds import Holds


class HeldPart(NamedTuple):
    """A part of a commit, as its manifest describes it."""

    manifest: Manifest
    part: Part
    bytes: int  # of its file, and for the first part of a section of the section's buckets file
    live: int  # buckets of the commit that may be live
    drilled: datetime | None
    may_hold: bool  # of the series asked for
    expires: datetime | None  # when its tombstone is due

    @property
    def span(self) -> tuple[int, int]:
        """Returns the times of its first and last reading, milliseconds."""
        return as_ms(self.part.first), as_ms(self.part.last)


@dataclass(frozen=True)
class Inventory:
    """Rows, and what there is in each."""

    grid: Grid
    live: Tally
    pinned: Counts  # buckets
    quarantined: Counts  # buckets
    held: Counts  # holds
    online: Tally
    gone: Counts  # readings of online copies whose originals are not live
    parts: Sequence[HeldPart]
    summary_counts: SummaryCounts
    expires: Mapping[int, datetime]  # in an online archive: UTC day since 1970 -> when its tombstone is due

    @cached_property
    def file_bytes(self) -> Counts:
        """Returns the bytes of the parts, each in the row of its first reading."""
        found = self.grid.zeros()
        for held in self.parts:
            found[self.grid.rows(*held.span).start] += held.bytes
        return found


class InventoryReader:
    """Reads what there is of one policy, or of some of its series."""

    def __init__(self, context: ArchiveContext, selector: Selector) -> None:
        self._context = context
        self._selector = selector
        self._offline = context.offline()
        self._rule = RetentionRule.of(context.policy, context.now)
        self._archived = archived_reader(context.connections, context.policy)

    def parts(self, grid: Grid, session: ClientSession) -> list[HeldPart]:
        """Returns the parts of these days that an offline archive has. Reads manifests alone."""
        if self._offline is None:
            return []
        receipts = self._context.receipts
        archive: OfflineArchive = self._offline.at(Registry(receipts, session))
        manifests = archive.manifests(grid.start, grid.end)
        known = receipts.get_all([it.commit for it in manifests], session)
        policy, selector = self._context.policy, self._selector
        found = [
            held
            for it in manifests
            for held in self._parts_of(it, known.get(it.commit) or {}, it.may_hold(policy, selector))
        ]
        return [it for it in found if it.part.touches(grid.start, grid.end)]

    def _parts_of(self, manifest: Manifest, receipt: dict[str, Any], may_hold: bool) -> list[HeldPart]:
        live, drilled = int(live_of(receipt, manifest.buckets).sum()), receipt.get("drilled")
        expires = self._rule.due(receipt.get("tombstone")) if self._rule else None
        return [
            HeldPart(
                manifest,
                part,
                part.bytes + (0 if place else section.buckets_file.bytes),
                live,
                drilled,
                may_hold,
                expires,
            )
            for number, section in enumerate(manifest.sections)
            for place, part in enumerate(manifest.parts_of(number))
        ]

    def _expires(self, session: ClientSession) -> dict[int, datetime]:
        """Returns when the tombstones of an online archive are due, by UTC day."""
        if self._rule is None:
            return {}
        found = tombstones_of(self._context.receipts, session)
        due_days = ((it["day"], self._rule.due(it["tombstone"])) for it in found)
        return {day: due for day, due in due_days if due is not None}

    def read(self, grid: Grid, counter: SummaryCounter, session: ClientSession) -> Inventory:
        """Returns what lies in the time of these rows."""
        summary_counts = counter.count(grid, session)
        parts = self.parts(grid, session)
        live, pinned, broken = self._live(grid, parts, session)
        online, gone = self._online(grid, session)
        held = self._held(grid, session)
        expires = self._expires(session)
        return Inventory(grid, live, pinned, broken, held, online, gone, parts, summary_counts, expires)

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

    def _online(self, grid: Grid, session: ClientSession) -> tuple[Tally, Counts]:
        context = self._context
        tally, gone = (Tally(grid, context.policy, self._selector) for _ in range(2))
        if (source := context.online(session)) is not None:
            narrow = selector_query(context.policy, self._selector)
            for batch in source.batches(grid.start, grid.end, narrow):
                tally.add(batch, decode(batch, context.policy))
            for batch in self._archived.at(session).batches(grid.start, grid.end) if tally.all.any() else ():
                gone.add(batch, decode(batch, context.policy))
        return tally, gone.readings
