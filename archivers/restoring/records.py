"""Records of buckets that were restored into their source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.archive import SectionBuckets
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.deletions import RESTORED, Deletions
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.records.pins import Pins
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.restoring.options import Mode, Plan, VersionHandling
from bucketwise.archivers.restoring.put import Indices
from bucketwise.archivers.versions.history import Version
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.times import FIRST_MS, as_date
from bucketwise.config.policies import Policy


@dataclass(frozen=True)
class RestoreRecords:
    """Records restored buckets. One that is restored into the source is live again. Its receipt has to say
    so, so that a later version replaces the archived one. And it is pinned, since the next run would find it
    expired."""

    policy: Policy
    receipts: Receipts
    deletions: Deletions
    pins: Pins
    until: datetime | None
    how: VersionHandling

    def offline(
        self, manifest: Manifest, held: SectionBuckets, chosen: Indices, session: ClientSession
    ) -> None:
        """Records that chosen buckets of a section are live again, and pins them, in a transaction."""
        self._set_live(manifest, held.positions[chosen], True, session)
        self.pins.put(held.batch.take(chosen), self.until, session)

    def superseded(self, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        """Pins a version that no longer counts. Nothing else is recorded of it."""
        self.pins.put(batch.take(chosen), self.until, session)

    def _set_live(
        self, manifest: Manifest, chosen: Indices, is_live: NDArray[np.bool_] | bool, session: ClientSession
    ) -> None:
        live = self.receipts.live(manifest.commit, manifest.buckets, session)
        live[chosen] = is_live
        self.receipts.set_live(manifest.commit, live, {}, session)

    def online(self, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        """Records that chosen buckets of an online archive are live again, and pins them, in a
        transaction."""
        restored = batch.take(chosen)
        heads = OnlineHeads(self.receipts.collection.database, self.policy).subtracted(restored, session)
        if heads:
            self.deletions.record_of_copies(RESTORED, {"buckets": len(restored), **heads}, session)
        ids = restored.main.ids
        facts = {"kind": "online", "state": "copied", "ids": ids, "copied": as_date(FIRST_MS)}
        self.receipts.update(f"restored-{restored.digest[:32]}", {"$set": facts}, session)
        self.pins.put(restored, self.until, session)

    def settled(self, plans: list[Plan], session: ClientSession) -> None:
        """Records that all versions in what was put are live. The pins hold the last version alone; where the
        bucket is more than that, the next run rolls its windows up again."""
        commits: dict[str, list[tuple[Version, bool]]] = {}
        for plan in plans:
            for version in plan.history.versions:
                if version.is_superseded:
                    continue
                is_live = self.how.mode == Mode.merged or version is plan.history.last
                if version.commit is not None:
                    commits.setdefault(version.commit.commit, []).append((version, is_live))
        for found in commits.values():
            positions = np.array([version.position for version, _ in found], dtype=np.int64)
            live = np.array([is_live for _, is_live in found], dtype=np.bool_)
            assert found[0][0].commit is not None
            self._set_live(found[0][0].commit, positions, live, session)
        if plans and plans[0].history.last.commit is None:
            whole = Batch.concat([plan.final for plan in plans])
            self.online(whole, np.arange(len(whole)), session)
        elif plans:
            self.pins.put(Batch.concat([plan.history.last.bucket for plan in plans]), self.until, session)
