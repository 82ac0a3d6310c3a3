"""Progress and log lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from bucketwise.jobs.core import logs
from bucketwise.jobs.output.progress import Estimate, ProgressDisplay
from tests.jobs.command import ROOT

WORK = """
from bucketwise.jobs.output.progress import ProgressDisplay
progress = ProgressDisplay(quiet=QUIET)
with progress.step("ticks: archive"):
    progress("archived readings", 5000)
    progress("archived readings", 5000)
print("done")
"""


def test_lines_elsewhere_than_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressDisplay(quiet=False)
    with progress.step("ticks: rollup"):
        pass
    with progress.step("ticks: archive"):
        progress("archived readings", 5000)
        progress("archived readings", 5000)
        progress("checked", 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "ticks: rollup",
        "ticks: archive",
        "ticks: archive: 10,000 archived readings, 1 checked",
    ]


def test_it_is_told_which_policy_it_is_and_why_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = 1000.0
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: at)
    progress = ProgressDisplay(quiet=False)
    progress.among = 2, 3
    with progress.step("archive", "ticks"):
        progress("archived readings", 5000)
        at += 20
        progress.wait("db2 is 11 s behind")
        progress.wait(None)
        at += 20
        progress("archived readings", 5000)
    assert capsys.readouterr().err.splitlines() == [
        "[2/3] ticks: archive",
        "[2/3] ticks: archive: 5,000 archived readings (250/s); waits: db2 is 11 s behind",
        "[2/3] ticks: archive: 10,000 archived readings (250/s)",
        "[2/3] ticks: archive: 10,000 archived readings (250/s)",
    ]


def test_long_work_is_told_of_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = 1000.0
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: at)
    progress = ProgressDisplay(quiet=False)
    with progress.step("x"):
        for _ in range(25):
            at += 1
            progress("things", 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["x", "x: 10 things", "x: 20 things", "x: 25 things"]


def test_it_is_told_how_long_the_rest_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = 1000.0
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: at)
    progress = ProgressDisplay(quiet=False)
    with progress.step("x"):
        for done in range(1, 31):
            at += 1
            progress("things", 1, done / 300)
        at += 10
        progress("parts", 1, 0.01)
        progress("parts", 2, 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "x",
        "x: 10 things; 3 %, about 5 min left",
        "x: 20 things; 7 %, about 5 min left",
        "x: 30 things; 10 %, about 5 min left",
        "x: 30 things, 1 parts; 10 %, about 6 min left",
        "x: 30 things, 3 parts",
    ]


@pytest.mark.parametrize(
    ("elapsed", "share", "told"),
    [
        (100, 0.5, "50 %, about 2 min left"),
        (30, 0.5, "50 %, about 30 s left"),
        (3600, 0.25, "25 %, about 3 h 0 min left"),
        (3600, 0.9, "90 %, about 7 min left"),
        (2, 0.5, None),  # too soon to tell
        (100, 0.0, None),
        (100, 1.0, None),
        (100, None, None),
    ],
)
def test_an_estimate(elapsed: float, share: float | None, told: str | None) -> None:
    estimate = Estimate(50.0)
    estimate.update(share)
    assert estimate.left(50.0 + elapsed) == told


def test_the_estimate_of_a_run_is_one_and_never_goes_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two policies, with two steps each; the second one takes a quarter of the time."""
    at = 1000.0
    monkeypatch.setattr("bucketwise.jobs.core.clock.steady", lambda: at)
    progress = ProgressDisplay(quiet=False)
    progress.steps = {"archive": 3.0, "expiry": 1.0}
    for number, policy in enumerate(("a", "b"), start=1):
        progress.among = number, 2
        with progress.step("archive", policy):
            for share in (0.5, 0.25, 0.75):
                at += 15
                progress("archived readings", 150, share)
                progress("archived bytes", 30_000)
        with progress.step("expiry", policy):
            at += 15
            progress("expired summaries", 1)
        with progress.step("lake", policy):  # what follows has no share
            at += 15
            progress("parts", 1)
    err = capsys.readouterr().err
    assert "300 archived readings (10/s), 30.0 kB of documents (1.0 kB/s); 19 %, about 3 min left" in err
    told = [int(it) for it in re.findall(r"(\d+) %, about", err)]
    assert told == [19, 19, 28, 38, 38, 38, 38, 50, 69, 69, 78, 88, 88, 88, 88]


def on_a_terminal(quiet: bool) -> str:
    """What stderr shows where it is a terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", WORK.replace("QUIET", str(quiet))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 4096):
                shown += piece
        except OSError:
            pass  # how Linux says that the other end is closed
        assert process.wait(300) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
    os.close(leader)
    return shown.decode()


@pytest.mark.process
def test_a_bar_on_a_terminal() -> None:
    shown = on_a_terminal(quiet=False)
    assert "ticks: archive" in shown
    assert "10,000 archived readings" in shown
    assert "\x1b[" in shown


@pytest.mark.process
def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert on_a_terminal(quiet=True) == ""
    progress = ProgressDisplay(quiet=True)
    with progress.step("x"):
        progress("things", 1)
    assert capsys.readouterr() == ("", "")


def test_log_lines_go_to_stderr_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    try:
        logs.log.info("it ended", uri="mongodb://me:hunter2@h:1/db", policy="ticks", text="a b")
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "hunter2" not in err
        for fragment in (
            "level=info",
            'event="it ended"',
            "mongodb://***@h:1/db",
            "policy=ticks",
            'text="a b"',
        ):
            assert fragment in err
        logs.configure(quiet=True)
        logs.log.info("unheard")
        logs.log.warning("heard")
        err = capsys.readouterr().err
        assert "unheard" not in err
        assert "heard" in err
    finally:
        logs.configure()


def test_an_application_keeps_its_own_structlog(capsys: pytest.CaptureFixture[str]) -> None:
    import structlog

    before = structlog.get_config()
    logs.log.warning("a lease is late")
    assert "a lease is late" in capsys.readouterr().err
    assert structlog.get_config() == before
