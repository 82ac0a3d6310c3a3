"""A set of three whose primary dies or steps down at each transaction of a job."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.faults import aftermath
from tests.faults.crashes.jobs import JOBS
from tests.faults.meddling import hook
from tests.faults.places import Place
from tests.faults.tally import Tally
from tests.tiers import tier

#: How many transactions each job commits, at the least.
TRANSACTIONS = {
    "first run": 7,
    "first run online": 8,
    "roll-up": 4,
    "restore": 1,
    "erased": 13,
    "erased online": 7,
}
HOWS = [(how, when) for when in ("sent", "answered") for how in ("is killed", "steps down")]


def _moments() -> list[Any]:
    """Proofs try each transaction of each job once, in turn before it is committed and after that, with a
    primary that dies and with one that steps down."""
    every = [(job, at) for job, most in TRANSACTIONS.items() for at in range(1, most + 1)]
    return [
        pytest.param(
            job, at, how, when, id=f"{job}, transaction {at} {when}: it {how}",
            marks=tier(is_first=False, is_proof=(how, when) == HOWS[number % len(HOWS)]),
        )
        for number, (job, at) in enumerate(every)
        for how, when in HOWS
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "at", "how", "when"), _moments())
def test_the_primary_changes_at_a_transaction(
    three: Place, tally: Tally, name: str, at: int, how: str, when: str
) -> None:
    """The run goes on at the new one or ends and says why; given again, it does all the work."""
    job = JOBS[name]
    scene = three.empty(job.text)
    job.prepare(scene)
    primary, term = three.servers.primary, three.servers.term
    fault: dict[str, Any] = {"at": at, "on": ["commitTransaction"], "answered": when == "answered"}
    if how == "is killed":
        fault |= {"signal": signal.SIGKILL, "to": primary.process.pid}
    else:
        fault |= {"depose": True}
    ran = scene.run(*job.command, meddle=hook(at_command=fault))
    three.servers.make_well()
    assert three.servers.term > term, "it never struck"
    job.after(scene)
    toll = scene.toll()
    tally("MongoDB: changes of the primary", f"{name}, {at}, {how}, {when}", runs=4, **toll._asdict())
    assert toll[1:] == (0, 0), ran
    aftermath.said(ran, codes={1, job.code})
    if job.recover:
        scene.well(*job.recover)
    job.recovered(scene)
    scene.finish()
