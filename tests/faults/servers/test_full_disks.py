"""Disks that are full: of a store that is a directory, at each of its writes; of an export; of MongoDB."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.config.tables import Store
from tests.faults import aftermath
from tests.faults.crashes.jobs import in_small_commits, rolled_up
from tests.faults.meddling import fill, hook
from tests.faults.mongods import await_, servers
from tests.faults.scene import OFFLINE, ROLLUP, SLOTS, Scene
from tests.faults.stopping import stopped
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine

GROUP = "full disks"
pytestmark = pytest.mark.proof
NO_ROOM = r"file://\S+: \[Errno 28\] No space left on device.*Free some space"
#: What stands before, and the command that writes to the store.
JOBS: dict[str, Any] = {
    "archive": (rolled_up, ["archive"]),
    "compact": (in_small_commits, ["compact"]),
    "erase": (in_small_commits, ["erase", "--series", "dev=1", "--reason", "why", "--confirm", "it"]),
}


@contextmanager
def disk(folder: Path, size: str, files: int) -> Iterator[Path]:
    """A file system of its own. It takes the right to mount one."""
    folder.mkdir()
    given = f"size={size},nr_inodes={files}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", given, "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("of", ["bytes", "files"])
@pytest.mark.parametrize("job", JOBS)
def test_the_store_is_full_at_each_write(
    tmp_path: Path, client: MongoClient[Any], mongodb_uri: str, bucketwise: CommandLine, tally: Tally,
    job: str, of: str,
) -> None:  # fmt: skip
    prepare, (verb, *arguments) = JOBS[job]
    failed = 0
    for at in range(1, 100):
        name = f"test_full_{at}_{tmp_path.name}"[:60]
        with disk(tmp_path / str(at), "1m", 400) as folder, dropped(client, name) as database:
            (folder / "store").mkdir()
            (tmp_path / f"config {at}").mkdir()
            store = Store(url=(folder / "store").as_uri())
            text = SLOTS + ROLLUP + OFFLINE
            it = Scene(tmp_path / f"config {at}", database, mongodb_uri, store, bucketwise, text)
            prepare(it)
            given = {"folder": str(folder), "at": at, "of": of}
            ran = it.run(verb, *arguments, meddle=hook(filling=given))
            if not (folder / "fill").exists():
                assert ran.code == 0, ran
                break
            message = aftermath.said(ran, [0, 1])  # 0: what was left to be written fitted
            failed += ran.code
            assert not ran.code or re.search(NO_ROOM, message)
            shutil.rmtree(folder / "fill")
            if verb == "erase":
                it.well(verb, *arguments)
                assert it.truth.live() == [] and it.well("audit")["findings"] == []
            else:
                tally(GROUP, f"{job}: write {at}, no {of}", runs=4, **it.toll()._asdict())
                assert it.toll()[1:] == (0, 0)
                it.finish()
                it.check_restores()
            assert list((folder / "store").glob(".tmp/*")) == []
    assert failed > 8


@contextmanager
def dropped(client: MongoClient[Any], name: str) -> Iterator[Database[Any]]:
    """A database that goes with the block."""
    try:
        yield client[name]
    finally:
        client.drop_database(name)


@pytest.mark.parametrize("verb", ["readings", "query"])
def test_no_room_for_an_export(
    tmp_path: Path, database: Database[Any], mongodb_uri: str, file_store: Store, bucketwise: CommandLine,
    verb: str,
) -> None:  # fmt: skip
    it = Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, SLOTS + ROLLUP + OFFLINE).fill()
    it.well()
    given = {"readings": ["-p", "it"], "query": ["SELECT * FROM it"]}[verb]
    with disk(tmp_path / "disk", "64k", 20) as folder:
        before = folder / "readings.parquet"
        before.write_bytes(b"what was exported before")
        fill(folder, "bytes")
        more = ["--format", "parquet", "--output", str(before), "--yes"]
        ran = it.command(verb, *given, *more, cwd=it.folder)
        assert ran.code == 1, ran
        assert "Traceback" not in ran.err and re.search(
            r"No space left on device.*[Ff]ree some space", ran.err
        )
        assert [path.name for path in folder.iterdir() if path.name != "fill"] == [before.name]
        assert before.read_bytes() == b"what was exported before"
        shutil.rmtree(folder / "fill")
        assert it.command(verb, *given, *more, cwd=it.folder).code == 0


@pytest.mark.parametrize("at", ["before summaries", "before receipt", "before delete"])
def test_mongodb_has_no_room(
    tmp_path: Path, file_store: Store, bucketwise: CommandLine, tally: Tally, at: str
) -> None:
    """It ends there and then, as MongoDB does; a run, once there is room, finishes the work."""
    with (
        disk(tmp_path / "disk", "512m", 10_000) as folder,
        servers(folder) as running,
        MongoClient[Any](running.uri, tz_aware=True) as client,
    ):
        text = SLOTS + ROLLUP + OFFLINE
        it = Scene(tmp_path, client["test_full"], running.uri, file_store, bucketwise, text).fill(12)
        with stopped(it, at, asleep=0) as run:
            assert run.step == at
            fill(folder, "bytes")
            with suppress(PyMongoError):
                while True:  # what it has of its own is used up
                    client["other"]["it"].insert_one({"of": os.urandom(1 << 20)})
            await_(running.nodes[0].process.poll)
        assert run.ran is not None
        assert re.search("refused|No replica set", aftermath.said(run.ran, [1]))
        shutil.rmtree(folder / "fill")
        running.make_well()
        tally(GROUP, f"MongoDB, {at}", runs=4, **it.toll()._asdict())
        assert it.toll()[1:] == (0, 0)
        client.drop_database("other")
        it.finish()
