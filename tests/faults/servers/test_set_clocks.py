"""Hosts whose clocks are an hour apart, or are set while they work (libfaketime)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from tests.faults.faked_time import Host, ended
from tests.faults.scene import MakeScene, Scene
from tests.faults.stopping import expire_the_lease
from tests.faults.tally import Tally

Db = Database[dict[str, Any]]
HOUR = 3600
GROUP = "clocks that are set"
STEPS = ("before summaries", "before put manifest", "before receipt", "before delete")
pytestmark = pytest.mark.proof


def young(it: Scene) -> int:
    """A bucket of an hour ago, which no run may archive."""
    it.insert(700, datetime.now(UTC) - timedelta(hours=1), 4)
    return 700


def check(it: Scene, tally: Tally, fault: str, runs: int) -> None:
    """Nothing is lost, nothing is double, and the work is finished."""
    toll = it.toll()
    tally(GROUP, fault, runs=runs + 3, **toll._asdict())
    assert toll[1:] == (0, 0)
    it.finish()
    it.check_restores()


@pytest.mark.parametrize("is_expired", [False, True], ids=["held", "expired"])
@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["the first is ahead", "the first is behind"])
@pytest.mark.parametrize("at", STEPS)
def test_two_hosts_race_for_a_lease(
    scene: MakeScene, database: Db, tally: Tally, at: str, ahead: int, is_expired: bool
) -> None:
    it = scene()
    first, second = Host(it, "first"), Host(it, "second")
    first.set(ahead / 2)
    second.set(-ahead / 2)
    with first.begun(at=at) as run:
        before = it.everything()
        if is_expired:
            expire_the_lease(database)
        ran = second.run()
        assert ran.code == (0 if is_expired else 11), ran
        assert is_expired or it.everything() == before
        other = ended(run)
    assert other.code == (11 if is_expired else 0), other
    check(it, tally, f"a race of hosts {ahead} s apart, {at}, expired: {is_expired}", 2)


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_host_that_is_an_hour_off_changes_nothing_and_says_so(
    scene: MakeScene, tally: Tally, off: int
) -> None:
    it = scene()
    host, number = Host(it, "host"), young(it)
    assert host.run(by_clock=True).code == 0
    it.insert(701, datetime(2018, 6, 30, 23, tzinfo=UTC), 4)
    before = it.everything()
    host.set(off)
    ran = host.run(by_clock=True)
    assert ran.code == 1, ran
    for said in ("this machine's clock says", "that of MongoDB", "more than 5 minutes", "--now"):
        assert said in ran.policy("it")["error"]
    assert it.everything() == before
    host.set(0)
    assert host.run(by_clock=True).code == 0
    assert it.truth.live() == [it.truth.units[number]]
    tally(GROUP, f"an hour off: {off}", runs=3, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)


@pytest.mark.parametrize("by", [-HOUR, HOUR], ids=["back", "forward"])
@pytest.mark.parametrize("at", STEPS)
def test_a_clock_that_is_set_in_the_middle_of_a_run(scene: MakeScene, tally: Tally, at: str, by: int) -> None:
    it = scene()
    host, number = Host(it, "host"), young(it)
    with host.begun(at=at, by_clock=True) as run:
        host.set(by)
        ran = ended(run)
    assert ran.code == 0, ran
    assert it.truth.live() == [it.truth.units[number]]
    host.set(0)
    assert host.run(by_clock=True).code == 0
    assert it.truth.live() == [it.truth.units[number]]
    it.database["it"].delete_one({"_id": number})
    it.truth.removed(number)
    tally(GROUP, f"set by {by} s, {at}", runs=2, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)


@pytest.mark.parametrize(("at", "code"), [*((step, 0) for step in STEPS[:-1]), (STEPS[-1], 1)])
def test_a_run_after_one_that_died_and_whose_clock_was_ahead(
    scene: MakeScene, database: Db, tally: Tally, at: str, code: int
) -> None:
    """By eight minutes, of which five are allowed: it stops where the archive tells of a later time. A copy
    of which nothing is recorded yet has no grace to wait for, whatever its time."""
    it = scene()
    ahead, behind = Host(it, "ahead"), Host(it, "behind")
    number = young(it)
    ahead.set(240)
    behind.set(-240)
    with ahead.begun(at=at, by_clock=True) as run:
        run.kill()
    expire_the_lease(database)
    ran = behind.run(by_clock=True)
    assert ran.code == code, ran
    if code:
        error = ran.policy("it")["error"]
        assert "the archive recorded" in error and "Nothing was archived, deleted or expired" in error
        behind.set(0)
        assert behind.run(by_clock=True).code == 0
    assert it.truth.live() == [it.truth.units[number]]
    tally(GROUP, f"eight minutes behind one that died {at}", runs=2 + code, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)
