"""Runs that are cut off: asked to stop, or killed. Whatever happens, the next run finishes the work."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from bucketwise.jobs.core import ledger
from tests.faults.meddling import hook
from tests.jobs.command import ROOT, started
from tests.jobs.place import NOW, START, Place
from tests.jobs.processes import wait_until

DAYS = 40
#: What a run calls in the middle of a step.
MIDST = {
    "rollup": "bucketwise.rollups.summaries.documents.summary",
    "archive": "bucketwise.archivers.format.parquet.write_part",
}
STUBBORN = """
import sys, time
from bucketwise.jobs.core.stopping import Stop, signals_to
stop = Stop()
with signals_to(stop):
    print("ready", flush=True)
    while not stop.is_requested:
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(600)
"""
#: Sends itself the signal at each line of its wait in turn, those of what it calls as well; tells how many.
AT_EACH_LINE = """
import signal, sys, threading
from bucketwise.jobs.core.stopping import Stop, signals_to

def trace(frame, event, argument):
    global left, sent
    left -= 1
    if left == 0 and not stop.is_requested:
        sent += 1
        signal.raise_signal(signal.SIGTERM)
    return trace

line = sent = 0
while line == sent:
    line += 1
    left, stop = line, Stop()
    past_the_last = threading.Timer(0.5, stop.request)  # well before the wait looks up by itself
    past_the_last.start()
    with signals_to(stop):
        sys.settrace(trace)
        stop.wait()
        sys.settrace(None)
    past_the_last.cancel()
print(sent)
"""

#: The program, sent a signal as it begins to import a library; or by a thread that it waits for at its end,
#: by one of the last calls of `atexit`, or as Python clears away what it has imported.
AT_BOTH_ENDS = """
import atexit, os, runpy, signal, sys, threading

moment, number, *arguments = sys.argv[1:]
send = lambda kill=os.kill, own=os.getpid(), number=int(number): kill(own, number)

def hook(event, given):
    if event == "import" and given[0] == moment:
        send()

class Cleared:
    def __del__(self, send=send):
        send()

def last():
    threading.main_thread().join()
    send()

sys.addaudithook(hook)
if moment == "a thread":
    threading.Thread(target=last).start()
elif moment == "atexit":
    threading._register_atexit(lambda: atexit.register(send))
elif moment == "clearing":
    sys.cleared = Cleared()
sys.argv = ["bucketwise", *arguments]
runpy.run_module("bucketwise", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def long_place(place: Place) -> Place:
    """So many days that a run is met in the middle of its work: it goes day by day."""
    days = [START + timedelta(days=count - DAYS) for count in range(DAYS)]
    place.database.ticks.insert_many({"symbol": "MDB", "d": at, "p": {"0": 50.5}} for at in days)
    return place


def cut_off(place: Place, step: str, number: signal.Signals) -> int:
    """Returns the exit code of a run that is sent the signal in the middle of this step."""
    meddle = hook(signalling={"number": number, "function": MIDST[step]})
    given = ("run", "-p", "ticks", "--now", NOW)
    ran = place.command.meddled(meddle, *given, cwd=place.folder, MONGODB_URI=place.uri)
    assert "Traceback" not in ran.err
    return ran.code


def finish(place: Place) -> None:
    """Two clean runs finish the work; a third changes nothing."""
    assert place("run", "-p", "ticks").code == 0
    assert place("run", "-p", "ticks").code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert place.database.ticks_daily.count_documents({}) == DAYS + 1
    third = place("run", "--json", "-p", "ticks").policy("ticks")
    assert third["rollup"]["daily"]["written"] == third["archive"]["buckets"] == 0
    assert place("verify", "--json").policy("ticks")["readings"] == DAYS + 180 * 60
    assert place("audit", "-p", "ticks").code == 0


@pytest.mark.proof
@pytest.mark.parametrize(
    ("step", "number"),
    [pytest.param("rollup", signal.SIGINT, marks=pytest.mark.proof), ("archive", signal.SIGTERM)],
)
def test_a_run_asked_to_stop_ends_with_130(long_place: Place, number: signal.Signals, step: str) -> None:
    assert cut_off(long_place, step, number) == 130
    (entry,) = long_place.database[ledger.COLLECTION].find()
    assert (entry["exit_code"], entry["outcome"]) == (130, "interrupted")
    assert long_place.database.ticks.count_documents({}) > 0
    finish(long_place)


@pytest.mark.proof
@pytest.mark.parametrize("step", ["rollup", pytest.param("archive", marks=pytest.mark.proof)])
def test_after_a_kill_the_next_run_goes_on_at_once(long_place: Place, step: str) -> None:
    assert cut_off(long_place, step, signal.SIGKILL) == -signal.SIGKILL
    (run,) = long_place("status", "--json", "-p", "ticks").policy("ticks")["last_runs"]
    assert (run["outcome"], run["exit_code"], run["ended"]) == ("died", None, None)
    assert "died" in long_place("status", "-p", "ticks").out
    finish(long_place)


def outcomes(place: Place, policy: str) -> list[str]:
    """What the ledger itself says, the oldest first."""
    return [
        it["outcome"] for it in place.database[ledger.COLLECTION].find({"policy": policy}).sort("started")
    ]


@pytest.mark.proof
@pytest.mark.parametrize(
    "verb", ["run", *(pytest.param(it, marks=pytest.mark.proof) for it in ("rollup", "archive")), "unpin"]
)
def test_the_next_run_of_a_policy_marks_what_died(long_place: Place, verb: str) -> None:
    """Whatever it does. Another policy's dead are not its own."""
    given = {"log": str(long_place.folder / "log"), "folder": str(long_place.folder), "moment": "before"}
    meddle = ("tests.faults.crashes.points", {**given, "at": "make summary", "nth": 3})
    command = ("run", "-p", "ticks", "--now", NOW)
    ran = long_place.command.meddled(meddle, *command, cwd=long_place.folder, MONGODB_URI=long_place.uri)
    assert ran.code == -signal.SIGKILL
    runs = long_place.database[ledger.COLLECTION]
    (killed,) = runs.find()
    runs.insert_one({**killed, "_id": ObjectId(), "policy": "iot", "fence": 0})
    assert long_place("status", "--json").code == 0
    assert outcomes(long_place, "ticks") == outcomes(long_place, "iot") == ["running"]
    assert long_place(verb, "-p", "ticks", "--yes").code == 0
    assert outcomes(long_place, "ticks") == ["died", "done"]
    assert outcomes(long_place, "iot") == ["running"]
    told = long_place("status", "--json").json["policies"]
    assert [[run["outcome"] for run in it["last_runs"]] for it in told] == [["done", "died"], ["died"]]
    marked = runs.find_one({"_id": killed["_id"]})
    if verb == "run":  # the same was given again, and was completed
        assert killed.pop("open") is True
    assert marked == {**killed, "outcome": "died"}
    assert long_place(verb, "-p", "iot", "--yes").code == 0
    assert outcomes(long_place, "iot") == ["died", "done"]


@pytest.mark.process
def test_the_second_signal_ends_it_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130


def in_turn(*moments: str) -> list[Any]:
    """Returns each with both signals; `make test` tries the first with one."""
    return [
        pytest.param(moment, number, marks=[pytest.mark.proof] * (at + more > 0))
        for at, moment in enumerate(moments)
        for more, number in enumerate((signal.SIGINT, signal.SIGTERM))
    ]


def at_both_ends(moment: str, number: signal.Signals, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", AT_BOTH_ENDS, moment, str(int(number)), *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.process
@pytest.mark.parametrize(("library", "number"), in_turn("bucketwise.jobs.cli", "bucketwise.jobs.suite"))
def test_a_signal_before_the_command_is_read_ends_it_with_130(library: str, number: signal.Signals) -> None:
    assert at_both_ends(library, number, "--version") == (130, "", "")


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize(("moment", "number"), in_turn("a thread", "atexit", "clearing"))
def test_a_signal_after_all_is_told_changes_nothing(moment: str, number: signal.Signals) -> None:
    code, out, err = at_both_ends(moment, number, "status", "--config", "/nowhere", "--json")
    assert (code, json.loads(out)["exit_code"]) == (2, 2)
    assert "Traceback" not in err


def hears(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal: our first lines have run."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "from its result"])
@pytest.mark.parametrize(
    "milliseconds", [*(pytest.param(it, marks=pytest.mark.proof) for it in (0, 1, 3, 10, 30, 300, 600)), 100]
)
def test_a_signal_at_any_moment(place: Place, milliseconds: int, late: bool) -> None:
    """130, or the command's own code. Before our first lines run, the system's answer counts."""
    with started("status", "--json", "--now", NOW, cwd=place.folder, MONGODB_URI=place.uri) as process:
        wait_until(lambda: hears(process.pid, signal.SIGTERM), "it hears the signal")
        assert process.stdout is not None
        told = process.stdout.readline() if late else ""
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert process.returncode in ((0,) if late else (0, 130))
    assert "Traceback" not in err
    report = told + out
    assert report == "" or json.loads(report)["exit_code"] == process.returncode


@pytest.mark.process
def test_who_waits_is_asked_to_stop_wherever_the_signal_meets_it() -> None:
    """A handler runs between any two steps of the main thread: it must not need what that one holds."""
    command = [sys.executable, "-c", AT_EACH_LINE]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=300, check=True)
    assert int(ran.stdout) >= 2
