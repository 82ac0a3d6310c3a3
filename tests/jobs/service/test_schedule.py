"""The service, as processes: what is due is done once, and being asked to stop is fine."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from bucketwise.archivers.stores import open_store
from bucketwise.buckets import heap
from bucketwise.config.cron import Cron, parse_cron
from bucketwise.config.load import load
from bucketwise.config.policies import Policy
from bucketwise.jobs.core import clock, ledger
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.schedule import scheduler
from bucketwise.jobs.schedule.scheduler import Service, Task
from tests.jobs.command import started
from tests.jobs.place import MINUTES, POLICIES, Place
from tests.jobs.processes import wait_until
from tests.jobs.states import after


class Watched:
    """A running service, and what it has logged so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, pattern: str) -> str:
        """The first line, from here on, that the pattern is found in."""
        assert self.process.stderr is not None
        limit = threading.Timer(120, self.process.kill)  # ends a wait for a line that never comes
        limit.start()
        try:
            for line in self.process.stderr:
                self.lines.append(line)
                if re.search(pattern, line):
                    return line
        finally:
            limit.cancel()
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.until("schedule ended")
        return self.process.wait(300)


@contextmanager
def service(place: Place, *arguments: str, **environment: str) -> Iterator[Watched]:
    uri = {"MONGODB_URI": place.uri} | environment
    with started("schedule", "-p", "ticks", *arguments, cwd=place.folder, **uri) as process:
        yield Watched(process)


def completed(place: Place) -> int:
    return place.database[ledger.COLLECTION].count_documents({"verb": "run", "outcome": "done"})


@pytest.mark.proof
def test_what_was_missed_is_done_once_at_the_start(place: Place) -> None:
    with service(place) as first:
        assert "outcome=done" in first.until("run ended")
        assert first.end() == 0
    assert completed(place) == 1
    assert place.database.ticks.count_documents({}) == 0
    with service(place) as second:
        second.until("nothing is due")
        assert second.end(signal.SIGINT) == 0
    assert completed(place) == 1


@pytest.mark.proof
@after("run -p ticks")
def test_a_run_before_the_last_firing_does_not_count(place: Place) -> None:
    """And a policy without a schedule is told of."""
    old = datetime.now(UTC) - timedelta(days=800)
    place.database[ledger.COLLECTION].update_many({}, {"$set": {"started": old, "ended": old}})
    with started("schedule", cwd=place.folder, MONGODB_URI=place.uri) as process:
        it = Watched(process)
        assert "policy=iot" in it.until("no schedule")
        it.until("run ended")
        assert it.end() == 0
    assert completed(place) == 2
    assert place.database.iot.count_documents({}) > 0


@pytest.mark.proof
def test_two_side_by_side_do_the_work_once(place: Place) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(service(place)) for _ in range(2)]
        told = [it.until("run ended|nothing is due") for it in both]
        assert sum("outcome=done" in line for line in told) == 1
        for line in told:
            assert "outcome=done" in line or "nothing is due" in line or 'outcome="held elsewhere"' in line
        assert [it.end() for it in both] == [0, 0]
    assert completed(place) == 1
    assert place.database[ledger.COLLECTION].count_documents({}) == 1
    assert place("verify", "--json").policy("ticks")["readings"] == MINUTES * 60


@pytest.mark.proof
def test_metrics_and_health(place: Place) -> None:
    place.database.ticks.insert_one({"symbol": "MDB", "d": datetime(2018, 6, 1, tzinfo=UTC), "p": {"60": 1}})
    with service(place, "--metrics-port", "0", "--metrics-file", "own.prom") as it:
        address = re.search(r"address=(\S+)/metrics", it.until("metrics are served"))
        assert address is not None
        port = address[1].rpartition(":")[2]
        refused = place("schedule", "-p", "ticks", "--metrics-port", port, now=None)
        assert (refused.code, f"--metrics-port {port}" in refused.err) == (2, True), "it is taken"
        it.until("run ended")
        text = urllib.request.urlopen(f"{address[1]}/metrics").read().decode()
        assert urllib.request.urlopen(f"{address[1]}/healthz").read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address[1]}/else")
        assert it.end() == 0
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples['bucketwise_runs_total{outcome="left something",policy="ticks",verb="run"}'] == "1.0"
    assert float(samples['bucketwise_rolled_up_readings_total{policy="ticks"}']) == MINUTES * 60
    assert float(samples['bucketwise_archived_buckets_total{policy="ticks"}']) == MINUTES
    assert float(samples['bucketwise_deleted_buckets_total{policy="ticks"}']) == MINUTES
    assert float(samples['bucketwise_left_buckets{policy="ticks"}']) == 0
    assert float(samples['bucketwise_quarantined_buckets{policy="ticks"}']) == 1
    success = float(samples['bucketwise_last_success_timestamp_seconds{policy="ticks",verb="run"}'])
    assert abs(success - datetime.now(UTC).timestamp()) < 3600
    file = (place.folder / "own.prom").read_text().splitlines()
    assert 'bucketwise_runs_total{outcome="left something",policy="ticks",verb="run"} 1.0' in file
    assert f'bucketwise_archived_buckets_total{{policy="ticks"}} {MINUTES}.0' in file


@pytest.mark.proof
def test_it_outlives_a_server_out_of_reach(place: Place) -> None:
    away = "mongodb://me:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50"
    with service(place, MONGODB_URI=away) as it:
        line = it.until("run failed")
        assert "cannot reach MongoDB at 127.0.0.1:1" in line
        assert it.end() == 0
        assert "hunter2" not in "".join(it.lines)


@pytest.mark.proof
@after("run")
def test_drills_have_a_schedule_of_their_own(place: Place) -> None:
    """Of policies with an offline archive, whether they are run by this service or not."""
    without = POLICIES.replace('schedule = "0 0 1 1 *"\n', "")
    place.write_config('[drill]\nschedule = "0 0 1 1 *"\ndays = 5\n' + without)
    with service(place) as it:
        line = it.until("run ended")
        assert "verb=drill" in line and "policy=ticks" in line and "outcome=done" in line
        assert it.end() == 0
    with service(place) as it:
        assert "verb=drill" in it.until("nothing is due")
        assert it.end() == 0
    runs = list(place.database.bucketwise_runs.find({"verb": "drill"}))
    assert [(run["policy"], run["counts"]["days"], run["counts"]["differing"]) for run in runs] == [
        ("ticks", 1, 0)
    ]


@pytest.mark.proof
def test_a_run_and_a_drill_of_one_policy_take_turns(place: Place) -> None:
    place.write_config('[drill]\nschedule = "0 0 1 1 *"\n' + POLICIES)
    with service(place) as it:
        lines = [it.until("run ended") for _ in range(2)]
        assert it.end() == 0
    assert {verb for verb in ("run", "drill") for line in lines if f"verb={verb} " in f"{line} "} == {
        "run",
        "drill",
    }
    assert all("outcome=done" in line for line in lines)


@pytest.mark.proof
def test_it_fires_again_and_again(place: Place, mongodb_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, with firings a tenth of a second apart in place of cron's minutes."""
    now = clock.current
    monkeypatch.setattr(Cron, "first_after", lambda _cron, _at: now() + timedelta(seconds=0.1))
    monkeypatch.setattr(Cron, "last_until", lambda _cron, at: at)
    events = list[str]()
    monkeypatch.setattr(heap, "release_memory", lambda: events.append("memory"))
    policy = load(place.config, {"MONGODB_URI": mongodb_uri}).policies["ticks"]
    stop, results, enough = Stop(), list[Result](), 3

    def count(result: Result) -> None:
        results.append(result)
        events.append("result")
        if len(results) == enough:
            stop.request()

    def runner_at(at: datetime) -> Runner:
        quiet = ProgressDisplay(quiet=True)
        events.append("run")
        return Runner("run", RUN, place.database, store, at, stop, quiet)

    settings = load(place.config, {"MONGODB_URI": mongodb_uri}).store
    assert settings is not None
    store = open_store(settings)
    task = Task(policy, parse_cron(policy.schedule or ""), runner_at, count)
    service = Service([task], Ledger(place.database), stop, "")
    thread = threading.Thread(target=service.serve)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(results) >= enough
    assert [result.exit_code for result in results[: enough - 1]] == [0] * (enough - 1)
    assert completed(place) >= enough - 1
    assert events == ["run", "memory", "result"] * len(results)
    monkeypatch.setattr(Cron, "last_until", lambda _cron, _at: None)
    Service([task], Ledger(place.database), Stop(), "")._run_if_due(task)
    assert len(events) == 3 * len(results)  # nothing was due


def test_what_failed_is_asked_for_again_soon(place: Place, mongodb_uri: str) -> None:
    """A view where summaries go: the run fails, and the next ask comes long before the next firing."""
    place.database.command("create", "ticks_daily", viewOn="iot", pipeline=[])
    policy = load(place.config, {"MONGODB_URI": mongodb_uri}).policies["ticks"]
    stop, asked_for = Stop(), list[datetime]()

    def look(result: Result) -> None:
        assert result.exit_code == 1

    class Looking(Service):
        def _try_again_later(self, task: Task, at: datetime) -> None:
            super()._try_again_later(task, at)
            asked_for.append(self._scheduler.get_job(task.name).next_run_time)
            stop.request()

    def runner_at(at: datetime) -> Runner:
        return Runner("run", RUN, place.database, None, at, stop, ProgressDisplay(quiet=True))

    task = Task(policy, parse_cron(policy.schedule or ""), runner_at, look)
    Looking([task], Ledger(place.database), stop, "").serve()
    (next_time,) = asked_for
    assert timedelta(0) < next_time - clock.current() <= scheduler.AGAIN


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_turn_that_is_not_wanted_leaves_the_lease_as_it_was(place: Place, is_clean: bool) -> None:
    """Else the next run would look through the whole archive for what a crash has left."""
    policy = load(place.config, {"MONGODB_URI": place.uri}).policies["ticks"]
    with Lease(place.database, "ticks") as held:
        if is_clean:
            held.leave_clean()
    runner = Runner("run", RUN, place.database, None, clock.current(), Stop(), ProgressDisplay(quiet=True))
    assert runner.run_if(policy, lambda: False) is None
    with Lease(place.database, "ticks") as held:
        assert held.is_clean == is_clean


class Held:
    """A service of four policies, all due, whose runs work until they are let go. Firings come all the
    time."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch, exit_code: int = 0) -> None:
        now = clock.current
        monkeypatch.setattr(Cron, "first_after", lambda _cron, _at: now() + timedelta(seconds=0.05))
        monkeypatch.setattr(Cron, "last_until", lambda _cron, at: at)
        monkeypatch.setattr(scheduler, "BEAT_SECONDS", 0.05)
        held, self.begun, self.ended, self.most = self, list[str](), list[str](), 0
        self.stop, self.go = Stop(), threading.Event()

        class Waiting(Runner):
            def run_if(self, policy: Policy, is_wanted: Callable[[], bool]) -> Result | None:
                assert is_wanted()
                held.begun.append(policy.name)
                held.most = max(held.most, len(held.begun) - len(held.ended))
                held.go.wait(60)
                held.ended.append(policy.name)
                return Result(policy.name, exit_code)

        def runner_at(at: datetime) -> Runner:
            return Waiting("run", RUN, place.database, None, at, self.stop, ProgressDisplay(quiet=True))

        one = load(place.config, {"MONGODB_URI": place.uri}).policies["ticks"]
        self.results = list[Result]()
        policies = [one.model_copy(update={"name": name}) for name in "abcd"]
        cron = parse_cron(one.schedule or "")
        tasks = [Task(it, cron, runner_at, self.results.append) for it in policies]
        self.service = Service(tasks, Ledger(place.database), self.stop, "")
        self.thread = threading.Thread(target=self.service.serve, daemon=True)
        self.thread.start()
        wait_until(lambda: len(self.begun) == 2, "no two runs work")

    def end(self) -> None:
        self.stop.request()
        self.go.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_two_runs_work_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are due. The others have their turn, and the service passes for alive meanwhile."""
    held = Held(place, monkeypatch)
    beat = held.service._beat
    wait_until(lambda: held.service._beat > beat + 0.5, "it does not live while runs work")
    assert len(held.begun) == 2 and held.results == []
    held.go.set()
    wait_until(lambda: {it.policy for it in held.results} == set("abcd"), "not all have their turn")
    held.end()
    assert held.most == 2


def test_a_run_that_waits_does_not_begin_once_asked_to_stop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(place, monkeypatch)
    held.end()
    assert len(held.begun) == len(held.results) == 2


def test_a_run_that_fails_after_the_service_is_asked_to_stop(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be asked for again; nothing waits for that."""
    held = Held(place, monkeypatch, exit_code=1)
    held.stop.request()
    wait_until(lambda: not held.service._scheduler.running, "it does not stop")
    assert held.results == [] and held.thread.is_alive()
    held.end()
    assert [it.exit_code for it in held.results] == [1, 1]
