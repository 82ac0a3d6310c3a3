"""A machine that is full, read-only, out of memory or descriptors, and one that asks a run to stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from config.policies import Store
from tests.faults import aftermath
from tests.faults.aftermath import JOBS
from tests.faults.meddling import hook
from tests.faults.scene import Scene
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine, Meddle

GROUP = "machine: "


@pytest.fixture
def prepare(tmp_path: Path, database: Database[Any], mongodb_uri: str, bucketwise: CommandLine) -> Any:
    def of(job: str, store: Path | None = None) -> tuple[Scene, str]:
        url = (store or tmp_path / "store").as_uri()
        return aftermath.prepared(job, tmp_path, database, mongodb_uri, Store(url=url), bucketwise)

    return of


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 64 KiB; None where nothing may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_no_room_for_temporary_files(prepare: Any, small_disk: Path | None, tally: Tally) -> None:
    scene, verb = prepare("offline")
    if small_disk is None:
        ran = scene.run(verb, meddle=hook(limits={"RLIMIT_FSIZE": 1000}))
    else:
        (small_disk / "fill").write_bytes(bytes(56 << 10))
        ran = scene.run(verb, TMPDIR=str(small_disk))
    message = aftermath.check(tally, GROUP + "disk", "no room for temporary files", scene, ran, codes=[1])
    assert re.search("No space left|File too large", message)
    assert "Look at this machine's disk" in message


def test_no_room_in_the_store(prepare: Any, small_disk: Path | None, tally: Tally) -> None:
    scene, verb = prepare("offline", small_disk)
    if small_disk is None:
        ran = scene.run(verb, meddle=hook(limits={"RLIMIT_FSIZE": 1000}))
    else:
        fill = small_disk / "fill"
        fill.write_bytes(bytes(56 << 10))
        ran = scene.run(verb)
        fill.unlink()
    message = aftermath.check(tally, GROUP + "disk", "no room in the store", scene, ran, codes=[1])
    assert re.search(r"No space left.*Make room|File too large", message)


#: What is done to the process, what of the environment, and what the message says.
TEMPORARY: dict[str, tuple[dict[str, Any], str]] = {
    "none can be written to": ({"only_temporary": {"folder": "/proc"}}, "No usable temporary directory"),
    "none is there": ({"only_temporary": {"folder": "/nowhere"}}, "No usable temporary directory"),
}


@pytest.mark.parametrize("fault", TEMPORARY)
def test_temporary_folders(prepare: Any, tally: Tally, fault: str) -> None:
    scene, verb = prepare("offline")
    hooks, words = TEMPORARY[fault]
    ran = scene.run(verb, meddle=hook(**hooks))
    message = aftermath.check(tally, GROUP + "disk", f"temporary folders: {fault}", scene, ran, codes=[1])
    assert words in message


def test_a_missing_temporary_folder_is_not_the_only_one(prepare: Any, tally: Tally) -> None:
    scene, verb = prepare("offline")
    ran = scene.run(verb, TMPDIR=str(scene.folder / "missing"))
    aftermath.check(tally, GROUP + "disk", "TMPDIR is missing", scene, ran, codes=[0])


# Memory and descriptors

#: Where memory ends, and in which job.
DEEP = {
    "decoding": ("roll-up", "buckets.decode.decode"),
    "aggregating": ("roll-up", "rollups.rollup.roll_up"),
    "writing a part": ("offline", "archivers.parquet.write_part"),
    "reading a part back": ("offline", "archivers.parquet.read_part"),
    "reading the rest back": ("offline", "archivers.parquet.read_buckets"),
    "deleting": ("offline", "archivers.delete.compare"),
    "copying": ("online", "archivers.online.insert_raw"),
    "deleting what was moved": ("online", "archivers.delete.compare"),
}


@pytest.mark.parametrize("error", ["MemoryError", "pyarrow.lib.ArrowMemoryError"])
@pytest.mark.parametrize("where", DEEP)
def test_memory_ends(prepare: Any, tally: Tally, where: str, error: str) -> None:
    job, function = DEEP[where]
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(raising={"error": error, "function": function}))
    message = aftermath.check(tally, GROUP + "memory", f"{where}: {error}", scene, ran, codes=[1])
    assert "no more memory" in message


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("limit", [4 << 20, 40 << 20, 100 << 20, 160 << 20])
def test_little_address_space(prepare: Any, tally: Tally, job: str, limit: int) -> None:
    """What the process may have beyond what it starts with. C++ libraries may end it there and then."""
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(limits={"RLIMIT_AS": limit}))
    print("AS", job, limit, ran.code, ran.out, ran.err)
    codes = (0, 1, -signal.SIGABRT, -signal.SIGSEGV)
    aftermath.check(
        tally, GROUP + "memory", f"{job}: {limit} bytes of address space", scene, ran, codes=codes
    )


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("limit", [8, 10, 12, 14, 16, 18])
def test_few_descriptors(prepare: Any, tally: Tally, job: str, limit: int) -> None:
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(limits={"RLIMIT_NOFILE": limit}))
    print("FD", job, limit, ran.code, ran.out, ran.err)
    aftermath.check(tally, GROUP + "descriptors", f"{job}: {limit}", scene, ran)


# Streams

STREAMS: dict[str, tuple[int, str]] = {
    "stdout read by nobody": (1, "pipe"),
    "stdout closed": (1, "closed"),
    "stderr read by nobody": (2, "pipe"),
    "stderr closed": (2, "closed"),
    "stderr on a full disk": (2, "/dev/full"),
}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["tables", "json"])
@pytest.mark.parametrize("fault", STREAMS)
def test_streams(prepare: Any, tally: Tally, fault: str, form: list[str]) -> None:
    """The work is done all the same, and the exit code says so."""
    scene, verb = prepare("offline")
    number, to = STREAMS[fault]
    ran = scene.command.meddled(
        hook(stream={"number": number, "to": to}),
        verb,
        *form,
        "--now",
        "2018-09-01T00:00:00Z",
        cwd=scene.folder,
    )
    assert scene.truth.live() == []
    aftermath.check(tally, GROUP + "streams", f"{fault}, {form}", scene, ran, codes=[0])


def test_stdout_on_a_full_disk(prepare: Any, tally: Tally) -> None:
    scene, verb = prepare("offline")
    ran = scene.run(verb, meddle=hook(stream={"number": 1, "to": "/dev/full"}))
    assert scene.truth.live() == []
    assert "could not be written to stdout: No space left on device. What was done stands" in ran.err
    toll = scene.toll()
    tally(GROUP + "streams", "stdout on a full disk", runs=4, **toll._asdict())
    assert (ran.code, *toll[1:]) == (1, 0, 0)
    scene.finish()


# Being asked to stop
