"""A MongoDB that dies, changes its primary, refuses, hangs or loses replies, in the middle of each job."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from tests.faults import aftermath
from tests.faults.meddling import ENDS, WRITES, hook
from tests.faults.mongods import Servers, no_failures_after
from tests.faults.places import Place, placed
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine
from tests.tiers import tier

Document = dict[str, Any]
GROUP = "MongoDB: "


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory, bucketwise: CommandLine) -> Iterator[Place]:
    with placed(tmp_path_factory.mktemp("single"), 1, bucketwise) as it:
        yield it


# What a server answers

#: At what `failCommand` fails a command once, or from then on everything (`times` is 0).
ANSWERS: dict[str, Document] = {
    "the connection closed": {"closeConnection": True},
    "NotWritablePrimary": {"errorCode": 10107},
    "InterruptedAtShutdown": {"errorCode": 11600},
    "WriteConflict": {"errorCode": 112, "errorLabels": ["TransientTransactionError"]},
    "TransientTransactionError": {"errorCode": 251, "errorLabels": ["TransientTransactionError"]},
    "UnknownTransactionCommitResult": {"errorCode": 64, "errorLabels": ["UnknownTransactionCommitResult"]},
    "CursorNotFound": {"errorCode": 43},
    "MaxTimeMSExpired": {"errorCode": 50},
    "ExceededTimeLimit": {"errorCode": 262},
    "ExceededMemoryLimit": {"errorCode": 146},
    "OutOfDiskSpace": {"errorCode": 14031},
    "Unauthorized": {"errorCode": 13},
    "a slow answer": {"blockConnection": True, "blockTimeMS": 300},
    "a write concern that timed out": {
        "writeConcernError": {"code": 64, "errmsg": "waited in vain", "errInfo": {"wtimeout": True}}
    },
    "a write concern at a shutdown": {"writeConcernError": {"code": 91, "errmsg": "shutting down"}},
}
#: How often each job asks each command, at the least: there is something to strike.
ASKED: dict[str, dict[str, int]] = {
    "roll-up": {
        "find": 36, "aggregate": 1, "listCollections": 3, "listIndexes": 6, "insert": 1, "update": 13,
        "findAndModify": 2, "createIndexes": 6, "commitTransaction": 4,
    },
    "offline": {
        "find": 26, "aggregate": 1, "getMore": 2, "insert": 1, "update": 7, "delete": 2, "findAndModify": 2,
        "createIndexes": 2, "commitTransaction": 2,
    },
    "online": {
        "find": 26, "aggregate": 1, "getMore": 2, "insert": 3, "update": 9, "delete": 4, "findAndModify": 1,
        "createIndexes": 5, "commitTransaction": 2,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Strike:
    """`answer` to the `at`-th `command` of a job; `times`: to that one, or to as many of its kind, or, where
    it is 0, to everything from then on."""

    job: str
    command: str
    at: int
    answer: str
    times: int

    def __str__(self) -> str:
        how = f"{self.times} times" if self.times else "and to all from then on"
        return f"{self.job}: {self.answer} to {self.command} {self.at}, {how}"


def _strikes() -> list[Strike]:
    """Every answer to every command of every job, each at a seeded moment."""
    rng = random.Random(2018)
    return [
        Strike(job, command, rng.randint(1, most), answer, rng.choice([1, 1, 1, 2, 2, 6, 0]))
        for job, asked in ASKED.items()
        for command, most in asked.items()
        for answer, data in ANSWERS.items()
        if "writeConcernError" not in data or command in (*WRITES, *ENDS)
    ]


def _few(strikes: list[Strike]) -> set[Strike]:
    """Each answer once, to another command where one is left."""
    few: dict[str, Strike] = {}
    shuffled = [it for it in random.Random(6).sample(strikes, len(strikes)) if it.times]
    for it in shuffled:
        if it.command not in {other.command for other in few.values()}:
            few.setdefault(it.answer, it)
    for it in shuffled:
        few.setdefault(it.answer, it)
    return set(few.values())


STRIKES = _strikes()
FEW = _few(STRIKES)
#: Of those one of each job, and with another answer: what `make test` tries.
FIRST = {job: it for it in sorted(FEW, key=str) for job in (it.job,)}.values()


@pytest.mark.proof
@pytest.mark.parametrize(
    "it",
    [pytest.param(it, id=str(it), marks=tier(is_first=it in FIRST, is_proof=it in FEW)) for it in STRIKES],
)
def test_answers(single: Place, tally: Tally, it: Strike) -> None:
    """The run succeeds, or says why not; what always fails is not tried for ever."""
    scene, verb = single.scene(it.job)
    replies = {"short_replies": {"documents": 10}} if it.command == "getMore" else {}
    fault = {"at": it.at, "on": [it.command], "fail": ANSWERS[it.answer], "times": it.times}
    with no_failures_after(single.client):
        ran = scene.run(verb, meddle=hook(patience={"seconds": 1.0}, at_command=fault, **replies))
    aftermath.check(tally, GROUP + "answers", str(it), scene, ran)


# A server that dies, and sets of three that change their primary


@contextmanager
def started_again(it: Servers) -> Iterator[None]:
    """Whichever node dies in the block is started again at once, with the same files and port."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for node in it.nodes:
                if node.process.poll() is not None:
                    node.start()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        it.make_well()


#: How many commands each job asks, at the least.
LENGTHS = {"roll-up": 70, "offline": 42, "online": 48}


def moments(few: list[tuple[str, int, str]], hows: list[str], step: int) -> list[Any]:
    """A job, the command at which it is struck, and how: the first of `few` in `make test`, all of them in
    the proofs, and every `step`-th in the runs of hours."""
    every = [
        (job, at, how) for job, most in LENGTHS.items() for at in range(1, most + 1, step) for how in hows
    ]
    return [
        pytest.param(
            *it,
            id=f"{it[0]}, command {it[1]} {it[2]}",
            marks=tier(is_first=it == few[0], is_proof=it in few),
        )
        for it in sorted({*every, *few})
    ]


KILLED = [("offline", 34, "sent"), ("roll-up", 51, "answered"), ("online", 39, "answered")]
CHANGED = [("offline", 33, "is killed"), ("roll-up", 45, "steps down"), ("online", 36, "hangs")]


@pytest.mark.proof
@pytest.mark.parametrize(("job", "at", "when"), moments(KILLED, ["sent", "answered"], 5))
def test_mongod_is_killed_and_comes_back(single: Place, tally: Tally, job: str, at: int, when: str) -> None:
    """With SIGKILL; the same files, the same port."""
    scene, verb = single.scene(job)
    (node,) = single.servers.nodes
    pid = node.process.pid
    fault = {"at": at, "answered": when == "answered", "signal": signal.SIGKILL, "to": pid}
    with started_again(single.servers):
        ran = scene.run(verb, meddle=hook(at_command=fault))
    assert node.process.pid != pid
    aftermath.check(tally, GROUP + "killed and started again", f"{job}, {at}, {when}", scene, ran)


@pytest.mark.proof
@pytest.mark.parametrize(("job", "at", "how"), moments(CHANGED, ["steps down", "is killed", "hangs"], 9))
def test_the_primary_changes(three: Place, tally: Tally, job: str, at: int, how: str) -> None:
    """Another node is elected; the run goes on there, or ends, and the next goes on there."""
    scene, verb = three.scene(job)
    primary = three.servers.primary
    struck = {"steps down": None, "is killed": signal.SIGKILL, "hangs": signal.SIGSTOP}[how]
    fault = {"at": at, "signal": struck, "to": primary.process.pid, "depose": struck is None}
    ran = scene.run(verb, meddle=hook(at_command=fault))
    three.servers.make_well()
    aftermath.check(tally, GROUP + "changes of the primary", f"{job}, {at}, {how}", scene, ran)


@pytest.mark.proof
@pytest.mark.parametrize("job", LENGTHS)
def test_no_majority_holds_what_is_written(three: Place, tally: Tally, job: str) -> None:
    """One secondary hangs, the other no longer follows: the primary stays, and a majority can't be had.

    The run does not wait for ever; what it wrote may come to stand or not."""
    scene, verb = three.scene(job)
    scene.write_config(uri=f"{three.servers.uri}&wTimeoutMS=1000")
    hanging, stale = three.servers.secondaries
    with stale.client() as client:
        client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"})
        with contextlib.suppress(PyMongoError):  # it is to stand for no election, where it doesn't already
            client.admin.command({"replSetFreeze": 120})
        hanging.stop()
        try:
            ran = scene.run(verb)
        finally:
            hanging.go_on()
            client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "off"})
            with contextlib.suppress(PyMongoError):
                client.admin.command({"replSetFreeze": 0})
    three.servers.make_well()
    scene.write_config()
    message = aftermath.check(tally, GROUP + "no majority", job, scene, ran, codes=[1])
    # On a machine that is slow enough, the primary finds itself alone and steps down.
    assert re.search("majority of its nodes be reached|lost the connection|cannot reach", message), message
