"""What a store in a directory does when the disk or its process does wrong."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bucketwise.archivers.stores.base import AlreadyExists, StoreError
from bucketwise.archivers.stores.file import FileStore
from tests.faults.servers.test_store_faults import keys

pytestmark = pytest.mark.process


def test_a_write_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = FileStore(tmp_path / "store")
    store.put_bytes("a/k", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # a disk that is full, near enough
    try:
        with pytest.raises(StoreError, match=r"put file://.*/a/k: .*File too large"):
            store.put_bytes("a/k", b"new" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.get_bytes("a/k") == b"old"
    assert list((tmp_path / "store" / ".tmp").iterdir()) == []


def test_a_process_killed_in_a_write_leaves_nothing_to_see(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    code = (
        "import os, sys; from pathlib import Path; from bucketwise.archivers.stores import file; "
        "file._place = lambda *_: os.kill(os.getpid(), 9); "
        "file.FileStore(Path(sys.argv[1])).put_bytes('data/dt=2018-06-30/a.parquet', bytes(3 << 20))"
    )
    writer = subprocess.run([sys.executable, "-c", code, str(root)], cwd=Path(__file__).parents[3])
    assert writer.returncode == -signal.SIGKILL
    (left,) = (root / ".tmp").iterdir()
    assert left.stat().st_size == 3 << 20
    store = FileStore(root)
    assert keys(store) == []
    assert store.clean_temporaries(datetime.now(UTC) - timedelta(days=1)) == 0
    assert store.clean_temporaries(datetime.now(UTC) + timedelta(days=1)) == 1
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_deleting_removes_folders_that_hold_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store = FileStore(root)
    store.put_bytes("p/data/dt=1/a", b"")
    store.put_bytes("p/data/dt=2/b", b"")
    store.delete(["p/data/dt=1/a"])
    assert not (root / "p/data/dt=1").exists()
    store.delete(["p/data/dt=2/b"])
    assert root.is_dir() and not (root / "p").exists()


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put_bytes("a/b", b"1")
    assert store.head("a") is None
    with pytest.raises(StoreError):
        store.get_bytes("a")
    with pytest.raises(StoreError):
        store.put_bytes("a", b"2")
    with pytest.raises(StoreError):
        store.put_bytes("a/b/c", b"3")
    store.delete(["a/b/c"])
    with pytest.raises(StoreError, match=r"\.tmp is kept"):
        store.put_bytes(".tmp/a", b"")
    assert keys(store) == ["a/b"]


def test_a_link_whose_reply_is_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system behind a network: it is there, and the call has failed."""
    link = Path.hardlink_to

    def losing(self: Path, target: Path) -> None:
        link(self, target)
        raise OSError(errno.EIO, "Input/output error", str(self))

    monkeypatch.setattr(Path, "hardlink_to", losing)
    store = FileStore(tmp_path)
    store.put_bytes("a", b"ours", if_absent=True)
    assert store.get_bytes("a") == b"ours"
    with pytest.raises(AlreadyExists):
        store.put_bytes("a", b"ours", if_absent=True)
