"""Reads archived buckets that are no longer live. With the live ones, they make up every summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.context import offline_archive
from archivers.format.archive import OfflineArchive
from archivers.format.commit_index import Listed
from archivers.format.manifest import Manifest, Part
from archivers.format.rows import RowFilter
from archivers.records.receipts import Receipts
from archivers.records.registry import Registry
from archivers.tasks import Connections
from archivers.writes.delete import MAX_BUCKETS, measured, units
from archivers.writes.online import archived_source
from buckets.bson.raw import Batch
from buckets.decoding.decode import decode
from buckets.fields.selectors import selected, selector_query
from buckets.fields.times import DAY_MS, as_ms
from buckets.packing.pack import Rows
from buckets.source import Source
from config.policies import Policy

Document = dict[str, Any]


def archived_reader(connections: Connections, policy: Policy, listed: Listed | None = None) -> ArchivedReader:
    """Returns the reader of a policy's archive. `listed`: see `offline_archive`."""
    archive = offline_archive(connections, policy, listed=listed)
    return ArchivedReader(connections.database, policy, archive)


@dataclass(eq=False)
class ArchivedReader:
    """Reads one policy's archive, offline or online. Without an archive there is nothing to read. `session`:
    for reads at one instant of the database; the store is read as it is then, or later."""

    database: Database[Document]
    policy: Policy
    offline: OfflineArchive | None
    session: ClientSession | None = None
    _read: set[str] = field(default_factory=set)
    _partly: dict[str, list[bool]] = field(default_factory=dict)  # which sections of other commits were read

    def __post_init__(self) -> None:
        self._receipts = Receipts(self.database, self.policy.identity)
        self._to = self.policy.archive.to if self.policy.archive else "none"

    def at(self, session: ClientSession) -> ArchivedReader:
        """Returns the same archive, with what is known of it, at another instant."""
        offline = self.offline
        if offline is not None:
            offline = offline.at(Registry(self._receipts, session))
        return ArchivedReader(self.database, self.policy, offline, session)

    def batches(self, start_ms: int, end_ms: int) -> Iterator[Batch]:
        """Yields archived buckets that may hold a reading in [start, end) and are not live.

        Where a bucket is live, it counts, and not its copy: it is not deleted yet, or it was restored."""
        found = self.readings(RowFilter(start_ms, end_ms), is_by_rows=False)
        return cast(Iterator[Batch], found)  # none comes as rows

    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch | Rows]:
        """Yields the archived readings of the range and series asked for, and maybe more. `is_by_rows`: as
        rows of parts where these suffice. Unlike `batches`, also yields the readings of buckets that were put
        back by hand, without a receipt."""
        if self.offline is None:
            yield from self._online(row_filter) if self._to == "online" else ()
            return
        for manifest in self._commits_for(self.offline, row_filter):
            if is_by_rows and self._rows_suffice(manifest):
                yield from self.offline.rows(manifest, self._parts_of(manifest, row_filter), row_filter)
            else:
                yield from self._buckets(self.offline, manifest, row_filter)

    def parts(self, row_filter: RowFilter) -> Iterator[Part]:
        """Yields the parts of an offline archive that may hold something of what is asked for."""
        for manifest in self._commits_for(self.offline, row_filter) if self.offline is not None else ():
            yield from self._parts_of(manifest, row_filter)

    def _parts_of(self, manifest: Manifest, row_filter: RowFilter) -> Iterator[Part]:
        for number, may_hold in enumerate(self._sections_of(manifest, row_filter)):
            parts = manifest.parts_of(number) if may_hold else ()
            yield from (it for it in parts if it.touches(row_filter.start, row_filter.end))

    def _rows_suffice(self, manifest: Manifest) -> bool:
        """Returns whether the rows of a commit can be read in place of its buckets: they are exact, and none
        is known to be live."""
        if not manifest.has_rows_of(self.policy):
            return False
        return not self._receipts.live(manifest.commit, manifest.buckets, self.session).any()

    def _online(self, row_filter: RowFilter) -> Iterator[Batch]:
        """Yields the buckets of an online archive."""
        query = selector_query(self.policy, *row_filter.series)
        for batch in self._archived_source().batches(row_filter.start, row_filter.end, query):
            copied = self._receipts.copied(batch.main.ids, self.session)
            ours = np.array([raw_id in copied for raw_id in batch.main.raw_ids], dtype=np.bool_)
            yield from self._not_live(batch, ours, row_filter)

    def take_read(self) -> set[str]:
        """Returns the commits that were read whole since the last call."""
        read, self._read = self._read, set()
        return read

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant at or after the argument, such that no archived bucket covers one between the
        two; None where none does later either."""
        if self._to == "online":
            return self._archived_source().earliest(at_or_after_ms)
        return self.offline.earliest(at_or_after_ms) if self.offline is not None else None

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns in the archive's parts; empty where there are none."""
        return self.offline.known_types() if self.offline is not None else {}

    def span(self) -> tuple[int, int] | None:
        """Returns a range that holds all archived readings; None where nothing is archived."""
        if self.offline is not None:
            return self.offline.span()
        found = self._archived_source().span() if self._to == "online" else None
        return None if found is None else (found[0], found[1] + DAY_MS)

    def superseded(self) -> Iterator[tuple[int, int]]:
        """Yields the span [start, end), in milliseconds, of archived copies that count again once their live
        bucket goes, which may have moved since it was restored."""
        if self.offline is not None:
            for receipt in self._receipts.in_state("open", "offline"):
                yield as_ms(receipt["first"]), as_ms(receipt["last"]) + 1
        elif self._to == "online":
            for receipt in self._receipts.in_state("copied", "online"):
                yield from self._archived_source().spans(receipt["ids"])

    def _archived_source(self) -> Source:
        return archived_source(self.database, self.policy, self.session)

    def _commits_for(self, archive: OfflineArchive, row_filter: RowFilter) -> Iterator[Manifest]:
        """Yields the commits that may hold readings that pass the filter. (Days with readings may lie before
        and after.)"""
        # Commits that reach into the next range are read last: they are cached when that range is read.
        for manifest in sorted(
            archive.manifests(row_filter.start, row_filter.end), key=lambda it: (it.first, it.last)
        ):
            if any(self._sections_of(manifest, row_filter)):
                yield manifest

    def _buckets(self, archive: OfflineArchive, manifest: Manifest, row_filter: RowFilter) -> Iterator[Batch]:
        may_be_live = self._receipts.live(manifest.commit, manifest.buckets, self.session)
        is_part = as_ms(manifest.first) < row_filter.start or as_ms(manifest.last) >= row_filter.end
        sections = self._sections_of(manifest, row_filter)
        for held in archive.sections(manifest, sections):
            batch, live = held.batch, may_be_live[held.positions]
            if row_filter.series or is_part:
                chosen = self._chosen(batch, row_filter)
                batch, live = batch.take(chosen), live[chosen]
            yield from self._not_live(batch, live, row_filter)
        self._note_read(manifest, sections)

    def _note_read(self, manifest: Manifest, sections: list[bool]) -> None:
        """Notes that a commit was read, once each of its sections was."""
        before = self._partly.pop(manifest.commit, [False] * len(sections))
        read = [a or b for a, b in zip(before, sections, strict=True)]
        if all(read):
            self._read.add(manifest.commit)
        else:
            self._partly[manifest.commit] = read

    def _sections_of(self, manifest: Manifest, row_filter: RowFilter) -> list[bool]:
        """Returns for each section whether it may hold readings that pass the filter."""
        return manifest.sections_of(self.policy, row_filter.start, row_filter.end, *row_filter.series)

    def _chosen(self, batch: Batch, row_filter: RowFilter) -> NDArray[np.int64]:
        """Returns the buckets with a reading that passes the filter, and those that break the policy's
        present model."""
        decoded = decode(batch, self.policy)
        columns = decoded.columns
        wanted = selected(columns.series, self.policy, *row_filter.series)[columns.series_of_readings]
        wanted &= (columns.time >= row_filter.start) & (columns.time < row_filter.end)
        chosen = np.ones(len(batch), dtype=np.bool_)
        chosen[decoded.units] = False
        chosen[decoded.units[columns.bucket[wanted]]] = True
        return np.flatnonzero(chosen)

    def _not_live(
        self, batch: Batch, may_be_live: NDArray[np.bool_], row_filter: RowFilter
    ) -> Iterator[Batch]:
        """Yields buckets without those that are live as they are here, and without old copies of live ones. A
        document that took the `_id` of a deleted bucket is another one."""
        if not len(batch):
            return
        source = Source(self.database, self.policy, session=self.session)
        if self.policy.model == "timeseries":
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
