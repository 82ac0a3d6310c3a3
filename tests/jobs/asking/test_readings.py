"""`bucketwise readings` as a process: where readings go, and what is told of those that don't."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.jobs.command import ROOT, CommandLine
from tests.jobs.place import START, Place
from tests.jobs.states import States, after

#: Two of the three hours of ticks have expired.
MIDWAY = "2018-07-30T02:00:00Z"
ALL = [
    ("MDB", START + timedelta(minutes=minute, seconds=second), 50 + second / 8)
    for minute in range(180)
    for second in range(60)
]


def parsed(text: str) -> list[tuple[str, datetime, float]]:
    header, *lines = csv.reader(io.StringIO(text))
    assert header == ["symbol", "time", "p"]
    return [(symbol, datetime.fromisoformat(at), float(price)) for symbol, at, price in lines]


def call(place: Place, *arguments: str, pipe: str = "") -> subprocess.CompletedProcess[bytes]:
    """`bucketwise readings -p ticks … | pipe`, as bash runs it; its own exit code, not that of the pipe."""
    command = (sys.executable, "-m", "bucketwise", "readings", "-p", "ticks", *arguments)
    line = " ".join(f"'{it}'" for it in command)
    return subprocess.run(
        ["bash", "-c", f"{line} {pipe}; exit ${{PIPESTATUS[0]}}"],
        cwd=place.folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MONGODB_URI": place.uri},
        capture_output=True,
        check=False,
    )


@pytest.fixture
def mixed(states: States) -> Place:
    """Some ticks are archived, some live."""
    place = states.at(f"run --now {MIDWAY}")
    assert place.database.ticks.count_documents({}) == 60
    return place


@pytest.mark.proof
def test_live_and_archived_readings_are_one(mixed: Place) -> None:
    before = mixed.everything()
    ran = mixed("readings", "-p", "ticks")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == ["symbol,time,p", "MDB,2018-06-30T00:00:00.000Z,50.0"]
    assert parsed(ran.out) == ALL
    assert mixed.everything() == before
    span = ("--since", "2018-06-30T01:59:59Z", "--until", "2018-06-30T02:00:01Z")
    ran = mixed("readings", "-p", "ticks", "--series", "symbol=MDB", *span, "--format", "json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"symbol": "MDB", "time": "2018-06-30T01:59:59.000Z", "p": 57.375},
        {"symbol": "MDB", "time": "2018-06-30T02:00:00.000Z", "p": 50.0},
    ]


@pytest.mark.proof
@after(f"run --now {MIDWAY}")
def test_the_online_archive_too(place: Place) -> None:
    assert place.database.iot.count_documents({}) == 6
    ran = place("readings", "-p", "iot")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "sensor,time,t",
        *(f"7,2018-06-30T0{minute // 60}:{minute % 60:02}:00.000Z,20.5" for minute in range(0, 180, 10)),
    ]


def test_a_file_appears_once_it_is_whole(mixed: Place) -> None:
    path = mixed.folder / "out" / "ticks.parquet"
    path.parent.mkdir()
    ran = mixed("readings", "-p", "ticks", "--format", "parquet", "--output", "out/ticks.parquet", "--json")
    assert ran.code == 0
    body = ran.policy("ticks")
    assert (body["readings"], body["format"], body["output"]) == (10_800, "parquet", "out/ticks.parquet")
    assert body["quarantined"] == 0
    table: Any = pq.read_table(path).to_pydict()
    assert list(zip(table["symbol"], table["time"], table["p"], strict=True)) == ALL
    part = next((mixed.folder / "store").rglob("*.parquet"))
    part.unlink()
    ran = mixed("readings", "-p", "ticks", "--output", "out/ticks.csv")
    assert ran.code == 5
    assert "missing" in ran.err
    assert [it.name for it in path.parent.iterdir()] == ["ticks.parquet"]


def test_people_are_told_of_the_file(mixed: Place) -> None:
    ran = mixed("readings", "-p", "ticks", "-o", "ticks.csv")
    assert ran.code == 0
    assert "10,800" in ran.out
    assert "ticks.csv" in ran.out
    assert parsed((mixed.folder / "ticks.csv").read_text()) == ALL


def test_quarantined_buckets_are_told_beside_the_readings(mixed: Place) -> None:
    mixed.database.ticks.insert_one({"_id": "bad", "symbol": "MDB", "d": START, "p": {"60": 1.0}})
    ran = mixed("readings", "-p", "ticks")
    assert ran.code == 3
    assert parsed(ran.out) == ALL
    assert 'quarantined, and left out: _id "bad", p.60:' in ran.err
    told = mixed("readings", "-p", "ticks", "--output", "ticks.csv", "--json").policy("ticks")
    assert (told["quarantined"], [it["id"] for it in told["quarantine"]]) == (1, ["bad"])
    assert told["readings"] == len(ALL)


@pytest.mark.proof
@pytest.mark.parametrize("form", ["csv", pytest.param("json", marks=pytest.mark.proof), "parquet"])
def test_a_closed_pipe_ends_it_quietly(mixed: Place, form: str) -> None:
    ran = call(mixed, "--format", form, "--quiet", pipe="| head -c 20")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(ran.stdout) == 20


@pytest.mark.proof
def test_parquet_goes_through_a_pipe(mixed: Place) -> None:
    ran = call(mixed, "--format", "parquet", "--quiet", pipe="| cat")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert pq.read_table(io.BytesIO(ran.stdout)).num_rows == len(ALL)


@pytest.mark.proof
def test_a_terminal_gets_no_parquet(mixed: Place) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bucketwise", "readings", "-p", "ticks", "--format", "parquet"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MONGODB_URI": mixed.uri}
    ran = subprocess.run(
        command,
        cwd=mixed.folder,
        env=environment,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    assert ran.returncode == 2
    assert "a terminal can't show it" in ran.stderr


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--json"], ["--json", "--output", "--format json"]),
        (["--format", "xml"], ["--format", "csv", "parquet"]),
        (["--output", "nowhere/x.csv"], ["--output nowhere/x.csv", "no folder nowhere"]),
        (["--output", "."], ["--output .", "that is not a file"]),
        (["--output", "/dev/null"], ["--output /dev/null", "that is not a file"]),
        (["--since", "2018-07-01", "--until", "2018-07-01"], ["not before"]),
        (["--series", "MDB"], ["--series MDB", "FIELD=VALUE"]),
    ],
    ids=" ".join,
)
def test_a_bad_question_is_refused_before_anything(
    untouched: Place, bucketwise: CommandLine, arguments: list[str], fragments: list[str]
) -> None:
    uri = untouched.uri
    ran = bucketwise("readings", "-p", "ticks", *arguments, cwd=untouched.folder, MONGODB_URI=uri)
    assert (ran.code, ran.connected) == (2, [])
    for fragment in fragments:
        assert fragment in ran.err


def test_it_wants_one_policy_and_known_series(place: Place) -> None:
    ran = place("readings")
    assert ran.code == 2
    assert "readings works on one policy" in ran.err
    ran = place("readings", "-p", "ticks", "--series", "symbl=MDB")
    assert (ran.code, ran.out) == (2, "")
    assert "it has symbol" in ran.err
    assert not [path for path in Path(place.folder).iterdir() if path.suffix == ".part"]


@pytest.mark.proof
@after("run")
def test_an_even_grid(place: Place) -> None:
    span = ("--since", "2018-06-30T02:59:58.5Z", "--until", "2018-06-30T03:00:01Z")
    grid = ("readings", "-p", "ticks", *span, "--every", "1s")
    lines = place(*grid, "--fill", "linear").out.splitlines()
    assert lines[0] == "symbol,time,p,filled"
    assert lines[1:] == [
        "MDB,2018-06-30T02:59:58.500Z,57.3125,true",
        "MDB,2018-06-30T02:59:59.500Z,,true",
        "MDB,2018-06-30T03:00:00.500Z,,true",
    ]
    lines = place(*grid, "--fill", "previous").out.splitlines()
    assert [line.split(",")[2] for line in lines[1:]] == ["57.25", "57.375", "57.375"]
    ran = place(*grid[:-2], "--every", "500s", "--fill", "null", "--json", "-o", "out.csv")
    assert (ran.code, ran.policy("ticks")["readings"]) == (0, 1), "the same rows, whatever fills them"
    for options, fragment in {("--every", "1s"): "--fill", ("--fill", "null"): "--every"}.items():
        refused = place("readings", "-p", "ticks", *span, *options)
        assert (refused.code, fragment in refused.err) == (2, True)
    refused = place("readings", "-p", "ticks", "--every", "1s", "--fill", "null")
    assert (refused.code, "--since and --until" in refused.err) == (2, True)
