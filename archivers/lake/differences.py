"""How a policy's Iceberg table differs from its archive. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.names import commit_of_file
from bucketwise.archivers.lake.catalog import LakeTable
from bucketwise.archivers.lake.files import location
from bucketwise.archivers.lake.records import LakeRecords
from bucketwise.archivers.lake.report import LakeDifference, LakeError
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Lake

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
