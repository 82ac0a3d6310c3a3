"""The demo: what it invents, that it notices what is wrong, and that it leaves behind what it says."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.demo import acts
from bucketwise.jobs.demo import verb as demo
from bucketwise.jobs.demo.stage import Expected, Invented, Show, Stage, days, difference_of, invent, stage
from tests.jobs.command import ROOT, CommandLine, started

Act = Callable[[Stage], None]
PRESENT = datetime(2026, 3, 30, 5, 30, tzinfo=UTC)
A_THURSDAY = datetime(2026, 11, 5, 6, tzinfo=UTC)
MODELS = ["ticks", "iot", "temperature", "metrics", "sales"]


@pytest.fixture(scope="module")
def invented() -> dict[str, Invented]:
    return invent(PRESENT)


def readings_in(document: dict[str, Any], extra: dict[Any, list[dict[str, Any]]]) -> Counter[Any]:
    """(time, values) of each reading of a document, by plain Python."""

    def ms(at: datetime) -> int:
        return round(at.replace(tzinfo=UTC).timestamp() * 1000)

    if "p" in document:
        return Counter(
            (ms(document["d"]) + int(key) * 1000, (price,)) for key, price in document["p"].items()
        )
    if "samples" in document:
        return Counter((it["time"] * 1000, (float(it["val"]),)) for it in document["samples"])
    if "measurements" in document:
        sold = document["measurements"] + extra.get(document["_id"], [])
        return Counter((ms(it["timestamp"]), (it["amount"],)) for it in sold)
    names = ("celsius", "humidity") if "room" in document else ("cpu", "load")
    return Counter([(ms(document["at"]), tuple(document[name] for name in names))])


@pytest.mark.parametrize("name", MODELS)
def test_documents_hold_the_readings_that_the_columns_say(name: str, invented: dict[str, Invented]) -> None:
    made = invented[name]
    extra = {it["bucket_id"]: it["measurements"] for it in map(bson.decode, made.extra)}
    columns = zip(*(values.tolist() for values in made.values.values()), strict=True)
    chosen = range(0, len(made.documents), max(1, len(made.documents) // 1000))
    wanted: dict[int, Counter[Any]] = {bucket: Counter() for bucket in chosen}
    for bucket, at, values in zip(made.bucket.tolist(), made.time.tolist(), columns, strict=True):
        if bucket in wanted:
            wanted[bucket][at, values] += 1
    for bucket in chosen:
        assert readings_in(bson.decode(made.documents[bucket]), extra) == wanted[bucket]


@pytest.mark.proof
def test_the_same_present_gives_the_same_bytes(invented: dict[str, Invented]) -> None:
    again = invent(PRESENT)
    assert list(again) == MODELS
    for name, made in again.items():
        assert made.documents == invented[name].documents
        assert made.extra == invented[name].extra


def test_readings_end_before_the_present_and_are_no_small_thing(invented: dict[str, Invented]) -> None:
    end = PRESENT.timestamp() * 1000
    assert all(made.time.max() < end for made in invented.values())
    assert sum(len(made.time) for made in invented.values()) > 300_000
    assert len(invented["sales"].extra) > 50
    assert min(len(bson.decode(document)["p"]) for document in invented["ticks"].documents) < 60


def sound() -> dict[str, float]:
    return {
        "count": 3,
        "min": 1.0,
        "max": 4.0,
        "first": 2.0,
        "last": 1.0,
        "sum": 7.0,
        "avg": 7 / 3,
        "p50": 2.0,
    }


@pytest.mark.parametrize("key", sorted(sound()))
def test_a_wrong_summary_is_noticed(key: str) -> None:
    expected = Expected(0, 0, "p", np.array([2.0, 4.0, 1.0]))
    assert difference_of(expected, sound()) is None
    # an ulp where the value must be exact; else more than what is allowed
    slack = {"sum": 1 + 1e-11, "avg": 1 + 1e-11, "p50": 1.02}
    value = sound()[key]
    worse = value * slack[key] if key in slack else math.nextafter(value, math.inf)
    fault = difference_of(expected, sound() | {key: worse})
    assert fault is not None
    assert fault.startswith(f"{key} is ")


def test_days_are_those_of_the_zone_across_a_change_of_the_clock() -> None:
    at = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000
    made = Invented([{}], time=np.array([at, at + 48 * 3_600_000], dtype=np.int64))
    edges = days(made, "Europe/Berlin")
    assert np.diff(edges).tolist() == [24 * 3_600_000, 23 * 3_600_000, 24 * 3_600_000]
    assert edges[0] == datetime(2026, 3, 27, 23, tzinfo=UTC).timestamp() * 1000


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


@pytest.fixture(scope="module")
def acts_up_to() -> Iterator[Callable[[Act], list[Act]]]:
    """Plays the acts up to one, on readings of which a day and a half is archived."""
    left, played = list(acts.ACTS), list[Act]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketwise.jobs.demo.stage.DAYS", 16)
        call = Call("demo", None, (), A_THURSDAY, True, False, True, True, Stop())
        with stage(call, Show(silent=True), keep=False, quiet=True) as it:

            def play(last: Act) -> list[Act]:
                while last not in played:
                    played.append(left.pop(0))
                    played[-1](it)
                return played

            yield play


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize("act", acts.ACTS, ids=lambda it: it.__name__)
def test_each_act_adds_up(acts_up_to: Callable[[Act], list[Act]], act: Act) -> None:
    """It raises where it finds that something does not."""
    assert act in acts_up_to(act)


@pytest.mark.proof
def test_everything_adds_up_and_keep_leaves_it_up(tmp_path: Path, database: Database[dict[str, Any]]) -> None:
    """Also with an environment that names a database of somebody's own: it is not touched."""
    uri = "mongodb://{}:{}/".format(*database.client.address or ("", ""))
    theirs = {"BUCKETWISE_MONGODB_URI": uri, "BUCKETWISE_MONGODB_DATABASE": database.name}
    arguments = ("demo", "--keep", "--json")
    with started(*arguments, cwd=tmp_path, TMPDIR=str(tmp_path), **theirs) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    told = json.loads(out)
    try:
        assert told["failed"] == []
        assert told["checks"] > 5_000
        assert [it["policy"] for it in told["policies"]] == MODELS
        assert database.list_collection_names() == []
        with MongoClient[dict[str, Any]](told["uri"]) as client:
            # Weekdays, 3 to 27 March, of the series that was not erased.
            assert client["demo"]["ticks_daily"].count_documents({"symbol": "BOLT"}) == 19
            assert client["demo"]["ticks_daily"].count_documents({}) == 19
        with started("status", "--json", "-c", told["config"], cwd=tmp_path) as status:
            assert json.loads(status.communicate(timeout=300)[0])["exit_code"] == 0
    finally:
        os.kill(told["pid"], signal.SIGTERM)
    await_end(told["pid"])


#: The demo as a process of its own, on the readings of few days, some of which are archived.
SHORT = """
import runpy, sys
from bucketwise.jobs.demo import stage
stage.DAYS = 20
sys.argv = ["bucketwise", "demo"]
runpy.run_module("bucketwise", run_name="__main__", alter_sys=True)
"""


@pytest.mark.proof
@pytest.mark.process
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SHORT],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "Load" not in process.stdout.readline():
            assert process.poll() is None
        (folder,) = tmp_path.glob("bucketwise-demo-*")
        mongod = int((folder / "mongod" / "mongod.lock").read_text())
        assert alive(mongod)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert not alive(mongod)


@pytest.mark.proof
@pytest.mark.process
def test_what_does_not_add_up_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault of the suite is at hand to be shown, so the acts are replaced by one that finds a fault."""

    def fault(stage: Stage) -> None:
        stage.show.act("Load", "")
        stage.show.equal("readings", 1, 2)
        stage.show.verdict("All is well")

    def never(_stage: Stage) -> None:
        raise AssertionError("nothing is played after a fault")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(acts, "ACTS", (fault, never))
    call = Call("demo", None, (), PRESENT, True, False, True, True, Stop())
    report = demo.play(call, keep=False)
    assert report.exit_code == 1
    assert report.as_dict()["failed"] == ["readings: 1, and it should be 2"]
    assert report.error == "the demo does not add up: readings: 1, and it should be 2"


def test_the_demo_takes_no_policy_file_of_others(tmp_path: Path, bucketwise: CommandLine) -> None:
    ran = bucketwise("demo", "--config", "x.toml", cwd=tmp_path, TMPDIR=str(tmp_path))
    assert ran.code == 2
    assert "--config" in ran.err
    assert list(tmp_path.iterdir()) == []
