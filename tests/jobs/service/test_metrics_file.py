"""Metrics in a file: what each run adds to it, and what happens where it can't."""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.jobs.core.metrics import Metrics, add
from bucketwise.jobs.output.report import OUTCOMES, Measures, Result
from bucketwise.jobs.suite import all_jobs
from tests.jobs.command import Ran
from tests.jobs.copies.test_copies import copied
from tests.jobs.place import MINUTES, Place
from tests.jobs.states import after

FILE = "bucketwise.prom"
Labels = frozenset[tuple[str, str]]


def samples(file: Path) -> dict[tuple[str, Labels], float]:
    """Each series of the file, by its name without the prefix, and its value."""
    found: dict[tuple[str, Labels], float] = {}
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"bucketwise_(\w+)\{(.*)\} (\S+)", line)
            assert match is not None, line
            key = match[1], frozenset(re.findall(r'(\w+)="([^"]*)"', match[2]))
            assert key not in found, "node_exporter takes a series once"
            found[key] = float(match[3])
    return found


def value(file: Path, name: str, **labels: str) -> float | None:
    return samples(file).get((name, frozenset(labels.items())))


def measured(place: Place, *arguments: str) -> Ran:
    return place(*arguments, "--metrics-file", FILE)


@pytest.mark.proof
def test_a_run_tells_what_its_report_tells(place: Place) -> None:
    before = datetime.now(UTC).timestamp()
    ran = measured(place, "run", "--json")
    file = place.folder / FILE
    assert set(ran.json) == {"schema", "command", "exit_code", "now", "policies"}  # as without the file
    for name in ("ticks", "iot"):
        said = ran.policy(name)
        steps = {"rollup", "archive", "compact", "archive_expiry", "expiry"}
        assert set(said) == {"policy", "exit_code", "worth", *steps}
        for metric, count in {
            "rolled_up_readings_total": said["rollup"]["readings"],
            "archived_buckets_total": said["archive"]["buckets"],
            "archived_readings_total": said["archive"]["readings"],
            "archived_bytes_total": said["archive"]["bytes"],
            "deleted_buckets_total": said["archive"]["deleted"],
            "left_buckets": 0,
            "quarantined_buckets": 0,
            "rollup_lag_seconds": 0,
            "archive_lag_seconds": 0,
            "live_bytes": 0,
            "summary_bytes": said["worth"]["now"]["summary_bytes"],
            "store_bytes": said["worth"]["now"]["store_bytes"],
            "removed_bytes": said["archive"]["removed_bytes"],
            "lease_held": 0,
            "oldest_live_bucket_timestamp_seconds": None,  # there is none
        }.items():
            assert value(file, metric, policy=name) == count, metric
        assert value(file, "runs_total", policy=name, verb="run", outcome="done") == 1
        assert value(file, "last_run_exit_code", policy=name, verb="run") == 0
        for metric in ("last_run_timestamp_seconds", "last_success_timestamp_seconds"):
            ended = value(file, metric, policy=name, verb="run")
            assert ended is not None and before - 1 <= ended <= datetime.now(UTC).timestamp() + 1
        for step in ("rollup", "archive", "compact", "expiry"):
            took = value(file, "last_step_seconds", policy=name, step=step)
            assert took is not None and took > 0
            assert took == value(file, "step_seconds_total", policy=name, step=step)
    assert value(file, "store_requests_total", policy="ticks", operation="put") == 6
    assert value(file, "store_retries_total", policy="ticks") == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(it.name for it in place.folder.iterdir()) == [FILE, "bucketwise.toml", "store"]


@pytest.mark.proof
def test_runs_add_up_and_leave_the_series_of_others(place: Place) -> None:
    measured(place, "run", "-p", "ticks")
    ticks = {key: it for key, it in samples(place.folder / FILE).items() if ("policy", "ticks") in key[1]}
    measured(place, "run", "-p", "iot")
    measured(place, "run", "-p", "iot")
    found = samples(place.folder / FILE)
    assert ticks.items() <= found.items()
    assert value(place.folder / FILE, "runs_total", policy="iot", verb="run", outcome="done") == 2
    assert value(place.folder / FILE, "archived_buckets_total", policy="iot") == MINUTES / 10


@pytest.mark.proof
@after("run")
def test_every_verb_that_works_adds_itself(place: Place) -> None:
    copied(place, "b")  # for `copy` and `repair`
    assert place("copy").code == 0
    for verb in (it.name for it in all_jobs() if it.is_measured):
        assert measured(place, verb).code == 0
        for name in ("ticks", "iot"):
            assert value(place.folder / FILE, "runs_total", policy=name, verb=verb, outcome="done") == 1
            assert value(place.folder / FILE, "last_run_exit_code", policy=name, verb=verb) == 0


@pytest.mark.proof
@after("rollup")
def test_a_dry_run_adds_nothing(place: Place) -> None:
    for verb in ("archive", "compact"):
        assert measured(place, verb, "--dry-run").code == 0
        assert not (place.folder / FILE).exists()


@pytest.mark.proof
@after("run")
def test_what_audit_and_drill_find(place: Place) -> None:
    assert measured(place, "drill").code == 0
    assert value(place.folder / FILE, "drill_differing_buckets", policy="ticks") == 0
    place.database.ticks_daily.delete_many({})
    ran = measured(place, "audit", "--json")
    errors = Counter(it["severity"] for it in ran.policy("ticks")["findings"])
    assert ran.code == 4 and errors["error"] > 0
    assert value(place.folder / FILE, "audit_findings", policy="ticks", severity="error") == errors["error"]
    assert value(place.folder / FILE, "audit_findings", policy="iot", severity="error") == 0
    assert value(place.folder / FILE, "last_run_exit_code", policy="ticks", verb="audit") == 4
    assert value(place.folder / FILE, "last_success_timestamp_seconds", policy="ticks", verb="audit") is None


def test_a_run_that_fails_is_told_with_its_lag(place: Place) -> None:
    """A view where summaries go: nothing is rolled up, so nothing is archived, and both fall behind."""
    place.database.command("create", "ticks_daily", viewOn="iot", pipeline=[])
    assert measured(place, "run", "-p", "ticks").code == 1
    file = place.folder / FILE
    assert value(file, "runs_total", policy="ticks", verb="run", outcome="failed") == 1
    assert value(file, "last_run_exit_code", policy="ticks", verb="run") == 1
    assert value(file, "last_success_timestamp_seconds", policy="ticks", verb="run") is None
    start, now = datetime(2018, 6, 30, tzinfo=UTC), datetime(2018, 9, 1, tzinfo=UTC)
    assert value(file, "oldest_live_bucket_timestamp_seconds", policy="ticks") == start.timestamp()
    # Its first hour was over at 01:00, and due ten minutes later; its first minute ended at 00:00:59.999.
    assert value(file, "rollup_lag_seconds", policy="ticks") == (now - start).total_seconds() - 3600 - 600
    due = (now - start).total_seconds() - 30 * 86400 - 59.999
    assert value(file, "archive_lag_seconds", policy="ticks") == pytest.approx(due, abs=0.001)


def test_a_server_out_of_reach(place: Place) -> None:
    measured(place, "run", "-p", "ticks")
    known = value(place.folder / FILE, "rollup_lag_seconds", policy="ticks")
    away = "mongodb://me:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50"
    ran = place.command("run", "-p", "ticks", "--metrics-file", FILE, cwd=place.folder, MONGODB_URI=away)
    assert ran.code == 1
    assert value(place.folder / FILE, "runs_total", policy="ticks", verb="run", outcome="failed") == 1
    assert value(place.folder / FILE, "rollup_lag_seconds", policy="ticks") == known
    assert "hunter2" not in (place.folder / FILE).read_text() + ran.err


def test_a_lease_held_elsewhere(place: Place) -> None:
    now = datetime.now(UTC)
    host = {"name": "elsewhere", "pid": 1, "boot": "x", "started": "x"}
    lease = {"holder": "x", "fence": 1, "host": host, "taken_at": now, "expires_at": now.replace(year=2100)}
    place.database["bucketwise_lease"].insert_one(
        {"_id": "ticks", "was_clean": True, "clean": False, "taken_over_at": None, **lease}
    )
    assert measured(place, "run").code == 11
    assert value(place.folder / FILE, "lease_held", policy="ticks") == 1
    assert value(place.folder / FILE, "lease_held", policy="iot") == 0
    assert value(place.folder / FILE, "last_run_exit_code", policy="ticks", verb="run") == 11


def test_a_window_that_is_closed() -> None:
    """A run that it ended was none of the good ones."""
    metrics, opens = Metrics(), datetime(2018, 9, 2, 1, tzinfo=UTC)
    for stopped, told in (
        ("outside window", ["waits"]),
        ("window over", ["waits", "interrupted"]),
        (None, ["done"]),
    ):
        closed = opens if stopped else None
        result = Result("ticks", stopped=stopped, next_window=closed, has_window=True)  # type: ignore[arg-type]
        metrics.record("run", result)
        metrics.record("audit", Result("ticks", 0, {"findings": []}))
        lines = metrics.text().decode().splitlines()
        assert ('bucketwise_waits_for_window{policy="ticks"} 1.0' in lines) == ("waits" in told)
        runs = 'bucketwise_runs_total{outcome="%s",policy="ticks",verb="run"} 1.0'
        assert all(runs % it in lines for it in told if it != "waits")
        good = [it for it in lines if it.startswith("bucketwise_last_success") and 'verb="run"' in it]
        assert len(good) == ("done" in told)


@pytest.mark.proof
def test_a_command_that_could_not_start(place: Place) -> None:
    """No policy can be named. It is over once the verb has started again."""
    good = place.config.read_text()
    place.config.write_text(good + "\nunknown = 1\n")
    assert measured(place, "run").code == 2
    file = place.folder / FILE
    assert value(file, "last_run_exit_code", policy="", verb="run") == 2
    assert value(file, "runs_total", policy="", verb="run", outcome="refused") == 1
    place.config.write_text(good)
    assert measured(place, "audit").code == 4
    assert value(file, "last_run_exit_code", policy="", verb="run") == 2
    assert measured(place, "run").code == 0
    assert value(file, "last_run_exit_code", policy="", verb="run") is None
    assert value(file, "runs_total", policy="", verb="run", outcome="refused") == 1


@pytest.mark.proof
def test_option_then_environment_then_key(place: Place) -> None:
    key, variable, option = (place.folder / f"{it}.prom" for it in ("key", "variable", "option"))
    place.config.write_text(f'metrics_file = "{key}"\n' + place.config.read_text())
    common = ("run", "-p", "iot", "--quiet")
    given = {"MONGODB_URI": place.uri, "BUCKETWISE_METRICS_FILE": str(variable)}
    assert place("run", "-p", "iot").code == 0
    assert [it.exists() for it in (key, variable, option)] == [True, False, False]
    assert place.command(*common, cwd=place.folder, **given).code == 0
    assert [it.exists() for it in (key, variable, option)] == [True, True, False]
    assert place.command(*common, "--metrics-file", str(option), cwd=place.folder, **given).code == 0
    done = {"policy": "iot", "verb": "run", "outcome": "done"}
    assert [value(it, "runs_total", **done) for it in (key, variable, option)] == [1, 1, 1]


FOREIGN = {
    "another-program's": b"# HELP apt_upgrades_pending x\napt_upgrades_pending 3\n",
    "text": b"Dear diary,\n",
    "a-number": b"1\n",
    "binary": bytes(range(256)),
    "not-finite": b'bucketwise_left_buckets{policy="ticks"} NaN\n',
    "less-than-none": b'bucketwise_archived_buckets_total{policy="ticks"} -1\n',
}


@pytest.mark.parametrize("held", FOREIGN.values(), ids=FOREIGN)
def test_it_writes_over_nothing_else(held: bytes, tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_bytes(held)
    line = add(file, "run", [Result("ticks")])
    assert line is not None and line.startswith(f"the metrics could not be written to {file}: ")
    assert "move it away, or name another" in line
    assert file.read_bytes() == held


def _folder(file: Path) -> None:
    file.mkdir()


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _nothing(file: Path) -> None:
    file.parent.rmdir()


def _in_the_way(file: Path) -> None:
    (file.parent / f".{file.name}.new").mkdir()


@pytest.mark.parametrize(
    ("lay", "reason"),
    [
        (_folder, "it is not a regular file"),
        (_pipe, "it is not a regular file"),
        (_nothing, "No such file or directory"),
        (_in_the_way, "Is a directory"),
    ],
)
def test_what_cannot_be_written_is_told(lay: object, reason: str, tmp_path: Path) -> None:
    assert callable(lay)
    (tmp_path / "metrics").mkdir()
    lay(tmp_path / "metrics" / FILE)
    line = add(tmp_path / "metrics" / FILE, "run", [Result("ticks")])
    assert line is not None and reason in line and "The run is not affected" in line


@pytest.mark.proof
def test_what_cannot_be_written_changes_nothing_else(place: Place) -> None:
    (place.folder / FILE).write_bytes(FOREIGN["text"])
    ran = measured(place, "run", "--json")
    assert ran.code == ran.json["exit_code"] == 0
    (line,) = ran.err.splitlines()
    assert line.startswith(f"bucketwise: the metrics could not be written to {FILE}: ")
    assert "move it away, or name another" in line
    assert (place.folder / FILE).read_bytes() == FOREIGN["text"]
    assert place.database.ticks.count_documents({}) == 0


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f".{FILE}.new").write_text("half")
    assert add(tmp_path / FILE, "run", [Result("ticks")]) is None
    assert [it.name for it in tmp_path.iterdir()] == [FILE]


def test_a_link_stays_and_a_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / FILE).symlink_to("far/real.prom")
    for _ in range(2):
        assert add(tmp_path / FILE, "run", [Result("ticks")]) is None
        (tmp_path / "far" / "real.prom").chmod(0o640)
    assert (tmp_path / FILE).is_symlink()
    assert value(tmp_path / FILE, "runs_total", policy="ticks", verb="run", outcome="done") == 2
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o640


def test_runs_that_end_together_all_count(tmp_path: Path) -> None:
    def work(policy: str) -> None:
        for _ in range(20):
            assert add(tmp_path / FILE, "run", [Result(policy), Result("common")]) is None

    threads = [threading.Thread(target=work, args=(f"p{number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / FILE).exists():
            samples(tmp_path / FILE)  # whole at any time
        time.sleep(0.001)
    done = {"verb": "run", "outcome": "done"}
    assert value(tmp_path / FILE, "runs_total", policy="common", **done) == 100
    assert [value(tmp_path / FILE, "runs_total", policy=f"p{number}", **done) for number in range(5)] == [
        20
    ] * 5


def test_a_file_of_another_release_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        'bucketwise_runs_total{policy="ticks",outcome="done"} 7\n'
        'bucketwise_deleted_buckets_total{policy="ticks"} 5\n'
        'bucketwise_of_tomorrow{policy="ticks"} 5\n'
    )
    assert add(tmp_path / FILE, "run", [Result("ticks")]) is None
    found = {name for name, _ in samples(tmp_path / FILE)}
    assert "of_tomorrow" not in found
    assert value(tmp_path / FILE, "deleted_buckets_total", policy="ticks") == 5
    assert value(tmp_path / FILE, "runs_total", policy="ticks", outcome="done") is None


counts = st.integers(0, 2**40)


@st.composite
def results(draw: st.DrawFn) -> tuple[str, Result]:
    verb = draw(st.sampled_from(["rollup", "audit", "run"]))
    archive = {
        key: draw(counts) for key in ("buckets", "readings", "bytes", "deleted", "left", "quarantined")
    }
    rollup = {"readings": draw(counts), "quarantined": draw(counts)}
    bodies: Mapping[str, Mapping[str, object]] = {
        "rollup": rollup,
        "audit": {"findings": [{"severity": draw(st.sampled_from(["error", "warning"]))}]},
        "run": {"rollup": rollup, "archive": archive},
    }
    measures = Measures(
        datetime(2026, 1, 1, tzinfo=UTC),
        draw(st.dictionaries(st.sampled_from(["rollup", "archive"]), st.floats(0, 1e6), max_size=2)),
        draw(st.dictionaries(st.sampled_from(["put", "get"]), counts, max_size=2)),
        draw(counts),
        draw(st.sampled_from([{}, {"lease_held": 1.0}, {"lease_held": 0.0, "rollup_lag_seconds": 12.5}])),
    )
    body = draw(st.sampled_from([{}, dict(bodies[verb])]))
    name = draw(st.sampled_from(["ticks", "iot"]))
    return verb, Result(name, draw(st.sampled_from(list(OUTCOMES))), body, measures=measures)


@given(runs=st.lists(results(), min_size=1, max_size=8))
def test_a_file_between_any_two_runs_changes_nothing(runs: list[tuple[str, Result]]) -> None:
    """What a process that stays up would serve is what processes that come and go write."""
    served, text = Metrics(), ""
    for verb, result in runs:
        served.record(verb, result)
        written = Metrics()
        written.restore(text)
        written.record(verb, result)
        text = written.text().decode()
    assert sorted(text.splitlines()) == sorted(served.text().decode().splitlines())


@given(held=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_file_is_taken_or_left_alone(held: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("any") / FILE
    file.write_bytes(held)
    complaint = add(file, "run", [Result("ticks")])
    assert file.read_bytes() == held if complaint else samples(file)
