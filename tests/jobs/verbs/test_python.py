"""`bucketwise.Suite`: what the commands do and say, from Python."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bucketwise
from bucketwise import Suite, errors
from bucketwise.suite import Progress
from tests.docs.pages import ROOT, blocks
from tests.jobs.place import MINUTES, NOW, START, Place

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, mongodb_uri: str) -> None:
    monkeypatch.setenv("MONGODB_URI", mongodb_uri)


def suite_of(place: Place, *policies: str, **options: Any) -> Suite:
    return Suite(place.config, policies or None, now=NOW, **options)


def without_changing(told: dict[str, Any]) -> dict[str, Any]:
    """A JSON object without what differs from one call to the next."""
    return {key: it for key, it in told.items() if key not in ("ended", "took", "seconds")}


def test_the_whole_cycle(place: Place, tmp_path: Path) -> None:
    suite = suite_of(place)
    assert suite.check().check().exit_code == 0
    planned = suite.plan()
    assert planned["ticks"].archive["buckets"] == MINUTES
    assert place.database.ticks.count_documents({}) == MINUTES

    ran = suite.run().check()
    assert (ran.command, ran.exit_code, [it.policy for it in ran.policies]) == ("run", 0, ["ticks", "iot"])
    assert ran["ticks"].archive["deleted"] == MINUTES
    assert ran["ticks"].body["archive"]["deleted"] + 1 == MINUTES + 1  # mypy knows it for a number
    assert pickle.loads(pickle.dumps(ran)) == ran
    assert ran["ticks"]["rollup"]["readings"] == MINUTES * 60
    assert ran.now == datetime(2018, 9, 1, tzinfo=UTC)
    assert place.database.ticks.count_documents({}) == 0

    assert suite.audit(html=tmp_path / "audit.html").check()["ticks"].findings is not None
    assert (tmp_path / "audit.html").read_text().startswith("<!doctype html>")
    assert suite.verify().check()["ticks"].readings == MINUTES * 60
    ticks = suite_of(place, "ticks")
    days = ticks.coverage(by="day").check()["ticks"].days
    assert [(it["day"], it["archived"]) for it in days] == [("2018-06-30", MINUTES * 60)]
    output = tmp_path / "some.parquet"
    found = ticks.readings(output, START, START.replace(hour=1), {"symbol": "MDB"})
    assert found.check()["ticks"].readings == pq.read_table(output).num_rows == 3600
    assert ticks.summarize("2018-06-30T00:00Z", "2018-06-30T01:00Z").check()["ticks"].exit_code == 0
    back = ticks.restore("back", until=START.replace(hour=1)).check()["ticks"]
    assert (back.buckets, place.database.back.count_documents({})) == (60, 60)


@pytest.mark.parametrize("verb", ["check", "plan", "coverage", "verify"])
def test_it_tells_what_the_command_prints(verb: str, untouched: Place) -> None:
    """As one JSON object."""
    told = getattr(suite_of(untouched), verb)()
    printed = untouched(verb, "--json")
    assert told.exit_code == printed.code
    assert without_changing(told.json) == without_changing(printed.json)
    for outcome, body in zip(told.policies, printed.json["policies"], strict=True):
        assert without_changing(dict(outcome.body)) == without_changing(body)


def test_bad_usage_and_config_raise(untouched: Place, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no such policy"):
        suite_of(untouched, "tick").plan()
    with pytest.raises(errors.UsageError, match="has no time zone"):
        suite_of(untouched).verify(datetime(2018, 6, 30))  # noqa: DTZ001
    with pytest.raises(errors.UsageError, match="is one text"):
        Suite(untouched.config, "ticks")
    with pytest.raises(errors.UsageError, match="is not before"):
        suite_of(untouched).verify("2018-07-01", "2018-06-01")
    with pytest.raises(errors.UsageError, match="by: 'week'"):
        suite_of(untouched).coverage(by="week")
    with pytest.raises(errors.UsageError, match="did you mean keep_for"):
        suite_of(untouched, "ticks").restore("back", keep_fr="7d")
    with pytest.raises(errors.UsageError, match="versions: 'newest'"):
        suite_of(untouched, "ticks").restore("back", versions="newest")
    (tmp_path / "bad.toml").write_text(untouched.config.read_text().replace("value_fields", "value_field"))
    with pytest.raises(errors.ConfigError, match="value_field") as found:
        Suite(tmp_path / "bad.toml").run()
    assert found.value.exit_code == 2
    assert found.value.problems


def test_a_server_that_is_not_there_is_told_with_its_place(untouched: Place, tmp_path: Path) -> None:
    text = untouched.config.read_text()
    uri = "mongodb://ann:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200"
    (tmp_path / "away.toml").write_text(text.replace('"${MONGODB_URI}"', f'"{uri}"'))
    told = Suite(tmp_path / "away.toml").plan()
    with pytest.raises(errors.BucketwiseError, match="cannot reach MongoDB at") as found:
        told.check()
    assert (found.value.exit_code, "secret" in str(found.value)) == (1, False)


def test_what_happens_to_a_policy_is_in_the_outcome(place: Place) -> None:
    """And `check` raises it: the class of the exit code."""
    place.database.ticks.insert_one({"symbol": "MDB", "d": START.replace(day=29), "p": {"0": 1.0, "x": 2.0}})
    left = suite_of(place).run()
    assert (left.exit_code, left["ticks"].exit_code, left["iot"].exit_code) == (3, 3, 0)
    with pytest.raises(errors.LeftSomethingError, match="ticks ended with 3") as found:
        left.check()
    assert found.value.exit_code == 3
    with pytest.raises(AttributeError, match="ticks has no nothing; it has policy"):
        _ = left["ticks"].nothing
    with pytest.raises(AttributeError, match="run told no nothing"):
        _ = left.nothing
    next(iter((place.folder / "store").rglob("*.parquet"))).unlink()
    with pytest.raises(errors.HaltedError):
        suite_of(place).verify().check()


def test_an_audit_of_what_is_not_kept(untouched: Place) -> None:
    found = suite_of(untouched).audit()
    assert found.exit_code == 4
    with pytest.raises(errors.NotKeptError):
        found.check()


def test_progress_is_told_and_a_run_can_be_cancelled_from_another_thread(place: Place) -> None:
    seen: list[Progress] = []
    one = suite_of(place, "iot")

    def note(progress: Progress) -> None:
        seen.append(progress)
        threading.Thread(target=suite.cancel).start()

    suite = suite_of(place, "ticks", progress=note)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            suite.run()
        except errors.InterruptedRun as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert one.run().exit_code == 0  # another suite, at the same time, is not cancelled
    thread.join()
    assert [type(it) for it in caught] == [errors.InterruptedRun]
    assert seen
    assert suite_of(place).run().exit_code == 0
    assert place.database.ticks.count_documents({}) == 0


@pytest.mark.proof
def test_the_page_as_it_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "python.md"
    (block,) = (it for it in blocks(page) if "suite" in it.marks)
    monkeypatch.chdir(place.folder)
    exec(compile(block.text.replace('toml")', f'toml", now="{NOW}")'), str(page), "exec"), {})
    assert f"{MINUTES}\n0 [('ticks', 0, None), ('iot', 0, None)]\nticks [" in capsys.readouterr().out
    assert (place.folder / "audit.html").exists()
    methods = {it for it in vars(Suite) if not it.startswith("_")}
    assert methods == {it for it in methods if f"`{it}" in page.read_text()}


def test_it_brings_no_command_line() -> None:
    """Nor what one job needs and another one does not."""
    script = (
        "import sys, bucketwise; before = set(sys.modules); bucketwise.Suite;"
        "print('pymongo' in before, sorted(it for it in sys.modules if it.startswith('bucketwise.jobs')))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.startswith("False ")
    brought = eval(told.removeprefix("False "))
    assert [it for it in brought if it.split(".")[2:3] not in ([], ["core"], ["output"], ["suite"])] == []


def test_the_names_of_the_api() -> None:
    assert set(dir(bucketwise)) == {"Suite", "__version__", "connect", "errors", "scan"}
    known = (it for it in vars(errors).values() if isinstance(it, type))
    codes = {it.exit_code for it in known if issubclass(it, errors.BucketwiseError)}
    assert codes == {1, 2, 3, 4, 5, 11, 130}
