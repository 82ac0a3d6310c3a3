"""A large day becomes one commit, and nobody needs more memory for it than for a small one."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.jobs.place import START

Document = dict[str, Any]
HOUR = timedelta(hours=1)
LATE = "2018-09-01T00:00:00Z"
#: A process of little memory waits for the command: a child counts what its parent had when it began.
MEASURED = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:]).check_returncode()"
MEASURED += "; print('peak', r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
#: What a command imports that reads an archive.
PROGRAM = "from bucketwise.archivers.format import parquet; from bucketwise.jobs import restore, verify"
POLICY = """
[mongodb]
uri = "{uri}"
database = "{database}"
[store]
url = "file://{folder}/store"
[work]
memory = "{memory}"
[policies.r]
collection = "r"
model = "slots"
time_field = "t"
series_fields = ["s"]
value_fields = ["v"]
slot = "minute"
[policies.r.archive]
to = "offline"
after = "30d"
compact = {{ after = "forever" }}
"""
log = logging.getLogger(__name__)


def written_and_archived(place: Path, database: Database[Document], readings: int) -> None:
    """A day with a document of 60 readings for each series and hour, archived hour by hour."""
    (place / "store").mkdir()
    database["r"].create_index("t")
    for hour in range(24):
        documents = [
            {
                "t": START + hour * HOUR,
                "s": f"sensor{n:05}",
                "v": {str(m): (n * m % 97) / 4 for m in range(60)},
            }
            for n in range(readings // 60 // 24)
        ]
        database["r"].insert_many(documents)
    for hour in range(2, 26):
        run(place, "archive", START + timedelta(days=30) + hour * HOUR)


def run(place: Path, verb: str, now: datetime | str, *options: str) -> tuple[int, Document]:
    """Returns the peak memory of a command in MB, and what it says of the policy."""
    at = now if isinstance(now, str) else f"{now:%Y-%m-%dT%H:%M:%SZ}"
    policy = str(place / "policy.toml")
    peak, out = measured("-m", "bucketwise", verb, "-c", policy, "--json", "--now", at, *options)
    return peak, json.loads(out)["policies"][0]


def measured(*arguments: str) -> tuple[int, str]:
    """Returns the peak memory of a process of Python in MB, and what it prints."""
    command = [sys.executable, "-c", MEASURED, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = re.search(r"peak (\d+)", done.stderr)
    assert peak is not None
    return int(peak[1]) // 1024, done.stdout


@pytest.mark.soak
@pytest.mark.parametrize(("readings", "memory"), [(2_000_000, "50MB"), (5_000_000, "400MB")])
def test_what_a_large_day_takes(
    database: Database[Document], mongodb_uri: str, tmp_path: Path, readings: int, memory: str
) -> None:
    policy = POLICY.format(uri=mongodb_uri, database=database.name, folder=tmp_path, memory=memory)
    (tmp_path / "policy.toml").write_text(policy)
    written_and_archived(tmp_path, database, readings)
    written = readings // 60 // 24 * 24 * 60
    peaks = {}
    peaks["the program"], _ = measured("-c", PROGRAM)
    peaks["compact"], merged = run(tmp_path, "compact", LATE)
    assert merged["commits"] > 20
    assert (merged["into"], merged["buckets"]) == (1, written // 60)
    peaks["verify"], verified = run(tmp_path, "verify", LATE)
    assert (verified["readings"], verified["bad"]) == (written, 0)
    peaks["audit"], _ = run(tmp_path, "audit", LATE)
    peaks["restore"], restored = run(tmp_path, "restore", LATE, "--to", "back")
    assert restored["readings"] == written
    *_, last = sorted((tmp_path / "store/r/meta/manifests").iterdir())
    sections = len(json.loads(last.read_bytes())["sections"])
    log.info("%d readings, %s: %d sections, MB %s", readings, memory, sections, peaks)
    assert sections > 4
    most = int(memory.removesuffix("MB")) * 3 / 2  # all of the day takes many times that
    assert all(peak - peaks["the program"] <= most for peak in peaks.values()), peaks
