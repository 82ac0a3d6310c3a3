"""`status --failed`: what has to be given again, and the command, which does what was left."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from bucketwise.jobs.core import ledger
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.machine import this_run
from tests.jobs.place import NOW, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
SINCE = ("--since", "2018-06-30", "--until", "2018-07-01")


def failed(place: Place, policy: str = "ticks", *arguments: str) -> list[Document]:
    ran = place("status", "--failed", "--json", *arguments)
    assert ran.code == 0, ran
    (found,) = [it for it in ran.json["policies"] if it["policy"] == policy]
    assert found.keys() == {"policy", "exit_code", "failed"}
    listed: list[Document] = found["failed"]
    return listed


def commands(place: Place, policy: str = "ticks") -> list[str]:
    return [it["command"] for it in failed(place, policy)]


def broken(place: Place, *command: str) -> None:
    """Fails: a view is where summaries go."""
    place.database.drop_collection("ticks_daily")
    place.database.command("create", "ticks_daily", viewOn="iot", pipeline=[])
    assert place(*command).code == 1
    place.database.drop_collection("ticks_daily")


def killed(place: Place, *command: str, at: str = "make summary") -> None:
    given = {"log": str(place.folder / "log"), "folder": str(place.folder), "at": at}
    hooks = ("tests.faults.crashes.points", given)
    ran = place.command.meddled(hooks, *command, "--now", NOW, cwd=place.folder, MONGODB_URI=place.uri)
    assert ran.code == -9


def repeat(place: Place, command: str) -> None:
    """Types it, but for the clock."""
    name, *arguments = shlex.split(command)
    assert name == "bucketwise"
    assert place(*arguments).code == 0


@pytest.mark.proof
def test_nothing_failed(place: Place) -> None:
    assert failed(place) == failed(place, "iot") == []
    assert place("run").code == 0
    assert failed(place) == failed(place, "iot") == []
    assert place("status", "--failed").out == "2 policies: no run has to be repeated\n"


def test_what_was_refused_is_not_to_be_given_again(place: Place) -> None:
    """It would be refused again, and what was meant has other options."""
    assert place("restore", "-p", "ticks", "--to", "ticks_hourly").code == 2
    assert failed(place) == []


@pytest.mark.proof
def test_what_failed_is_given_again(place: Place) -> None:
    broken(place, "run")
    (it,) = failed(place)
    assert it.keys() == {"verb", "started", "outcome", "error", "command"}
    assert (it["verb"], it["outcome"], "ticks_daily" in it["error"]) == ("run", "failed", True)
    assert it["command"] == "bucketwise run --policy ticks"
    assert failed(place, "iot") == []
    told = place("status", "--failed").out
    assert f"ticks: run of {it['started']}: failed: " in told and f"    {it['command']}\n" in told
    repeat(place, it["command"])
    assert failed(place) == []
    assert place("audit", "-p", "ticks").code == 0


def test_one_that_was_killed(place: Place) -> None:
    killed(place, "rollup", "-p", "ticks", *SINCE, "--slices", "2h", "--workers", "1")
    (it,) = failed(place)
    assert (it["verb"], it["outcome"], it["error"]) == ("rollup", "died", None)
    expected = f"bucketwise rollup --policy ticks {shlex.join(SINCE)} --slices 2h --workers 1"
    assert it["command"] == expected
    place("archive", "-p", "ticks")  # it marks the one before as dead
    assert [it["command"] for it in failed(place) if it["verb"] == "rollup"] == [expected]
    repeat(place, expected)
    assert commands(place) == []


@after("run")
def test_one_that_was_killed_while_it_read_the_changes_of_all(place: Place) -> None:
    killed(place, "run", at="mongo aggregate stream")
    assert ([it["outcome"] for it in failed(place)], failed(place, "iot")) == (["died"], [])


@pytest.mark.proof
def test_a_range_is_not_done_by_another_one(place: Place) -> None:
    broken(place, "rollup", *SINCE)
    broken(place, "rollup")
    with_range, plain = (f"bucketwise rollup --policy ticks{it}" for it in (f" {shlex.join(SINCE)}", ""))
    assert commands(place) == [plain, with_range]
    place("rollup")
    assert commands(place) == [with_range]
    broken(place, "rollup", *SINCE)
    assert commands(place) == [with_range]
    repeat(place, with_range)
    assert commands(place) == []


@pytest.mark.proof
def test_a_run_does_the_roll_up_too(place: Place) -> None:
    broken(place, "rollup")
    broken(place, "run")
    assert [shlex.split(it)[1] for it in commands(place)] == ["run", "rollup"]
    place("run")
    assert commands(place) == []


def test_one_that_is_at_work_is_not_listed(place: Place) -> None:
    book = Ledger(place.database)
    with Lease(place.database, "ticks") as held:
        entry = book.start(this_run("r", None), "run", "ticks", START, held)
        assert failed(place) == []
        book.finish(entry, 5, "halted", {}, "a copy differs")
    assert [it["outcome"] for it in failed(place)] == ["halted"]


def test_one_that_slept_closes_none_that_came_after_it(place: Place) -> None:
    """It ends when another has taken the lease, and failed."""
    book = Ledger(place.database)
    with Lease(place.database, "ticks") as held:
        slept = book.start(this_run("r1", None), "run", "ticks", START, held)
    with Lease(place.database, "ticks") as held:
        book.finish(book.start(this_run("r2", None), "run", "ticks", START, held), 1, "failed", {}, "why")
    book.finish(slept, 0, "done", {"rollup": {"readings": 1}}, None)
    assert [it["error"] for it in failed(place)] == ["why"]


@pytest.mark.proof
def test_the_same_policy_file_is_named(place: Place) -> None:
    broken(place, "run")
    elsewhere = place.folder / "my policies.toml"
    place.config.rename(elsewhere)
    (it,) = failed(place, "ticks", "--config", elsewhere.name)
    assert it["command"] == "bucketwise run --config 'my policies.toml' --policy ticks"
    repeat(place, it["command"])


@after("run")
def test_series_are_not_kept(place: Place) -> None:
    """An erasure would have to find them."""
    (part,) = (place.folder / "store/ticks/data").rglob("*.parquet")
    part.write_bytes(b"x")
    assert place("restore", "-p", "ticks", "--to", "back", "--series", "symbol=MDB", "--yes").code == 5
    (it,) = failed(place)
    assert (it["verb"], it["outcome"], it["command"]) == ("restore", "halted", None)
    assert "repeat it as it was given" in place("status", "--failed").out
    assert "MDB" not in str(list(place.database[ledger.COLLECTION].find()))


@pytest.mark.proof
def test_a_long_history_costs_nothing(place: Place) -> None:
    broken(place, "run")
    place("rollup")
    entry = place.database[ledger.COLLECTION].find_one({"policy": "ticks"}) or {}
    assert entry.pop("_id")
    place.database[ledger.COLLECTION].insert_many(
        [{**entry, "fence": -n, "open": False} for n in range(3000)]
    )

    def looked_at() -> int:
        status = place.database.command("serverStatus")["metrics"]["queryExecutor"]
        return int(status["scannedObjects"] + status["scanned"])

    before = looked_at()
    assert len(failed(place)) == 1
    assert looked_at() - before < 200
