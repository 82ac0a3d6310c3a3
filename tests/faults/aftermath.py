"""What must hold after a fault, whatever it was: nothing lost, nothing double, told plainly, recovered."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults.scene import OFFLINE, ONLINE, ROLLUP, SAMPLES, Scene
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine, Ran

#: The three jobs: the verb that a fault strikes, and the policy's archive.
JOBS = {
    "roll-up": ("rollup", OFFLINE),
    "offline": ("archive", OFFLINE),
    "online": ("archive", ONLINE),
}
#: The outcomes that the ledger may tell for an exit code. A run that could not reach its ledger any more, or
#: was killed, has "died"; one that never got so far is not there.
_OUTCOMES = {
    0: "done",
    1: "failed",
    3: "left something",
    5: "halted",
    11: "held elsewhere",
    130: "interrupted",
}


def prepared(
    job: str,
    folder: Path,
    database: Database[Any],
    uri: str,
    store: Store,
    command: CommandLine,
    buckets: int = 24,
) -> tuple[Scene, str]:
    """A scene that is ready for a job, and the job's verb."""
    verb, archive = JOBS[job]
    folder.mkdir(exist_ok=True)
    scene = Scene(folder, database, uri, store, command, SAMPLES + ROLLUP + archive).fill(buckets, readings=3)
    if verb == "archive":
        scene.well("rollup")
    return scene, verb


def check(
    tally: Tally, group: str, fault: str, scene: Scene, ran: Ran, codes: Collection[int] = (0, 1)
) -> str:
    """Check all of it; returns what the run said of its failure, or "". Tells how to try the fault again."""
    node = tally.request.node.nodeid
    sys.stdout.write(f"again: python -m pytest -n 0 '{node}'\n")
    toll = scene.toll()
    tally(group, fault, runs=4, **toll._asdict())
    assert toll[1:] == (0, 0), ran
    message = said(ran, codes)
    _check_ledger(scene, ran)
    scene.finish()
    return message


def said(ran: Ran, codes: Collection[int]) -> str:
    """The message of a run that failed, which is one line, and no traceback; "" of one that did not."""
    assert ran.code in codes, ran
    assert "Traceback" not in ran.err + ran.out, ran
    assert "defect of bucketwise" not in ran.err + ran.out, ran
    if ran.code in (0, 3) or ran.code < 0 or not ran.out:
        return ""
    report = json.loads(ran.out)
    assert report["exit_code"] == ran.code
    errors = [it["error"] for it in [report, *report["policies"]] if "error" in it]
    assert len(errors) == 1, ran
    assert "\n" not in errors[0], ran
    assert len(errors[0]) < 800, ran
    return str(errors[0])


def _check_ledger(scene: Scene, ran: Ran) -> None:
    (status,) = json.loads(scene.run("status").out)["policies"]
    last = status["last_runs"][0] if status["last_runs"] else None
    at_once = ran.code == 130 and not ran.out  # a second signal: as a crash
    if ran.code in (0, 3, 130, 5) and not at_once:
        assert last is not None, ran
        assert (last["exit_code"], last["outcome"]) == (ran.code, _OUTCOMES[ran.code]), (last, ran)
    elif last is not None and last["outcome"] != "done":
        assert last["outcome"] in (_OUTCOMES.get(ran.code), "died"), (last, ran)
