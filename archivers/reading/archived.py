"""Reads archived buckets that are no longer live. With the live ones, they make up every summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers import decisions
from bucketwise.archivers.context import Connections, offline_archive
from bucketwise.archivers.format.archive import Cache, OfflineArchive
from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.format.states import SectionStates
from bucketwise.archivers.format.writing import ColdCommit, UnerasedCommit
from bucketwise.archivers.records.copies import CopyReceipts
from bucketwise.archivers.records.pins import restored
from bucketwise.archivers.records.receipts import UNERASED, Receipts, live_of
from bucketwise.archivers.records.registry import Registry
from bucketwise.archivers.writes import MAX_BUCKETS, archived_source, measured, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import selected, selector_query
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_ms
from bucketwise.buckets.layouts.groups import Unions
from bucketwise.buckets.packing import Rows
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Bytes of the spans of buckets that are kept, besides those of the last section.
_MOST_SPANS = 4_000_000


@dataclass(frozen=True)
class ColdSection:
    """A section whose parts have to be thawed, as `error` says; no bucket of it is known to be live."""

    error: ColdCommit
    archive: OfflineArchive
    number: int

    @property
    def states(self) -> SectionStates | None:
        """Returns what its states file holds; None where there is none. Raises DamagedError."""
        return self.archive.states(self.error.manifest, self.number)

    @property
    def ids(self) -> Sequence[bytes] | None:
        """Returns the `_id`s of its buckets; None where only its parts tell them. Raises DamagedError."""
        return self.archive.ids(self.error.manifest, self.number)


#: Takes a section in place of its buckets, or raises its error.
OnCold = Callable[[ColdSection], None]


def refuse(cold: ColdSection) -> None:
    """Raises the section's error."""
    raise cold.error


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
    def returning_spans(self) -> Iterator[tuple[int, int]]:
        """Yields the span [start, end), in milliseconds, of archived copies that count again once their live
        bucket goes, which may have moved since it was restored."""

    def batches(self, start_ms: int, end_ms: int, on_cold: OnCold = refuse) -> Iterator[Batch]:
        """Yields archived buckets that may hold a reading in [start, end) and are not live. `on_cold`: see
        `OnCold`.

        Where a bucket is live, it counts, and not its copy: it is not deleted yet, or it was restored."""
        del on_cold  # most archives have no classes
        found = self.readings(RowFilter(start_ms, end_ms), is_by_rows=False)
        return cast(Iterator[Batch], found)  # none comes as rows

    def parts(self, row_filter: RowFilter) -> Iterator[Part] | None:
        """Returns the parts that may hold something of what is asked for; None where an archive has none."""
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
            copies = zip(batch.main.raw_ids, units(self.policy, batch), strict=True)
            gone = decisions.counting(copies, may_be_live, _by_id(source, batch))
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
        self._unions = Unions()
        #: Of each bucket of a section, by its digest, the times of its first and last reading.
        self._spans = Cache[NDArray[np.int64]](_MOST_SPANS, lambda it: it.nbytes)

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
                yield from self._buckets(manifest, self._receipt(manifest), row_filter, refuse)

    def batches(self, start_ms: int, end_ms: int, on_cold: OnCold = refuse) -> Iterator[Batch]:
        """Yields the archived buckets of the range, as others do; cold ones are left to `on_cold`. Raises
        UnerasedCommit at one that may hold what was erased."""
        row_filter = RowFilter(start_ms, end_ms)
        for manifest in self._commits_for(row_filter):
            receipt = self._receipt(manifest)
            if erasures := receipt.get(UNERASED):
                raise UnerasedCommit(self._archive.place(manifest.name), self.policy.name, manifest, erasures)
            yield from self._buckets(manifest, receipt, row_filter, on_cold)

    def earliest(self, at_or_after_ms: int) -> int | None:
        """Returns an instant before which, from the argument on, nothing is archived; None where nothing is
        later either."""
        return self._archive.earliest(at_or_after_ms)

    def span(self) -> tuple[int, int] | None:
        """Returns the days that hold all archived readings; None where nothing is archived."""
        return self._archive.span()

    def returning_spans(self) -> Iterator[tuple[int, int]]:
        """Yields those of commits of which some buckets may be live."""
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

    def _receipt(self, manifest: Manifest) -> Document:
        return self._receipts.get(manifest.commit, self._session) or {}

    def _buckets(
        self, manifest: Manifest, receipt: Document, row_filter: RowFilter, on_cold: OnCold
    ) -> Iterator[Batch]:
        def take_cold(error: ColdCommit, number: int) -> None:
            if may_be_live.any():
                raise error
            on_cold(ColdSection(error, self._archive, number))
            sections[number] = False  # it was not read

        may_be_live = live_of(receipt, manifest.buckets)
        is_part = as_ms(manifest.first) < row_filter.start or as_ms(manifest.last) >= row_filter.end
        sections = self._sections_of(manifest, row_filter)
        for held in self._archive.sections(manifest, sections, take_cold):
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
        present model. A section is decoded whole when it is first read: of late readings it may hold some of
        many days."""
        spans, near = self._spans.get(batch.digest), np.arange(len(batch))
        if spans is not None:
            near = np.flatnonzero((spans[:, 0] < row_filter.end) & (spans[:, 1] >= row_filter.start))
            batch = batch.take(near)
        decoded = decode(batch, self.policy, self._unions)
        columns = decoded.columns
        if spans is None:
            spans = np.full((len(batch), 2), (FIRST_MS, LAST_MS))
            spans[decoded.units] = decoded.spans()
            self._spans.put(batch.digest, spans)
        wanted = selected(columns.series, self.policy, *row_filter.series)[columns.series_of_readings]
        wanted &= (columns.time >= row_filter.start) & (columns.time < row_filter.end)
        chosen = np.ones(len(batch), dtype=np.bool_)
        chosen[decoded.units] = False
        chosen[decoded.units[columns.bucket[wanted]]] = True
        return near[chosen]


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

    def returning_spans(self) -> Iterator[tuple[int, int]]:
        """Yields those of copies whose originals no run has deleted."""
        for receipt in self._receipts.in_state("copied", "online"):
            yield from self._archived.spans(receipt["ids"])

    @property
    def _archived(self) -> Source:
        return archived_source(self._database, self.policy, self._session)


class NothingArchived(ArchivedReader):
    """The `ArchivedReader` of a policy without an archive."""

    def at(self, session: ClientSession) -> NothingArchived:
        """Returns this reader: nothing is archived at any instant."""
        return self

    def readings(self, row_filter: RowFilter, *, is_by_rows: bool) -> Iterator[Batch]:
        """Yields nothing."""
        return iter(())

    def earliest(self, at_or_after_ms: int) -> None:
        """Returns None."""

    def span(self) -> None:
        """Returns None."""

    def returning_spans(self) -> Iterator[tuple[int, int]]:
        """Yields nothing."""
        return iter(())


def archived_reader(connections: Connections, policy: Policy) -> ArchivedReader:
    """Returns the reader of a policy's archive."""
    if (archive := offline_archive(connections, policy)) is not None:
        return OfflineReader(connections.database, policy, archive)
    if policy.archive_collections is None:
        return NothingArchived(connections.database, policy)
    return OnlineReader(connections.database, policy, keys=connections.keys)
