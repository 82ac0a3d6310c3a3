"""Runs are gentle on the cluster, and work in their window only."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers.stores import open_store
from bucketwise.config.cron import parse_cron
from bucketwise.config.errors import BucketwiseError, WindowOverError
from bucketwise.config.load import load
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Throttle
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.throttle import LONGEST_WAIT, Lag, Throttler, furthest
from bucketwise.jobs.core.turn import Step, StepResult, Turn
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.rollup import ROLLUP
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.schedule.scheduler import Service, Task
from tests.jobs.counting import run_counted
from tests.jobs.place import MINUTES, NOW, POLICIES, Place

Document = dict[str, Any]
NOON = datetime(2026, 1, 10, 12, tzinfo=UTC)
CLOSED, OPEN = 'window = "01:00-05:00"', 'window = "23:00-05:00"'  # at NOW, midnight


def throttled(place: Place, *keys: str, of_ticks: str = "") -> None:
    inner = f"\n[policies.ticks.throttle]\n{of_ticks}\n" if of_ticks else ""
    place.write_config("\n".join(["[throttle]", *keys]) + POLICIES + inner)


# What decides


@given(
    st.integers(100, 10_000),
    st.lists(st.tuples(st.integers(0, 50_000), st.floats(0, 30), st.floats(0, 30)), min_size=1, max_size=20),
)
def test_no_piece_goes_faster_than_its_rate(rate: int, pieces: list[tuple[int, float, float]]) -> None:
    """And none waits that took as long as it may."""
    now = 1000.0
    gate = Throttler(Throttle(max_rate=f"{rate} buckets/s"), lambda: None, now)
    assert gate.wait(now, NOON) is None
    for buckets, before, after in pieces:
        begun, now = now, now + before
        gate.spend(buckets, 1)
        now += after
        busy, least = now - begun, buckets / rate
        while (wait := gate.wait(now, NOON)) is not None:
            assert busy < least
            now += wait.seconds + 1e-6
        assert now - begun >= least
        assert now - begun <= max(busy, least) + 0.01


def test_a_rate_may_count_bytes() -> None:
    gate = Throttler(Throttle(max_rate="2MB/s"), lambda: None, 0.0)
    gate.spend(1_000_000, 3_000_000)
    wait = gate.wait(1.0, NOON)
    assert wait is not None
    assert (wait.seconds, "2MB/s" in wait.reason) == (0.5, True)


class Secondaries:
    """Says a lag each time it is asked, then none."""

    def __init__(self, *lags: float | None) -> None:
        self.lags, self.asked = list(lags), 0

    def __call__(self) -> Lag | None:
        self.asked += 1
        return Lag("db2:27017", self.lags.pop(0) if self.lags else 0.0)


def lag_gate(*lags: float | None) -> tuple[Throttler, Secondaries]:
    ask = Secondaries(*lags)
    return Throttler(Throttle(max_lag=timedelta(seconds=10)), ask, 0.0), ask


def test_a_run_waits_until_no_secondary_is_behind() -> None:
    gate, ask = lag_gate(10.0, 11.0, None, 10.0)
    gate.spend(1, 1)
    assert gate.wait(0.0, NOON) is None
    gate.spend(1, 1)
    waits = [gate.wait(at / 4, NOON) for at in range(1, 13)]
    assert [wait is not None for wait in waits] == [False] * 3 + [True] * 8 + [False]
    assert ask.asked == 4
    reasons = [wait.reason for wait in waits if wait is not None]
    assert reasons[0] == "db2:27017 is 11 s behind, and max_lag is 10s"
    assert reasons[4] == "db2:27017 cannot be reached, and max_lag is 10s"


def test_the_lag_is_asked_for_once_a_second_and_never_without_work() -> None:
    gate, ask = lag_gate()
    for at in range(100):
        assert gate.wait(at / 10, NOON) is None
    assert ask.asked == 0
    for at in range(100):
        gate.spend(0, 0)
        assert gate.wait(10 + at / 10, NOON) is None
    assert ask.asked == 10


def test_a_run_does_not_wait_for_a_secondary_for_good() -> None:
    gate, _ = lag_gate(*[None] * 10_000)
    gate.spend(1, 1)
    now = 0.0
    with pytest.raises(BucketwiseError, match=r"db2:27017 cannot be reached.* 15 minutes"):
        while (wait := gate.wait(now, NOON)) is not None:
            now += wait.seconds
    assert now == pytest.approx(LONGEST_WAIT)


def member(number: int, state: int, seconds: float, **more: Any) -> Document:
    return {
        "_id": number, "name": f"db{number}", "state": state, "health": 1.0,
        "optimeDate": NOON - timedelta(seconds=seconds), **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("members", "config", "lag"),
    [
        ([member(0, 1, 0)], {}, None),
        ([member(0, 1, 0), member(1, 2, 3), member(2, 2, 4)], {}, Lag("db2", 4.0)),
        ([member(0, 1, 0), member(1, 2, -1)], {}, Lag("db1", 0.0)),
        ([member(0, 1, 0), member(1, 5, 600), member(2, 2, 4)], {}, Lag("db1", 600.0)),  # initial sync
        ([member(0, 1, 0), member(1, 8, 0, health=0.0), member(2, 2, 4)], {}, Lag("db1", None)),
        ([member(0, 1, 0), member(1, 0, 0, optimeDate=None)], {}, Lag("db1", None)),
        ([member(0, 1, 0), member(1, 7, 99), member(2, 2, 4)], {1: {"arbiterOnly": True}}, Lag("db2", 4.0)),
        ([member(0, 1, 0), member(1, 8, 0, health=0)], {1: {"arbiterOnly": True}}, None),
        ([member(0, 1, 0), member(1, 2, 3605)], {1: {"secondaryDelaySecs": 3600}}, Lag("db1", 5.0)),
        ([member(1, 2, 5)], {}, None),  # an election is under way
    ],
)  # fmt: skip
def test_who_is_the_furthest_behind(members: list[Document], config: Any, lag: Lag | None) -> None:
    assert furthest(members, config) == lag


def test_a_gate_closes_at_the_end_of_the_window() -> None:
    gate = Throttler(Throttle(window="10:00-12:00"), lambda: None, 0.0)
    assert gate.wait(0.0, NOON - timedelta(seconds=1)) is None
    with pytest.raises(WindowOverError) as caught:
        gate.wait(0.0, NOON)
    assert caught.value.opens_at == NOON + timedelta(hours=22)


# What verbs do


@pytest.mark.proof
def test_no_verb_works_outside_of_the_window(place: Place) -> None:
    throttled(place, CLOSED)
    place("run", "--no-throttle", now="2018-07-30T01:30:00Z")  # from now on changes are followed
    before = place.everything()
    for verb in ("run", "rollup", "archive", "compact"):
        ran, told = place(verb), place(verb, "--json")
        assert (ran.code, told.code) == (0, 0)
        assert "ticks: outside window; the next one opens 2018-09-01T01:00:00Z" in ran.out
        assert told.policy("ticks") == {
            "policy": "ticks",
            "exit_code": 0,
            "stopped": "outside window",
            "next_window": "2018-09-01T01:00:00Z",
        }
        assert place.everything() == before, verb
    for command in (["plan"], ["archive", "--dry-run"], ["verify"], ["audit"], ["status"]):  # these go on
        ran = place(*command, "--json")
        assert (ran.code in (0, 4), "stopped" in ran.out) == (True, False)
    assert place("run", "--no-throttle").code == place("audit").code == 0
    assert place.database.ticks.count_documents({}) == 0


@pytest.mark.proof
def test_a_policy_may_say_otherwise_key_by_key(place: Place) -> None:
    throttled(place, CLOSED, 'max_rate = "1GB/s"', of_ticks='window = "always"')
    told = place("run", "--json").json["policies"]
    assert [it.get("stopped") for it in told] == [None, "outside window"]
    assert _ticks(place).throttle == Throttle(max_rate="1GB/s", window="always")


def _ticks(place: Place) -> Policy:
    return load(place.config, {"MONGODB_URI": place.uri}).policies["ticks"]


def _runner(place: Place, *steps: Step, now: str = NOW, progress: ProgressDisplay | None = None) -> Runner:
    store = open_store(load(place.config, {"MONGODB_URI": place.uri}).store)  # type: ignore[arg-type]
    at, quiet = clock.parse_instant(now, "--now"), progress or ProgressDisplay(quiet=True)
    return Runner("run", steps, place.database, store, at, Stop(), quiet, is_now_given=True)


@pytest.mark.proof
def test_a_run_at_work_ends_with_the_window(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has done stands, the ledger says that it was not all, and the next run does the rest."""
    throttled(place, OPEN)

    def do(turn: Turn) -> StepResult:
        later = clock.steady() + 3700
        monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: later)
        turn.context.check()
        raise AssertionError("the run went on")

    runner = _runner(place, ROLLUP, Step("meanwhile", do), *RUN[1:], now="2018-09-01T04:00:00Z")
    result = runner.run_one(_ticks(place))
    monkeypatch.undo()
    told = result.as_dict()
    assert (told["exit_code"], told["stopped"], "error" in told) == (0, "window over", False)
    assert (result.outcome, told["rollup"]["readings"]) == ("window over", MINUTES * 60)
    assert result.next_window == datetime(2018, 9, 1, 23, tzinfo=UTC)
    (entry,) = place.database[RUNS].find()
    assert (entry["exit_code"], entry["outcome"], entry["error"]) == (130, "interrupted", "window over")
    assert place.database.bucketwise_lease.find_one({"_id": "ticks"})["holder"] is None  # type: ignore[index]
    assert place.database.ticks.count_documents({}) == MINUTES
    assert place("run").code == place("audit").code == 0
    assert place.database.ticks.count_documents({}) == 0


def test_the_service_asks_again_when_the_window_opens(place: Place) -> None:
    throttled(place, CLOSED)
    policy, stop, results = _ticks(place), Stop(), list[Result]()
    times = iter([NOW, "2018-09-01T01:00:00Z"])

    def ended(result: Result) -> None:
        results.append(result)
        if result.outcome == "done":
            stop.request()

    task = Task(policy, parse_cron("@monthly"), lambda _: _runner(place, *RUN, now=next(times)), ended)
    Service([task], Ledger(place.database), stop, "").serve()
    assert [it.outcome for it in results] == ["outside window", "done"]
    assert place.database[RUNS].count_documents({}) == 1


def test_what_it_reads_and_deletes_is_paid_for_by_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that passes is what it sleeps."""
    throttled(place, 'max_rate = "100 buckets/s"')
    slept, reasons, steady = list[float](), list[str | None](), clock.steady()

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    class Told(ProgressDisplay):
        def wait(self, reason: str | None, /) -> None:
            reasons.append(reason)
            super().wait(reason)

    monkeypatch.setattr("bucketwise.jobs.core.throttle.sleep", sleep)
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: steady + sum(slept))
    result = _runner(place, *RUN, progress=Told(quiet=True)).run_one(_ticks(place))
    monkeypatch.undo()
    assert (result.exit_code, result.body["archive"]["deleted"]) == (0, MINUTES)
    assert sum(slept) == pytest.approx(3 * MINUTES / 100, abs=0.01), "rolled up, copied, deleted"
    assert {*reasons} == {"max_rate is 100 buckets/s", None}


@pytest.mark.parametrize("asked", [Stop.request, None], ids=["stop", "pause"])
def test_a_wait_is_interrupted(place: Place, monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    throttled(place, 'max_rate = "100 buckets/s"')
    runner = _runner(place, *RUN)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) == 1
        if asked:
            runner.stop.request()
            return
        assert place("pause", "-p", "ticks", "--reason", "Enough").code == 0
        later = clock.steady() + 90  # the lease is renewed by then, and tells of it
        monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: later)

    monkeypatch.setattr("bucketwise.jobs.core.throttle.sleep", sleep)
    result = runner.run_one(_ticks(place))
    monkeypatch.undo()
    assert result.exit_code == 130
    assert place.database.ticks.count_documents({}) == MINUTES


def test_a_run_that_finds_nothing_does_not_ask_for_the_lag(place: Place) -> None:
    throttled(place, 'max_lag = "10s"')
    store = open_store(load(place.config, {"MONGODB_URI": place.uri}).store)  # type: ignore[arg-type]

    def asked() -> tuple[int, int]:
        now = clock.parse_instant(NOW, "--now")
        (result,), counts = run_counted(place.uri, place.database.name, RUN, [_ticks(place)], store, now)
        assert result.exit_code == 0
        return counts.commands["replSetGetStatus"], counts.commands["replSetGetConfig"]

    status, config = asked()
    assert status >= 1
    assert config == 3  # where it begins and where it claims the archive, to know the deployment; for members
    assert asked() == (0, 1)


# JSON lines


def lines_of(place: Place, *arguments: str, code: int = 0) -> list[Document]:
    ran = place.command(*arguments, cwd=place.folder, MONGODB_URI=place.uri)
    assert ran.code == code, ran
    return [json.loads(line) for line in ran.err.splitlines()]


@pytest.mark.proof
def test_lines_are_json_objects(place: Place) -> None:
    found = lines_of(place, "run", "--now", NOW, "--log-format", "json")
    assert {(it["level"], it["verb"]) for it in found} == {("info", "run")}
    assert all(datetime.fromisoformat(it["time"]).tzinfo for it in found)
    told = [it for it in found if it["event"] == "progress" and it["step"] == "rollup"]
    assert [(it["policy"], it["policy_number"], it["policies"]) for it in told[:2]] == [("ticks", 1, 2)] * 2
    assert told[1]["counts"] == {"rolled-up readings": MINUTES * 60}
    assert (found[-1]["event"], found[-1]["exit_code"]) == ("ended", 0)
    assert lines_of(place, "--log-format", "json", "run", "--quiet", "--now", NOW) == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "--now", "never"), 2, "--now"),
        (("run", "--no-such"), 2, "--no-such"),
        (("run", "-p", "tick"), 2, "Did you mean ticks?"),
    ],
)
def test_errors_are_json_objects_as_well(
    place: Place, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found = lines_of(place, *arguments, "--log-format=json", code=code)
    (error,) = [it for it in found if it["level"] == "error"]
    assert (said in error["event"], error["exit_code"], error["verb"]) == (True, code, "run")


def test_no_line_has_a_secret(place: Place) -> None:
    ran = place.command(
        "run", "--log-format", "json", cwd=place.folder,
        MONGODB_URI="mongodb://me:hunt\"er2@127.0.0.1:1/?serverSelectionTimeoutMS=100",
    )  # fmt: skip
    assert ran.code in (1, 2)
    assert "er2" not in ran.err
    assert all(json.loads(line)["level"] in ("error", "info") for line in ran.err.splitlines())
