"""Brings a policy's Iceberg table to what its archive holds: the parts of the commits that stand.

All additions and removals are one snapshot, so that no reader sees a reading twice, or misses one. The table
is written first, then its record in MongoDB. If a run is cut off in between, the next one finds a table at
another snapshot than the recorded one, and compares all that it lists with the archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.names import Commit, commit_of_file
from bucketwise.archivers.lake.catalog import LakeTable, files_of, location
from bucketwise.archivers.lake.records import LakeDifference, LakeError, LakeRecords, LakeReport
from bucketwise.archivers.records.heads import link_of, read_heads
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Lake
from bucketwise.rollups.context import transaction

#: Commits that are added to a table at once where all are new to it: the first time.
_PORTION = 500


def sync(context: ArchiveContext, archive: OfflineArchive, lake: Lake, *, whole: bool = False) -> LakeReport:
    """Registers what the table of a policy lacks, and removes what is gone. Returns what was done.

    `whole`: compares all that it lists, not just what has changed since the last time. Raises LakeError where
    the catalog, the store or the types of columns forbid it."""
    records = LakeRecords(context.receipts)
    records.prepare()
    state = records.state()
    table = LakeTable(lake, archive.store, context.policy.identity, state)
    work = _Sync(context, archive, table, records)
    if whole or table.state != state:
        return work.compare()
    return work.follow()


@dataclass
class _Changes:
    """Changes to a table: the commits to add, those to remove, and those that it already has."""

    joining: list[Commit]
    leaving: list[Commit]
    removed: list[DataFile]
    present: list[Commit] = field(default_factory=list)
    there: set[str] = field(default_factory=set)  # URLs of files that it has

    def portions(self) -> Iterator[list[Commit]]:
        """Yields the commits to add with each snapshot: all at once, where they may replace others. Yields
        nothing where nothing changes, and an empty portion where files are only removed."""
        if not (self.joining or self.leaving or self.removed or self.present):
            return
        size = max(1, len(self.joining)) if self.removed else _PORTION
        for at in range(0, max(1, len(self.joining)), size):
            yield self.joining[at : at + size]


@dataclass
class _Sync:
    context: ArchiveContext
    archive: OfflineArchive
    table: LakeTable
    records: LakeRecords

    def follow(self) -> LakeReport:
        """Applies what has changed since the last sync."""
        leaving = self.records.leaving()
        root = location(self.archive.store, "")
        removed: list[DataFile] = []
        if leaving and self.table.table is not None:
            schema = self.table.table.schema()
            links = (self.archive.chain.link(link_of(it)) for it in leaving)
            removed = [file for manifest in links for file in files_of(manifest, schema, root)]
        return self._apply(_Changes(self.records.lacking(), leaving, removed))

    def compare(self) -> LakeReport:
        """Compares all that the table lists with all that the archive holds, and applies the differences."""
        root, current = location(self.archive.store, ""), self.records.current()
        wanted = {root + key for _, keys in current for key in keys}
        listed: dict[str, DataFile] = {}
        removed = []
        for file in self.table.files():
            if file.file_path not in wanted or file.file_path in listed:
                removed.append(file)  # if it is listed twice, all entries go
            listed[file.file_path] = file
        there = listed.keys() - {it.file_path for it in removed}
        lacking = {it for it, keys in current if any(root + key not in there for key in keys)}
        joining = [it for it, _ in current if it in lacking]
        present = [it for it, _ in current if it not in lacking]
        return self._apply(_Changes(joining, self.records.leaving(), removed, present, there))

    def _apply(self, changes: _Changes) -> LakeReport:
        added = 0
        for portion in changes.portions():
            added += self._register(changes, portion)
        state = self.table.state
        if state is None:
            return LakeReport()
        self.table.point(state.metadata)  # also where an earlier sync was cut off before
        return LakeReport(added, len(changes.removed), state.snapshot, state.metadata)

    def _register(self, changes: _Changes, portion: Sequence[Commit]) -> int:
        """Makes one snapshot, where any file changes. Returns how many came in."""
        manifests = [self.archive.current(it) for it in portion]
        self.context.check()
        unused: list[str] = []
        added: list[DataFile] = []
        if self.table.table is not None or manifests:
            schema = self.table.prepare(manifests).schema()
            root = location(self.archive.store, "")
            files = (file for it in manifests for file in files_of(it, schema, root))
            added = [file for file in files if file.file_path not in changes.there]
            if added or changes.removed:
                heads = read_heads(self.context.receipts)
                properties = {"bucketwise.sequence": str(heads.sequence if heads else 0)}
                unused = self.table.commit(manifests, added, changes.removed, properties)
        state = self.table.state
        if state is None:
            return 0

        def note(session: ClientSession) -> None:
            self.records.note(state, [*portion, *changes.present], changes.leaving, session)

        transaction(self.context.database, self.context.guard, note)
        self.table.tidy(unused)
        return len(added)


_REMEDY = "run `bucketwise lake sync`"


def differences(context: ArchiveContext, archive: OfflineArchive, lake: Lake) -> Iterator[LakeDifference]:
    """Yields what the next sync has to add or remove (`is_behind`), and what earlier syncs have missed. A
    table that can't be read is taken to be behind."""
    records, policy = LakeRecords(context.receipts), context.policy.identity
    state = records.state()
    try:
        table = LakeTable(lake, archive.store, policy, state)
        counted = Counter(file.file_path for file in table.files())
    except (LakeError, BucketwiseError) as error:
        yield LakeDifference(f"{lake.catalog}", f"it can't be read: {error}", is_behind=True)
        return
    root = location(archive.store, "")
    current = {root + key: commit.name for commit, keys in records.current() for key in keys}
    due = {it.name for it in (*records.lacking(), *records.leaving())}
    if state is None or table.state is None:
        due |= set(current.values())

    def report(what: str, paths: set[str]) -> Iterator[LakeDifference]:
        for is_behind in (True, False):
            some = [it for it in sorted(paths) if (_commit(it, root, policy) in due) == is_behind]
            if some:
                message = f"{what}: {len(some):,}, such as {some[0]}; {_REMEDY}"
                yield LakeDifference(table.place, message, is_behind)

    yield from report("parts that it lacks", current.keys() - counted.keys())
    yield from report("files in it that are not parts of the archive", counted.keys() - current.keys())
    yield from report("files that it lists twice", {it for it, count in counted.items() if count > 1})


def _commit(path: str, root: str, policy: str) -> str | None:
    found = commit_of_file(policy, path.removeprefix(root))
    return None if found is None else found.name
