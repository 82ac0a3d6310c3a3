"""Writers at full speed on the very buckets that are being archived: each reading is there once, as it was
last acknowledged."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults.scene import OFFLINE, ONLINE, READING, ROLLUP, SAMPLES, SLOTS, START, Scene
from tests.faults.tally import Tally
from tests.faults.written import Written
from tests.jobs.command import ROOT, CommandLine, Meddle

Db = Database[dict[str, Any]]
MODELS = {"slots": SLOTS, "samples": SAMPLES, "reading": READING}
ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
LATE = {"stream": 'late_data = "stream"\n', "scan": 'late_data = "scan"\nrecheck = "200d"\n'}
BUCKETS, WRITERS = 30, 2
SMALL_PIECES: Meddle = ("tests.faults.other_host", {"pieces": 3, "at_once": 12})
DONE, LEFT_SOMETHING = 0, 3


@contextmanager
def writing(
    it: Scene, written: Written, seed: int, again: bool, killed: bool = False, most: int = 1500
) -> Iterator[None]:
    """Writers at work; after the block what they noted is in `written`. `most`: what each of them does."""
    stop = it.folder / "stop"
    notes = [it.folder / f"notes-{number}" for number in range(WRITERS)]
    with ExitStack() as stack:
        processes = []
        for number, path in enumerate(notes):
            orders = {
                "uri": it.uri,
                "database": it.database.name,
                "model": it.policy.model,
                "notes": str(path),
                "stop": str(stop),
                "seed": seed,
                "number": number,
                "writers": WRITERS,
                "buckets": BUCKETS,
                "start": round(START.timestamp()),
                "most": most,
                "again": again,
            }
            command = [sys.executable, "-m", "tests.faults.writer", json.dumps(orders)]
            processes.append(stack.enter_context(subprocess.Popen(command, cwd=ROOT)))
        try:
            while not all(path.exists() and path.stat().st_size for path in notes):
                assert all(process.poll() is None for process in processes)
                time.sleep(0.005)
            yield
        finally:
            stop.touch()
            for process in processes:
                if killed:
                    process.kill()
                code = process.wait(300)
    assert killed or code == 0
    for path in notes:
        written.read(path)


def _tries(seeds: int) -> list[Any]:
    """Model, archive, late, whether `_id`s are taken again, whether writers are killed, and the store."""
    found = []
    for seed in range(seeds):
        for model in MODELS:
            for archive in ARCHIVES:
                for late in LATE:
                    killed = model != "samples" and seed % 3 == 2
                    again = archive == "offline" and not killed and seed % 2 == 0
                    place = "google" if archive == "offline" and seed == 4 else "file"
                    found.append((model, archive, late, seed, again, killed, place))
    return found


SHORT = [
    ("samples", "offline", "scan", 1, False, False, "file"),
    ("samples", "online", "stream", 0, False, False, "file"),
    ("reading", "offline", "stream", 2, False, True, "file"),
    ("slots", "offline", "stream", 0, True, False, "google"),
]


def _named(cases: list[Any], *marks: Any) -> list[Any]:
    return [
        pytest.param(
            *case,
            marks=marks,
            id=f"{case[0]} {case[1]} {case[2]}{', again' if case[4] else ''}{', killed' if case[5] else ''}"
            f"{', google' * (case[6] != 'file')}, seed {case[3]}",
        )
        for case in cases
    ]


@pytest.mark.parametrize(
    ("model", "archive", "late", "seed", "again", "killed", "place"),
    [
        *_named(SHORT, pytest.mark.proof),
        *_named([it for it in _tries(6) if it not in SHORT], pytest.mark.soak),
    ],
)
def test_writers_all_through_the_run(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    bucketwise: CommandLine,
    tally: Tally,
    model: str,
    archive: str,
    late: str,
    seed: int,
    again: bool,
    killed: bool,
    place: str,
) -> None:
    store: Store = request.getfixturevalue(f"{place}_store")
    text = MODELS[model] + ROLLUP + LATE[late] + ARCHIVES[archive]
    it = Scene(tmp_path, database, mongodb_uri, store, bucketwise, text).fill(BUCKETS, 4)
    written = Written(it.truth)
    is_short = (model, archive, late, seed, again, killed, place) in SHORT
    with writing(it, written, seed, again, killed, most=250 if is_short else 1500):
        for _ in range(2):
            ran = it.run(meddle=SMALL_PIECES)
            assert ran.code in (DONE, LEFT_SOMETHING), ran.out + ran.err
    if written.unknown:
        written.found([unit[0] for unit in it.truth.live()] + it.restored())
    written.tell()
    what = f"{model} {archive} {late}" + ", `_id`s again" * again + ", killed" * killed
    tally("writers all through the run", what, runs=6, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)
    assert written.acknowledged > 20 * WRITERS and it.toll().written > BUCKETS
    it.well()
    written.tell()
    it.finish()
    it.audited()
    if not again:
        restored = it.restored()
        assert len(restored) == len(it.truth.units)
        assert written.last_versions() <= set(restored)
