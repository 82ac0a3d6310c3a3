"""Redis has the newest summaries of each series, as MongoDB has them, after whatever happened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from bucketwise.config.errors import InterruptedRun
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.turn import Step, StepResult, Turn
from bucketwise.jobs.publish import publisher as publishing
from bucketwise.jobs.publish.publisher import Link
from bucketwise.jobs.rollup import ROLLUP
from tests.conftest import free_port
from tests.jobs.place import Db
from tests.jobs.publishing import HOUR, START, Stage
from tests.redis_servers import RedisServer, redis_server

_WRITES = {"zadd", "hset", "del", "unlink", "sadd", "pexpire", "zremrangebyscore", "multi", "exec", "srem"}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as it:
        yield it


@pytest.fixture
def stage(database: Db, mongodb_uri: str, server: RedisServer) -> Stage:
    """Six hours of three series; of one, the values overflow a sum."""
    server.client.flushall()
    it = Stage(database, mongodb_uri, server.client, server.url)
    for hour in range(6):
        it.add("MDB", hour, 50.0 + hour, 51.5)
        it.add("7", hour, 1e308, 1e308, exchange="X:{1}")
        it.add(7, 30 * hour, 0.1, 0.2, float("nan"))
    return it


def asked(server: RedisServer) -> dict[str, int]:
    """How often each command was called since the last look."""
    found = {
        name.removeprefix("cmdstat_"): it["calls"] for name, it in server.client.info("commandstats").items()
    }
    server.client.config_resetstat()
    return found


def test_it_holds_what_mongodb_has(stage: Stage) -> None:
    assert stage.well() == 9
    assert stage.held() == stage.expected()
    assert stage.client.zcard("bw:ticks:hourly:{MDB:NYSE}") == 3
    assert stage.behind() == []
    last = stage.client.hgetall("bw:ticks:last:{MDB:NYSE}")
    assert (last["p.last"], last["count"], last["level"]) == ("51.5", "2", "hourly")
    assert stage.client.hget('bw:ticks:last:{"7":X%3A%7B1%7D}', "p.sum") == "inf"
    assert '"sum":"inf"' in stage.client.zrange('bw:ticks:daily:{"7":X%3A%7B1%7D}', 0, 0)[0]


@pytest.mark.proof
def test_only_what_has_changed_is_written(stage: Stage, server: RedisServer) -> None:
    stage.well()
    asked(server)
    stage.add("MDB", 5, 99.0)  # late, in the last hour
    assert stage.well() == 3
    assert stage.held() == stage.expected()
    found = asked(server)
    assert (found["zadd"], found["zremrangebyscore"], found["exec"]) == (3, 2, 1)  # one of them: `expires`
    stage.add("MDB", 1, 99.0)  # an hour that was pushed out, of a day that is there
    stage.add("MDB", 90, 7.0)  # newer than all
    stage.well()
    assert stage.held() == stage.expected()
    assert stage.behind() == []


@pytest.mark.proof
def test_a_run_that_its_window_ends_publishes_what_it_wrote(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one what has changed since; one that takes too long goes on in the next."""
    stage.well()
    late, steady = [0.0], clock.steady
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: steady() + late[0])

    def end(turn: Turn) -> StepResult:
        late[0] += 3600
        turn.context.check()
        raise AssertionError("the run went on")

    windowed = replace(stage, window="07:00-08:30")  # a run begins at 08:00
    for seconds, keys in ((0, {"keys": 3}), (90, None)):
        late[0] = 0.0
        windowed.add("MDB", 5, 99.0)
        if seconds:
            monkeypatch.setattr(Link, "ask", _slow(late, seconds))
        result, _ = windowed.run(steps=(ROLLUP, Step("end", end)))
        assert (result.exit_code, result.stopped) == (0, "window over")
        assert result.body.get("publish") == keys
        assert (windowed.held() == windowed.expected()) == (keys is not None)
    assert stage.behind() != []
    late[0] = 0.0
    assert stage.well() == 9
    assert stage.held() == stage.expected()


def _slow(late: list[float], seconds: float) -> Any:
    ask = Link.ask

    def slowly(link: Link, commands: Any) -> Any:
        late[0] += seconds
        return ask(link, commands)

    return slowly


def test_what_lies_under_another_prefix_goes(stage: Stage) -> None:
    """What somebody else wrote there stays, and so does all of it where it is somebody else's."""
    stage.saying(secondary="exchange").well()
    stage.client.set("bw:ticks:theirs", 1)
    stage.client.set("bw:iot:last:{7}", 1)
    other = stage.saying(prefix="b2")
    assert other.behind() == ["the settings have changed since: run `bucketwise publish`"]
    assert other.publish().body == {"keys": 9}
    assert sorted(stage.client.keys("bw:*")) == ["bw:iot:last:{7}", "bw:ticks:theirs"]
    stage.client.hset("b2:ticks:meta", "owner", "somebody")
    assert stage.saying(prefix="b3").publish().body == {"keys": 9}
    assert len(stage.client.keys("b2:*")) == 12


@pytest.mark.proof
def test_nothing_to_do_is_nothing_written(stage: Stage, server: RedisServer) -> None:
    def commands() -> tuple[Any, dict[str, int]]:
        _, counts = stage.run()
        return counts.commands, asked(server)

    stage.well()
    asked(server)
    mongodb, found = commands()
    assert not _WRITES & set(found)
    assert found["hmget"] == 1
    assert sum(found.values()) <= 10, found
    stage.said.clear()
    for hour in range(40):
        stage.add("MDB", hour, 1.0)
    stage.said.update(latest_hours=3, latest_days=2)
    stage.well()
    asked(server)
    assert commands() == (mongodb, found)


@pytest.mark.proof
def test_what_is_gone_from_mongodb_goes(stage: Stage) -> None:
    stage.well()
    stage.database["ticks"].delete_many({"symbol": "MDB", "d": {"$gte": START + 4 * HOUR}})
    stage.database["ticks"].update_many({"symbol": 7}, {"$set": {"symbol": "MDB"}})
    stage.well()
    assert stage.held() == stage.expected()
    assert stage.client.smembers("bw:ticks:series") == {"MDB:NYSE", '"7":X%3A%7B1%7D'}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("what", ["hourly:{MDB:NYSE}", "meta", "*"])
def test_what_redis_lost_is_written_again(stage: Stage, what: str) -> None:
    """Where one key was evicted, that can't be seen: then `--all` does."""
    stage.well()
    stage.client.delete(*stage.client.keys(f"bw:ticks:{what}"))
    if what == "*":
        assert stage.behind() == [
            "Redis has lost keys, or was restored from a backup: run `bucketwise publish`"
        ]
        assert stage.well() == 9
    elif what == "meta":
        assert "were not written for this database" in str(stage.publish().error)
        stage.client.flushall()
    assert stage.publish(everything=True).body == {"keys": 9}
    assert stage.held() == stage.expected()
    assert stage.behind() == []


def test_an_older_redis_is_brought_up_to_date(stage: Stage) -> None:
    stage.well()
    number = stage.client.hget("bw:ticks:meta", "number")
    stage.add("MDB", 8, 99.0)
    stage.well()
    stage.client.hset("bw:ticks:meta", "number", number)
    assert stage.behind() != []
    assert stage.well() == 9
    assert stage.held() == stage.expected()


def test_everything_is_written_again_and_the_rest_removed(stage: Stage) -> None:
    stage.well()
    stage.database["hourly"].delete_many({"symbol": "MDB"})
    stage.database["daily"].delete_many({"symbol": "MDB"})
    stage.database["hourly"].delete_many({"symbol": 7, "start": {"$gte": START + 120 * HOUR}})
    assert stage.held() != stage.expected()
    assert stage.publish().body == {"keys": 0}  # no run has told of it
    assert stage.publish(everything=True).body == {"keys": 9}
    assert stage.held() == stage.expected()
    assert stage.publish(everything=True).body == {"keys": 6}


@pytest.mark.proof
def test_settings_may_change(stage: Stage) -> None:
    stage.well()
    for said in (
        {"secondary": "exchange"},
        {"latest_hours": 1, "latest_days": None},
        {"latest_hours": None, "latest_days": None, "secondary": "exchange"},
        {"latest_hours": 1000, "latest_days": 10},
        {},
    ):
        other = stage.saying(**said)
        assert other.behind() == ["the settings have changed since: run `bucketwise publish`"], said
        other.well()
        assert other.held() == other.expected(), said


def test_a_series_that_went_in_its_time_comes_back_whole(stage: Stage) -> None:
    stage.well()
    for key in stage.client.keys("bw:ticks:*:{MDB:NYSE}"):
        stage.client.pexpire(key, 1)
    stage.client.zadd("bw:ticks:expires", {"MDB:NYSE": 1})
    stage.add(7, 160, 1.0)
    stage.well()
    assert stage.client.smembers("bw:ticks:series") == {"7:NYSE", '"7":X%3A%7B1%7D'}
    stage.add("MDB", 161, 1.0)
    stage.well()
    assert stage.held() == stage.expected()


def test_what_all_has_gone_in_its_time_stays_away(stage: Stage, server: RedisServer) -> None:
    stage.well()
    server.client.flushall()
    progress = stage.database["bucketwise_progress"]
    progress.update_one({"_id": {"publish": "ticks"}}, {"$set": {"expires": START - 9000 * HOUR}})
    assert stage.behind() == []
    assert stage.well() == 0
    stage.add("MDB", 8, 99.0)
    assert stage.well() == 3


def test_redis_was_down_meanwhile(stage: Stage) -> None:
    stage.well()
    down = Stage(stage.database, stage.uri, stage.client, "redis://127.0.0.1:1/0")
    stage.add("MDB", 8, 99.0)
    stage.add("MDB", 9, 99.0)
    for _ in range(2):
        result, _ = down.run()
        assert (result.exit_code, result.error) == (0, None)
        assert set(result.body["publish"]) == {"error"}
        assert "Redis at redis://127.0.0.1:1/0: " in result.body["publish"]["error"]
    assert "refused" in down.behind()[0]
    assert "not published" in stage.behind()[0]
    assert stage.publish().body == {"keys": 9}
    assert stage.held() == stage.expected()


@pytest.mark.proof
@pytest.mark.parametrize(
    "is_sent", [pytest.param(True, id="after"), pytest.param(False, marks=pytest.mark.proof, id="before")]
)
def test_a_run_that_is_cut_off_is_made_up_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """Before or after each of its requests, of all series or of what has changed."""
    ask, asked = Link.ask, 0

    def cut(self: Link, commands: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == at:
            if is_sent:
                ask(self, commands)
            raise InterruptedRun("asked to stop")
        return ask(self, commands)

    at, hour = 0, 6
    while asked >= at:
        at, asked, hour = at + 1, 0, hour + 1
        stage.add("MDB", hour % 9, float(hour))
        with monkeypatch.context() as patch:
            patch.setattr(Link, "ask", cut)
            stage.run()
        if at % 2:  # the other half, in the next round
            stage.add(7, hour, 1.0)
            stage.well()
            assert stage.held() == stage.expected(), at
            assert stage.behind() == []
    assert at > 5


def test_a_publication_goes_on_where_it_stopped(
    stage: Stage, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written by then is not written again."""
    ask = Link.ask

    def cut(self: Link, commands: Any) -> Any:
        replies = ask(self, commands)
        if ("MULTI",) in commands:
            raise InterruptedRun("asked to stop")
        return replies

    monkeypatch.setattr(publishing, "SERIES", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Link, "ask", cut)
        assert stage.run()[0].exit_code == 130
    assert len(stage.client.keys("bw:ticks:last:*")) == 2
    owner = stage.client.hget("bw:ticks:meta", "owner")
    stage.client.hset("bw:ticks:meta", "owner", "another")
    assert "were not written for this database" in stage.run()[0].body["publish"]["error"]
    stage.client.hset("bw:ticks:meta", "owner", owner)
    asked(server)
    assert stage.well() == 3
    assert asked(server)["exec"] == 1
    assert stage.held() == stage.expected()


@pytest.mark.parametrize(
    ("everything", "apart"),
    [
        pytest.param(False, 2, id="changed"),
        *(
            pytest.param(it, 1, marks=pytest.mark.proof, id="all" if it else "changed, each")
            for it in (True, False)
        ),
    ],
)
def test_a_redis_that_is_emptied_meanwhile_is_written_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, everything: bool, apart: int
) -> None:
    """Before or after each of its requests: at the latest the next run writes all of it, and no key of ours
    passes for another's."""
    monkeypatch.setattr(publishing, "SERIES", 1)
    ask, asked, at, told = Link.ask, 0, 0, 0

    def emptied(self: Link, commands: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == at:
            stage.client.flushall()
        return ask(self, commands)

    while asked >= at:
        stage.well()
        for hour in (8, 9):
            stage.add(("MDB", 7)[hour - 8], hour, float(at))
        at, asked = at + apart, 0
        with monkeypatch.context() as patch:
            patch.setattr(Link, "ask", emptied)
            result = stage.publish(everything=True) if everything else stage.run()[0]
        is_whole = stage.held() == stage.expected()
        error = result.error if everything else result.body["publish"].get("error")
        told += "was emptied" in (error or "")
        assert is_whole or stage.behind() != [], at
        assert is_whole or error, at
        assert stage.publish(everything=at // apart % 2 == 0).exit_code == 0, at
        assert stage.held() == stage.expected(), at
        assert stage.behind() == [], at
    assert at > 5
    assert told > 2 // apart


def test_keys_that_an_emptied_redis_got_without_their_owner_are_taken_over(stage: Stage) -> None:
    """As earlier versions left them."""
    stage.well()
    stage.client.hdel("bw:ticks:meta", "owner", "layout")
    stage.client.delete("bw:ticks:last:{MDB:NYSE}")
    assert stage.behind() != []
    assert stage.well() == 9
    assert stage.held() == stage.expected()


@pytest.mark.proof
def test_a_reader_never_sees_half(stage: Stage) -> None:
    stage.well()
    faults: list[Any] = []
    looks = 0
    done = threading.Event()

    def read() -> None:
        nonlocal looks
        with redis.Redis.from_url(stage.url, decode_responses=True) as client:
            while not done.is_set():
                asked = client.pipeline(transaction=True).hgetall("bw:ticks:last:{MDB:NYSE}")
                last, hours = asked.zrange("bw:ticks:hourly:{MDB:NYSE}", 0, -1, withscores=True).execute()
                looks += 1
                if len(hours) != 3 or hours[-1][1] != int(last.get("start_ms", -1)) or "p.avg" not in last:
                    faults.append((last, hours))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for hour in range(6, 12):
            stage.add("MDB", hour, float(hour))
            stage.well()
            stage.publish(everything=True)
    finally:
        done.set()
        reader.join()
    assert looks > 20
    assert faults == []


@pytest.mark.proof
def test_all_keys_of_a_series_are_in_one_slot(database: Db, mongodb_uri: str, tmp_path: Path) -> None:
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--dir", str(tmp_path))
    with redis_server(*cluster) as it:
        it.client.cluster("ADDSLOTSRANGE", 0, 16383)
        stage = Stage(database, mongodb_uri, it.client, it.url, {"latest_hours": 3, "latest_days": 2})
        stage.add("MDB", 1, 2.5)
        stage.add("{}", 1, 2.5)
        while it.client.cluster("info")["cluster_state"] != "ok":
            pass
        assert stage.well() == 6
        slots = {it.client.cluster("keyslot", key) for key in it.client.keys("*{MDB:NYSE}")}
        assert len(slots) == 1
        assert stage.publish(everything=True).body == {"keys": 6}
