"""Selects which of the buckets that were read may go, and reports why the others stay."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.records.pins import fingerprint
from bucketwise.archivers.run import Archiver, ArchiveRun
from bucketwise.archivers.writes.delete import chunks
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.rollups.guarded import transaction


class Selection:
    """Selects buckets for one archive run. What stays is reported with the reason."""

    def __init__(self, work: ArchiveRun, archiver: Archiver, through: int | None, *, rechecks: bool) -> None:
        """`through`: windows that end by then (milliseconds) are rolled up; None: nothing is rolled up.
        `rechecks`: pinned buckets that have changed are rolled up again."""
        self._work = work
        self._archiver = archiver
        self._through = through
        self._rechecks = rechecks

    def of(self, buckets: BucketSet) -> BucketSet:
        """Returns the buckets that may go."""
        decoded, report = buckets.decoded, self._work.report
        report.quarantine(decoded.quarantined)
        expired = decoded.last < self._work.cutoff
        expired &= ~self._pinned(buckets.batch, decoded, expired)
        expired &= ~self._frozen(decoded, expired)
        ready = expired if self._through is None else expired & (decoded.last < self._through)
        report.leave(int((expired & ~ready).sum()), "its windows are not rolled up yet")
        return buckets.take(np.sort(decoded.units[ready & self._fitting(decoded, buckets.batch)]))

    def _pinned(self, batch: Batch, decoded: Decoded, expired: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which expired buckets were restored, and stay since they are pinned."""
        work, pins = self._work, self._work.pins.of(batch)
        pinned = expired & np.isin(decoded.units, list(pins))
        for i in decoded.units[pinned].tolist():
            work.report.leave(1, pins[i].reason)
        if self._rechecks:
            assert self._through is not None
            ready = decoded.units[pinned & (decoded.last < self._through)]
            changed = [i for i in ready.tolist() if fingerprint(batch, i) != pins[i].seen]
            if changed:
                spans = [pins[i].span for i in changed if pins[i].span]
                self._roll_up_pinned(batch.take(changed), spans)
        return pinned

    def _frozen(self, decoded: Decoded, expired: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which expired buckets a hold keeps from moving."""
        frozen = self._work.frozen(decoded)
        staying = expired & np.isin(decoded.units, list(frozen))
        for i in decoded.units[staying].tolist():
            self._work.report.leave(1, frozen[i].freeze_reason)
        return staying

    def _roll_up_pinned(self, changed: Batch, before: list[list[int]]) -> None:
        """Rolls up pinned buckets that have changed, with the spans that they covered `before`. Other buckets
        are rolled up again before they are archived."""
        work, now = self._work, decode(changed, self._work.policy).spans().tolist()
        times = [time for span in (*before, *now) for time in span]
        if work.rolled_up(min(times), max(times) + 1):
            for piece in chunks(changed):
                transaction(work.database, work.guard, partial(work.pins.update_seen, piece))

    def _fitting(self, decoded: Decoded, batch: Batch) -> NDArray[np.bool_]:
        """Returns which buckets have a series that the archive can hold; quarantines the others."""
        columns, policy = decoded.columns, self._work.policy
        fits = np.ones(len(decoded.units), dtype=np.bool_)
        for i, series in enumerate(columns.series):
            if (found := self._archiver.misfit(series)) is None:
                continue
            value = extended_json(found[1])
            reason = f"the archive of policy {policy.name} has a column of another type than {value}"
            for position in np.flatnonzero(columns.holds(np.arange(len(columns.series)) == i)).tolist():
                fits[position] = False
                identity = batch.main.legible_id(int(decoded.units[position]))
                self._work.report.quarantine([Quarantined(identity, found[0], reason)])
        return fits
