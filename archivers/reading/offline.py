"""Reads what an offline archive holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.reading.reader import ArchivedReader, Document
from bucketwise.archivers.records.registry import Registry
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import selected
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.packing.pack import Rows
from bucketwise.config.policies import Policy


class OfflineReader(ArchivedReader):
    """The `ArchivedReader` of an offline archive."""

    def __init__(
        self,
        database: Database[Document],
        policy: Policy,
        archive: OfflineArchive,
        session: ClientSession | None = None,
    ) -> None:
        super().__init__(database, policy, session)
        self._archive = archive
        self._read = set[str]()
        self._partly: dict[str, list[bool]] = {}  # which sections of other commits were read

    def at(self, session: ClientSession) -> OfflineReader:
        """Returns the same archive, with what is known of it, at another instant."""
        archive = self._archive.at(Registry(self._receipts, session))
        return OfflineReader(self._database, self.policy, archive, session)

    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch | Rows]:
        """Yields archived readings, as rows of parts where these may be and suffice."""
        for manifest in self._commits_for(row_filter):
            if is_by_rows and self._rows_suffice(manifest):
                yield from self._archive.rows(manifest, self._parts_of(manifest, row_filter), row_filter)
            else:
                yield from self._buckets(manifest, row_filter)

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant before which, from the argument on, nothing is archived; None where nothing is
        later either."""
        return self._archive.earliest(at_or_after_ms)

    def span(self) -> tuple[int, int] | None:
        """Returns the days that hold all archived readings; None where nothing is archived."""
        return self._archive.span()

    def superseded(self) -> Iterator[tuple[int, int]]:
        """Yields the spans of commits that hold copies of what may be live."""
        for receipt in self._receipts.in_state("open", "offline"):
            yield as_ms(receipt["first"]), as_ms(receipt["last"]) + 1

    def parts(self, row_filter: RowFilter) -> Iterator[Part]:
        """Yields the parts that may hold something of what is asked for."""
        for manifest in self._commits_for(row_filter):
            yield from self._parts_of(manifest, row_filter)

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns in the archive's parts; empty where there are none."""
        return self._archive.known_types()

    def take_read(self) -> set[str]:
        """Returns the commits that were read whole since the last call."""
        read, self._read = self._read, set()
        return read

    def _parts_of(self, manifest: Manifest, row_filter: RowFilter) -> Iterator[Part]:
        for number, may_hold in enumerate(self._sections_of(manifest, row_filter)):
            parts = manifest.parts_of(number) if may_hold else ()
            yield from (it for it in parts if it.touches(row_filter.start, row_filter.end))

    def _rows_suffice(self, manifest: Manifest) -> bool:
        """Returns whether the rows of a commit can be read in place of its buckets: they are exact, and none
        is known to be live."""
        if not manifest.has_rows_of(self.policy):
            return False
        return not self._receipts.live(manifest.commit, manifest.buckets, self._session).any()

    def _commits_for(self, row_filter: RowFilter) -> Iterator[Manifest]:
        """Yields the commits that may hold readings that pass the filter. (Days with readings may lie before
        and after.)"""
        # Commits that reach into the next range are read last: they are cached when that range is read.
        for manifest in sorted(
            self._archive.manifests(row_filter.start, row_filter.end), key=lambda it: (it.first, it.last)
        ):
            if any(self._sections_of(manifest, row_filter)):
                yield manifest

    def _buckets(self, manifest: Manifest, row_filter: RowFilter) -> Iterator[Batch]:
        may_be_live = self._receipts.live(manifest.commit, manifest.buckets, self._session)
        is_part = as_ms(manifest.first) < row_filter.start or as_ms(manifest.last) >= row_filter.end
        sections = self._sections_of(manifest, row_filter)
        for held in self._archive.sections(manifest, sections):
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
