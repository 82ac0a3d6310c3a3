"""A machine that is full, read-only, out of memory or descriptors, and one that asks a run to stop."""

from __future__ import annotations

import random
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults import aftermath
from tests.faults.aftermath import JOBS
from tests.faults.meddling import hook
from tests.faults.scene import Scene
from tests.faults.stopping import set_parameter
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine
from tests.tiers import tier

GROUP = "machine: "


@pytest.fixture
def prepare(tmp_path: Path, database: Database[Any], mongodb_uri: str, bucketwise: CommandLine) -> Any:
    def of(job: str, store: Path | None = None) -> tuple[Scene, str]:
        folder = store or tmp_path / "store"
        folder.mkdir(exist_ok=True)
        settings = Store(url=folder.as_uri())
        return aftermath.prepared(job, tmp_path, database, mongodb_uri, settings, bucketwise)

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


@pytest.mark.proof
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
    assert re.search(r"No space left.*Free some space|File too large", message)


#: What is done to the process, and what the message says.
TEMPORARY: dict[str, tuple[dict[str, Any], str]] = {
    "no room": ({"limits": {"RLIMIT_FSIZE": 1000}}, "File too large. Free some space on this machine's disk"),
    "none can be written to": ({"temporary": {"only": "/proc"}}, "No usable temporary directory"),
    "none is there": ({"temporary": {"only": "/nowhere"}}, "No usable temporary directory"),
}


@pytest.mark.proof
@pytest.mark.parametrize("fault", TEMPORARY)
def test_temporary_files(prepare: Any, fault: str) -> None:
    """Parquet for a pipe is whole in one before anything goes."""
    scene, _ = prepare("roll-up")
    hooks, words = TEMPORARY[fault]
    given = ["readings", "-p", "it", "--format", "parquet"]
    ran = scene.command.meddled(hook(**hooks), *given, cwd=scene.folder)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


# Memory and descriptors

#: Where memory ends, and in which job.
DEEP = {
    "decoding": ("roll-up", "bucketwise.buckets.decoding.decode.decode"),
    "aggregating": ("roll-up", "bucketwise.rollups.rolling.rollup.roll_up"),
    "writing a part": ("offline", "bucketwise.archivers.format.parquet.write_part"),
    "reading a part back": ("offline", "bucketwise.archivers.format.parquet.read_part"),
    "reading the rest back": ("offline", "bucketwise.archivers.format.parquet.read_buckets"),
    "deleting": ("offline", "bucketwise.archivers.writes.compare"),
    "copying": ("online", "bucketwise.archivers.writes.insert_raw"),
    "deleting what was moved": ("online", "bucketwise.archivers.writes.compare"),
}


FEW_DEEP = {("decoding", "builtins.MemoryError"), ("reading a part back", "pyarrow.lib.ArrowMemoryError")}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("where", "error"),
    [
        pytest.param(where, error, marks=[pytest.mark.proof] * ((where, error) not in FEW_DEEP))
        for where in DEEP
        for error in ("builtins.MemoryError", "pyarrow.lib.ArrowMemoryError")
    ],
)
def test_memory_ends(prepare: Any, tally: Tally, where: str, error: str) -> None:
    job, function = DEEP[where]
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(raising={"error": error, "function": function}))
    message = aftermath.check(tally, GROUP + "memory", f"{where}: {error}", scene, ran, codes=[1])
    assert "no more memory" in message


def limits(few: tuple[str, int], *limits: int) -> list[Any]:
    return [
        pytest.param(job, limit, marks=[pytest.mark.proof] * ((job, limit) != few))
        for job in JOBS
        for limit in limits
    ]


MB = 1 << 20


@pytest.mark.proof
@pytest.mark.parametrize(("job", "limit"), limits(("offline", 4 * MB), 4 * MB, 40 * MB, 100 * MB, 160 * MB))
def test_little_address_space(prepare: Any, tally: Tally, job: str, limit: int) -> None:
    """What the process may have beyond what it starts with. C++ libraries may end it there and then."""
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(limits={"RLIMIT_AS": limit}))
    codes = (0, 1, -signal.SIGABRT, -signal.SIGSEGV)
    aftermath.check(
        tally, GROUP + "memory", f"{job}: {limit} bytes of address space", scene, ran, codes=codes
    )


@pytest.mark.proof
@pytest.mark.parametrize(("job", "limit"), limits(("offline", 10), 10, 11, 12, 14))
def test_few_descriptors(prepare: Any, tally: Tally, job: str, limit: int) -> None:
    scene, verb = prepare(job)
    ran = scene.run(verb, meddle=hook(limits={"RLIMIT_NOFILE": limit}))
    aftermath.check(tally, GROUP + "descriptors", f"{job}: {limit}", scene, ran)


# Streams

STREAMS: dict[str, tuple[int, str]] = {
    "stdout read by nobody": (1, "pipe"),
    "stdout closed": (1, "closed"),
    "stderr read by nobody": (2, "pipe"),
    "stderr closed": (2, "closed"),
    "stderr on a full disk": (2, "/dev/full"),
}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("fault", "form"),
    [
        pytest.param(fault, form, id=f"{fault}-{name}", marks=[pytest.mark.proof] * (at + more not in (0, 4)))
        for at, fault in enumerate(STREAMS)
        for more, (name, form) in enumerate([("tables", list[str]()), ("json", ["--json"])])
    ],
)
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


@pytest.mark.proof
def test_stdout_on_a_full_disk(prepare: Any, tally: Tally) -> None:
    scene, verb = prepare("offline")
    ran = scene.run(verb, meddle=hook(stream={"number": 1, "to": "/dev/full"}))
    assert scene.truth.live() == []
    assert "could not be written to stdout: No space left on device. What was done is kept" in ran.err
    toll = scene.toll()
    tally(GROUP + "streams", "stdout on a full disk", runs=4, **toll._asdict())
    assert (ran.code, *toll[1:]) == (1, 0, 0)
    scene.finish()


# Being asked to stop

LENGTHS = {"roll-up": 68, "offline": 40, "online": 46}  # commands to MongoDB that each job asks at the least
FIRST = [("offline", 33, "SIGINT", 1), ("online", 38, "SIGTERM", 2)]
FEW = [
    *FIRST, ("roll-up", 50, "SIGTERM", 1), ("online", 36, "SIGTERM", 1), ("offline", 37, "SIGHUP", 1),
    ("roll-up", 47, "SIGKILL", 1),
]  # fmt: skip


def _moments() -> list[Any]:
    rng = random.Random(15)
    every = [
        (job, at, rng.choice(["SIGTERM", "SIGINT", "SIGHUP"]), rng.choice([1, 1, 2]))
        for job, most in LENGTHS.items()
        for at in range(1, most + 1)
    ]
    return [
        pytest.param(
            *it,
            id=f"{it[0]}, command {it[1]}, {it[2]} {it[3]}",
            marks=tier(is_first=it in FIRST, is_proof=it in FEW),
        )
        for it in sorted({*every, *FEW})
    ]


@pytest.mark.proof
@pytest.mark.parametrize(("job", "at", "name", "times"), _moments())
def test_signals(
    prepare: Any, client: MongoClient[Any], tally: Tally, job: str, at: int, name: str, times: int
) -> None:
    """Once: the step in hand is finished, the ledger says so, the lease is free. Twice: as a crash."""
    scene, verb = prepare(job)
    number = signal.Signals[name]
    # What was left open keeps the next run waiting: a minute, where nobody says otherwise.
    with set_parameter(client, "transactionLifetimeLimitSeconds", 3):
        ran = scene.run(verb, meddle=hook(at_command={"at": at, "signal": number, "times": times}))
        lease = scene.database["bucketwise_lease"].find_one({"_id": "it"})
        if times == 1 and name != "SIGKILL":
            assert lease is None or lease["holder"] is None
            codes = [130, 0]  # 0: there was nothing left to do
        else:
            codes = [130, -signal.SIGKILL]
        aftermath.check(tally, GROUP + "signals", f"{job}, {at}, {name} {times}", scene, ran, codes=codes)
