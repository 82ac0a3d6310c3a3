"""A run is stopped in the middle (SIGSTOP), outlives its lease, and goes on when another did its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.tables import Store
from bucketwise.jobs.core.ledger import COLLECTION as RUNS
from tests.faults.crashes.elsewhere import COPY, like_its_copy
from tests.faults.crashes.jobs import compacted, in_small_commits
from tests.faults.scene import OFFLINE, ONLINE, ROLLUP, SAMPLES, SLOTS, Scene
from tests.faults.stopping import expire_the_lease, set_parameter, stopped
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine, Meddle
from tests.tiers import tier

Db = Database[dict[str, Any]]
MODELS = {"slots": SLOTS, "samples": SAMPLES}
ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
OTHER: Meddle = ("tests.faults.other_host", {"host": "other"})
LEASE_HELD_OR_LOST = 11
#: Of a run that finds nothing but its own work; the others need what `SCENARIOS` prepare.
STEPS = {
    "offline": [
        "before summaries",
        "summaries: before its commit",
        "before put part",
        "before put manifest",
        "after put manifest",
        "receipt: before its commit",
        "before delete",
        "delete: before its commit",
        "after delete",
    ],
    "online": ["before copy", "copy: before its commit", "before delete", "delete: before its commit"],
}
AMEND = [
    "before put note",
    "before put part",
    "after put manifest",
    "receipt: before its commit",
    "before delete manifest",
    "before delete part",
]
MERGE = [
    "before put part",
    "before put buckets",
    "before put manifest",
    "after put manifest",
    "before receipt",
    "receipt: before its commit",
    "after receipt",
]
DROP = [
    "before put note",
    "before delete manifest",
    "after delete manifest",
    "before delete part",
    "after delete part",
]


@pytest.fixture
def short_transactions(client: MongoClient[dict[str, Any]]) -> Iterator[None]:
    """One that stands still ends after a second, instead of a minute."""
    with set_parameter(client, "transactionLifetimeLimitSeconds", 1):
        yield


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    bucketwise: CommandLine,
    file_store: Store,
) -> Scene:
    model, archive = request.param
    text = MODELS[model] + ROLLUP + ARCHIVES[archive]
    return Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, text)


# What lies there before the run


def filled(it: Scene) -> None:
    it.fill(buckets=12, readings=4)


def copied_and_changed(it: Scene) -> None:
    """All is copied and none deleted; then buckets change, so that a run has to amend the commit."""
    filled(it)
    text = it.text
    it.text += "delete = false\n"
    it.write_config()
    it.well()
    it.text = text
    it.write_config()
    for number in (2, 3):
        it.insert(number, it.when(number, 12), 4, value=70.0)


def killed(it: Scene) -> None:
    """A run died before its commit: its files are to be cleared."""
    filled(it)
    with stopped(it, "before put manifest") as first:
        os.kill(first.pid, signal.SIGKILL)
    assert first.code == -signal.SIGKILL


SCENARIOS = {
    "plain": filled,
    "amend": copied_and_changed,
    "clear": killed,
    "merge": in_small_commits,
    "drop": compacted,
}


def _tries() -> list[Any]:
    names = [
        ("plain", model, archive, at) for archive in ARCHIVES for model in MODELS for at in STEPS[archive]
    ]
    names += [("amend", model, "offline", at) for model in MODELS for at in AMEND]
    names += [("amend", "samples", "online", at) for at in ("before copy", "delete: before its commit")]
    names += [("clear", model, "offline", "before delete part") for model in MODELS]
    names += [("merge", model, "offline", at) for model in MODELS for at in MERGE]
    names += [("drop", "slots", "offline", at) for at in DROP]
    first = {
        ("plain", "slots", "online", "delete: before its commit"),
        ("amend", "slots", "offline", "receipt: before its commit"),
    }
    few = {
        ("plain", "samples", "offline", "before put manifest"),
        ("clear", "slots", "offline", "before delete part"),
        ("merge", "samples", "offline", "before put manifest"),
        ("drop", "slots", "offline", "before delete manifest"),
    }
    return [
        pytest.param(
            scenario, (model, archive), at, id=f"{scenario}, {model} {archive}: {at}",
            marks=tier(
                is_first=(scenario, model, archive, at) in first,
                is_proof=(scenario, model, archive, at) in few,
            ),
        )
        for scenario, model, archive, at in names
    ]  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize(("scenario", "scene", "at"), _tries(), indirect=["scene"])
def test_another_host_finishes_meanwhile(
    scene: Scene,
    scenario: str,
    at: str,
    elsewhere: CommandLine,
    tally: Tally,
    short_transactions: None,  # noqa: ARG001
) -> None:
    SCENARIOS[scenario](scene)
    meet(scene, at, elsewhere)
    tally("runs stopped past their lease", at, runs=5, **scene.toll()._asdict())
    scene.finish()
    scene.check_restores()


@pytest.mark.proof
@pytest.mark.parametrize("at", ["before put manifest", "before put buckets"])
def test_what_comes_to_a_copy_too_late_goes_from_there(
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    bucketwise: CommandLine,
    file_store: Store,
    at: str,
    elsewhere: CommandLine,
    short_transactions: None,  # noqa: ARG001
) -> None:
    (tmp_path / "b").mkdir()
    scene = Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, COPY + SLOTS + ROLLUP + OFFLINE)
    in_small_commits(scene)
    assert meet(scene, f"{at} in the copy", elsewhere)
    with pytest.raises(AssertionError, match="it/"):
        like_its_copy(scene)
    scene.finish()
    like_its_copy(scene)
    scene.check_restores()


def meet(it: Scene, at: str | int, elsewhere: CommandLine) -> bool:
    """Whether the run ever came to the step. The other host is refused while the lease runs, and does all
    the work after. The first changes nothing any more and says that its lease is lost."""
    with stopped(it, at) as first:
        if first.step is None:
            return False
        before = it.everything()
        assert it.run(meddle=OTHER, by=elsewhere).code == LEASE_HELD_OR_LOST
        assert it.everything() == before
        expire_the_lease(it.database)
        assert it.run(meddle=OTHER, by=elsewhere).code == 0
        assert it.toll()[1:] == (0, 0), first
        finished = it.everything()
    toll = it.toll()
    assert toll[1:] == (0, 0), (toll, first)
    assert first.code == LEASE_HELD_OR_LOST, first
    after = it.everything()
    # Files of a commit that comes too late, which the next run clears; one that was being written is no more.
    left = {name for name in changes(finished, after) if name in after or not name.startswith(".tmp/")}
    others = [name for name in left if not name.startswith(("it/data/", "it/meta/"))]
    assert others == [], [bson.decode(it) for name in others for it in {*finished[name]} ^ {*after[name]}]
    entries = list(it.database[RUNS].find({"exit_code": LEASE_HELD_OR_LOST}))
    assert [(entry["host"]["name"], entry["outcome"]) for entry in entries] == [("first", "held elsewhere")]
    return True


def changes(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


#: The online archive leaves nothing to clear, and has no commits.
_CUT_OFF = [
    pytest.param(scenario, (model, archive), id=f"{scenario}, {model} {archive}")
    for scenario in SCENARIOS
    for model in MODELS
    for archive in ARCHIVES
    if archive == "offline" or scenario in ("plain", "amend")
]


@pytest.mark.soak
@pytest.mark.parametrize(("scenario", "scene"), _CUT_OFF, indirect=["scene"])
@pytest.mark.parametrize("at", range(1, 41, 3))
def test_at_each_step(
    scene: Scene,
    scenario: str,
    at: int,
    elsewhere: CommandLine,
    tally: Tally,
    short_transactions: None,  # noqa: ARG001
) -> None:
    SCENARIOS[scenario](scene)
    if meet(scene, at, elsewhere):
        tally("runs stopped past their lease", f"{scenario}: {at}", runs=5, **scene.toll()._asdict())
    scene.finish()
