"""A store that loses or changes what was verified, before the originals go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, slots
from tests.archivers.harness import Cycle

Document = dict[str, Any]


def remove(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])


class Losing(FileStore):
    """Damages a file of a commit once its manifest is there: all was verified by then."""

    def __init__(self, root: Path, kind: str, damage: Callable[[Path], None]) -> None:
        super().__init__(root)
        self._root_of, self._kind, self._damage = root, kind, damage
        self.kept: tuple[Path, bytes] | None = None

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        super().put_bytes(key, data, **given)
        if "/meta/manifests/" in key and self.kept is None:
            path = next(self._root_of.rglob(self._kind))
            self.kept = path, path.read_bytes()
            self._damage(path)


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("damage", [remove, flip])
@pytest.mark.parametrize("kind", ["data/*/*.parquet", "meta/buckets/*.parquet"])
def test_nothing_is_deleted_whose_copy_has_gone_since_it_was_verified(
    database: Database[Document], file_store: Store, kind: str, damage: Callable[[Path], None]
) -> None:
    cycle = Cycle(database, slots("minute"), file_store).load()
    live, store = cycle.live(), Losing(cycle.root, kind, damage)
    halts(cycle, store, lambda: cycle.run(store=store))
    assert cycle.live() == live
    for again in (cycle.run, lambda: cycle.run(dry_run=True)):
        halts(cycle, store, again)
    put_back(store)
    assert cycle.run().deleted == len(live)
    assert cycle.archived() == live


def test_what_was_found_damaged_is_told_though_nothing_reads_it(
    database: Database[Document], file_store: Store
) -> None:
    """In a grace, fingerprints tell what is copied. Damage that was found when the grace was over is told by
    runs in the next one."""
    case = slots("minute")
    cycle = Cycle(database, case, file_store).load()
    live, store = cycle.live(), Losing(cycle.root, "data/*/*.parquet", flip)
    halts(cycle, store, lambda: cycle.run(store=store))
    cycle.case = case.with_archive(grace=timedelta(days=60))
    halts(cycle, store, lambda: cycle.run(LATER))
    assert cycle.live() == live


def test_what_was_merged_stays_while_the_merged_commit_is_damaged(
    database: Database[Document], file_store: Store
) -> None:
    """Until the replaced commits are dropped, they are all that is left."""
    cycle = Cycle(database, slots("minute"), file_store).load()
    live = cycle.live()
    for until in (DAY0 + timedelta(hours=10), None):
        cycle.run(until=until)
    assert cycle.compact().into == 1
    replaced = [commit for commit in cycle.as_stored().commits() if commit.sequence < 3]
    (merged,) = [it for it in cycle.as_stored().commits() if it not in replaced]
    (path, *_) = cycle.root.rglob(f"{merged.name}.parquet")
    kept = path.read_bytes()
    flip(path)
    assert cycle.policy.archive is not None
    later = LATER + cycle.policy.archive.compact.delay
    with pytest.raises(DamagedError, match=path.name):
        cycle.run(later)
    assert all(cycle.as_stored().is_there(it) for it in replaced)
    path.write_bytes(kept)
    cycle.run(later)
    assert not any(cycle.as_stored().is_there(it) for it in replaced)
    assert cycle.archived() == live


def halts(cycle: Cycle, store: Losing, act: Callable[[], object]) -> None:
    with pytest.raises(DamagedError) as told:
        act()
    assert store.kept is not None
    assert told.value.place == unquote(store.kept[0].as_uri())
    assert [it.place for it in cycle.verify().bad] == [told.value.place]


def put_back(store: Losing) -> None:
    assert store.kept is not None
    store.kept[0].write_bytes(store.kept[1])
