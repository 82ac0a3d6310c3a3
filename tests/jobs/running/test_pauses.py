"""While a policy is paused no verb works on it, and all others go on; whoever meets the pause is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.stores import open_store
from bucketwise.config.cron import parse_cron
from bucketwise.config.load import load
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from bucketwise.jobs.core.ledger import Ledger
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.turn import Step, StepResult, Turn
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.rollup import ROLLUP
from bucketwise.jobs.run.verb import RUN
from bucketwise.jobs.schedule import scheduler
from bucketwise.jobs.schedule.scheduler import Service, Task
from tests.jobs.place import MINUTES, NOW, Place
from tests.jobs.states import after

Document = dict[str, Any]
WHY = "The cluster is being moved"
WORKING = ["run", "rollup", "archive", "compact"]


def pause(place: Place, *arguments: str, why: str = WHY) -> Document:
    ran = place("pause", "-p", "ticks", "--reason", why, "--json", *arguments)
    assert ran.code == 0, ran
    return ran.policy("ticks")


def resume(place: Place, *arguments: str) -> Document:
    ran = place("resume", "-p", "ticks", "--json", *arguments)
    assert ran.code == 0, ran
    return ran.policy("ticks")


def codes(place: Place, verb: str) -> list[tuple[str, str]]:
    ran = place(verb, "-p", "ticks", "--json")
    return [(it["code"], it["severity"]) for it in ran.policy("ticks")["findings"]]


def test_a_policy_is_paused_and_resumed(place: Place) -> None:
    said = pause(place)
    assert said["paused"].pop("by").count("@") == 1
    assert said["paused"] == {"reason": WHY, "since": NOW}
    assert (said["changed"], said["resumed"]) == (True, None)
    again = pause(place, why="Another reason")
    assert (again["changed"], again["paused"]["reason"]) == (False, WHY)
    said = resume(place, "--reason", "It has moved")
    assert (said["changed"], said["paused"]) == (True, None)
    assert (said["resumed"]["reason"], said["resumed"]["at"]) == ("It has moved", NOW)
    again = resume(place)
    assert (again["changed"], again["resumed"]) == (False, said["resumed"])
    assert pause(place)["changed"] is True
    assert resume(place)["resumed"]["reason"] is None


def test_without_a_name_all_are(place: Place) -> None:
    pause(place)
    ran = place("pause", "--reason", "All")
    assert (ran.code, "All" in ran.out, WHY in ran.out) == (0, True, True)
    told = place("run", "--json").json["policies"]
    assert [it["paused"]["reason"] for it in told] == [WHY, "All"]
    place("resume", "-p", "iot")
    told = place("run", "--json").json["policies"]
    assert [it["exit_code"] for it in told] == [0, 0]
    assert ["archive" in it for it in told] == [False, True]


@after("run")
def test_nothing_is_written_where_all_are(place: Place) -> None:
    """Several policies read the change stream together, and leave a mark there: once one has its lease."""
    assert place("pause", "--reason", "All").code == 0
    before = place.everything()
    assert place("run").code == 0
    assert place.everything() == before


@pytest.mark.proof
@after("run -p ticks --now 2018-07-30T01:30:00Z")
def test_no_verb_works_on_it(place: Place) -> None:
    pause(place)
    before = place.everything()
    for verb in WORKING:
        ran, told = place(verb, "-p", "ticks"), place(verb, "-p", "ticks", "--json")
        assert (ran.code, told.code) == (0, 0)
        assert f"ticks: paused since {NOW} by " in ran.out
        assert WHY in ran.out
        assert "done" not in ran.out
        assert told.policy("ticks")["paused"]["reason"] == WHY
        assert set(told.policy("ticks")) == {"policy", "exit_code", "paused"}
        assert place.everything() == before, verb
    resume(place)
    assert place("run", "-p", "ticks", "--json").policy("ticks")["archive"]["deleted"] > 0
    assert place.database.ticks.count_documents({}) == 0


@pytest.mark.proof
@after("run -p ticks")
def test_it_is_told_by_status_check_and_audit(place: Place) -> None:
    for verb in ("check", "audit"):
        assert ("paused", "warning") not in codes(place, verb)
    pause(place)
    for verb in ("check", "audit"):
        assert ("paused", "warning") in codes(place, verb)
        ran = place(verb, "-p", "ticks")
        assert (ran.code, WHY in ran.out) == (0, True)
    status = place("status", "-p", "ticks")
    assert WHY in status.out
    assert place("status", "--json").policy("ticks")["paused"]["reason"] == WHY
    assert place("status", "--json").policy("iot")["paused"] is None
    resume(place)
    for verb in ("check", "audit"):
        assert ("paused", "warning") not in codes(place, verb)
    assert place("status", "--json").policy("ticks")["paused"] is None


@pytest.mark.proof
@after("run -p ticks")
def test_all_else_goes_on(place: Place) -> None:
    pause(place)
    looking = ("plan", "archive --dry-run", "verify", "readings", "coverage")
    for command in (*looking, "drill", "restore --to back", "unpin", "sign"):
        ran = place(*command.split(), "-p", "ticks")
        assert (ran.code, WHY in ran.out) == (0, False), command
    assert place.database.back.count_documents({}) == MINUTES


def _runner(place: Place, *steps: Step) -> Runner:
    store = open_store(load(place.config, {"MONGODB_URI": place.uri}).store)  # type: ignore[arg-type]
    now = clock.parse_instant(NOW, "--now")
    return Runner(
        "run", steps, place.database, store, now, Stop(), ProgressDisplay(quiet=True), is_now_given=True
    )


def _ticks(place: Place) -> Any:
    return load(place.config, {"MONGODB_URI": place.uri}).policies["ticks"]


def _renew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time goes by after which the next check renews the lease."""
    later = clock.steady() + 90
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: later)


def _meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> Step:
    """A step in which the policy is paused."""

    def do(turn: Turn) -> StepResult:
        pause(place)
        _renew(monkeypatch)
        turn.context.check()
        raise AssertionError("the run went on")

    return Step("meanwhile", do)


@pytest.mark.proof
def test_a_run_at_work_ends_as_if_interrupted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _runner(place, ROLLUP, _meanwhile(place, monkeypatch), *RUN[1:]).run_one(_ticks(place))
    monkeypatch.undo()
    assert (result.exit_code, result.as_dict()["paused"]["reason"]) == (130, WHY)
    assert result.error is not None and WHY in result.error
    (entry,) = place.database[RUNS].find()
    assert (entry["exit_code"], entry["outcome"]) == (130, "interrupted")
    assert place.database.ticks.count_documents({}) == MINUTES
    assert place.database.bucketwise_lease.find_one({"_id": "ticks"})["holder"] is None  # type: ignore[index]
    resume(place)
    assert place("run", "-p", "ticks").code == place("audit", "-p", "ticks").code == 0
    assert place.database.ticks.count_documents({}) == 0


def test_a_restore_at_work_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lease(place.database, "ticks") as lease:
        pause(place)
        _renew(monkeypatch)
        lease.check()


def test_a_paused_policy_is_told_before_who_works_on_it(place: Place) -> None:
    pause(place)
    with Lease(place.database, "ticks"):
        assert place("run", "-p", "ticks").code == 0
        assert place("unpin", "-p", "ticks").code == 11


@pytest.mark.proof
def test_any_reason_is_told_on_one_line(place: Place) -> None:
    for why in ("$fence", "{'$a': 1}", "a\nb", "\x1b[31mred", "'; drop", "é" * 5000):
        told = pause(place, why=why)["paused"]["reason"]
        assert told == why.replace("\n", " ").replace("\x1b", "\\x1b")
        ran = place("run", "-p", "ticks")
        assert (ran.code, told in ran.out) == (0, True)
        resume(place)


def test_metrics_tell_no_success_of_it(place: Place) -> None:
    """But the lags grow."""
    file = place.folder / "bucketwise.prom"
    pause(place)
    for verb in WORKING:
        assert place(verb, "-p", "ticks", "--metrics-file", str(file)).code == 0
    text = file.read_text()
    assert 'bucketwise_archive_lag_seconds{policy="ticks"}' in text
    assert "bucketwise_runs_total{" not in text
    assert "bucketwise_last_success_timestamp_seconds{" not in text


def test_the_service_leaves_it_alone_and_asks_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not counted as a success; once resumed, what was missed is made up for."""
    monkeypatch.setattr(scheduler, "AGAIN", timedelta(milliseconds=50))
    policy, stop, results, asked = _ticks(place), Stop(), list[Result](), list[int]()
    pause(place)

    def runner_at(_now: datetime) -> Runner:
        asked.append(1)
        if len(asked) == 3:
            assert [it.outcome for it in results] == ["paused"] * 2
            resume(place)
        return _runner(place, *RUN)

    def ended(result: Result) -> None:
        results.append(result)
        if result.outcome != "paused":
            stop.request()

    task = Task(policy, parse_cron(policy.schedule or ""), runner_at, ended)
    Service([task], Ledger(place.database), stop, "").serve()
    assert [it.outcome for it in results] == ["paused", "paused", "done"]
    assert place.database[RUNS].count_documents({}) == 1
    assert place.database.ticks.count_documents({}) == 0
