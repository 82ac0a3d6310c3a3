"""Clocks that are wrong, that jump in the middle of a run, and readings from another time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.jobs.core.lease import COLLECTION as LEASES
from tests.faults.scene import NOW, OFFLINE, ONLINE, READING, ROLLUP, SAMPLES, SLOTS, MakeScene, Scene
from tests.faults.stopping import stopped
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine, Meddle

Db = Database[dict[str, Any]]
MODELS = {"slots": SLOTS, "samples": SAMPLES, "reading": READING}
ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
HOUR, YEARS = 3600.0, 10 * 365 * 86400.0
SKEWS = {"hours ahead": 6 * HOUR, "hours behind": -6 * HOUR, "years ahead": YEARS, "years behind": -YEARS}
GROUP = "clocks"


def clock_off_by(seconds: float, **more: Any) -> Meddle:
    return "tests.faults.other_host", {"skew": seconds, **more}


def young(it: Scene) -> list[int]:
    """Buckets of an hour and of a day ago: no run may archive them. Returns their `_id`s."""
    present = datetime.now(UTC)
    for number, ago in ((700, 1), (701, 24)):
        it.insert(number, present - timedelta(hours=ago), 4)
    return [700, 701]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("archive", "wrong"),
    [
        ("offline", "years ahead"),
        pytest.param("online", "years ahead", marks=pytest.mark.proof),
        ("offline", "hours behind"),
        pytest.param("offline", "hours ahead", marks=pytest.mark.proof),
        pytest.param("offline", "years behind", marks=pytest.mark.proof),
    ],
)
def test_a_wrong_clock_is_refused(scene: MakeScene, tally: Tally, archive: str, wrong: str) -> None:
    it = scene(SLOTS + ROLLUP + ARCHIVES[archive])
    ids = young(it)
    before = it.everything()
    verbs = ("run", "plan", "rollup", "archive", "audit") if wrong == "years ahead" else ("run",)
    for verb in verbs:
        ran = it.run(verb, now=None, meddle=clock_off_by(SKEWS[wrong]))
        assert ran.code == 1, ran
        for said in ("this machine's clock says", "that of MongoDB", "more than 5 minutes", "--now"):
            assert said in ran.policy("it")["error"]
    assert it.everything() == before
    found = it.run("check", now=None, meddle=clock_off_by(SKEWS[wrong])).json
    assert [one["severity"] for one in found["findings"] if one["code"] == "clock"] == ["error"]
    assert found["exit_code"] == 1
    # Once it is right, or nearly so: what has expired goes, what is young stays.
    it.well(now=None, meddle=clock_off_by(120.0))
    assert {
        number for number in it.truth.units if any(it.truth.units[number] == u for u in it.truth.live())
    } == {*ids}
    tally(GROUP, f"{archive}: {wrong}", runs=len(verbs) + 2, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("leap", "at"),
    [
        pytest.param(YEARS, "before summaries"),
        pytest.param(YEARS, "before put manifest", marks=pytest.mark.proof),
        pytest.param(YEARS, "before delete", marks=pytest.mark.proof),
        pytest.param(-YEARS, "before summaries", marks=pytest.mark.proof),
        pytest.param(-YEARS, "before put manifest"),
        pytest.param(6 * HOUR, "before delete", marks=pytest.mark.proof),
    ],
)
def test_a_clock_that_jumps_in_the_middle_moves_nothing(
    scene: MakeScene, tally: Tally, leap: float, at: str
) -> None:
    it = scene()
    ids = young(it)
    it.well(now=None, meddle=clock_off_by(0, leap=leap, at=at))
    assert sorted(it.truth.live()) == sorted(it.truth.units[number] for number in ids)
    tally(GROUP, f"a jump of {leap / HOUR:,.0f} hours, {at}", runs=1, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)
    for number in ids:
        it.database["it"].delete_one({"_id": number})
        it.truth.removed(number)
    it.finish(now=datetime.now(UTC).replace(microsecond=0))


@pytest.mark.proof
def test_the_lease_goes_by_the_server(
    scene: MakeScene, elsewhere: CommandLine, database: Db, tally: Tally
) -> None:
    """A host whose clock is years ahead does not take a lease for expired, nor give itself a longer one."""
    it = scene()
    with stopped(it, "before put manifest") as run:
        before = it.everything()
        for wrong in SKEWS.values():
            ran = it.run(meddle=clock_off_by(wrong, host="other"), by=elsewhere)
            assert ran.code == 11, ran
        assert it.everything() == before
    assert run.code == 0
    for wrong in (YEARS, -YEARS):
        it.well(meddle=clock_off_by(wrong, host="other"))
        (lease,) = database[LEASES].find()
        assert abs(lease["expires_at"] - datetime.now(UTC)) < timedelta(minutes=5)
    tally(GROUP, "a lease that is held, or left", runs=7, **it.toll()._asdict())
    it.finish()


def _from_other_times() -> list[Any]:
    short = {("slots", "offline"), ("samples", "online")}
    return [
        pytest.param(model, archive, marks=[] if (model, archive) in short else [pytest.mark.proof])
        for model in MODELS
        for archive in ARCHIVES
    ]


@pytest.mark.proof
@pytest.mark.parametrize(("model", "archive"), _from_other_times())
def test_readings_of_the_future_move_no_cutoff(
    scene: MakeScene, tally: Tally, model: str, archive: str
) -> None:
    it = scene(MODELS[model] + ROLLUP + ARCHIVES[archive])
    past, later = datetime(1971, 1, 2, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    it.insert(800, past, 4)
    future = [NOW + timedelta(hours=1), NOW + timedelta(days=400), later]
    for number, at in enumerate(future, start=801):
        it.insert(number, at, 4)
    report = it.well()
    assert report["archive"]["deleted"] == 13
    units = it.truth.units
    assert sorted(it.truth.live()) == sorted(units[number] for number in (801, 802, 803))
    for name in ("it_hourly", "it_daily"):
        assert it.database[name].count_documents({"end": {"$gt": NOW}}) == 0
        assert it.database[name].count_documents({"start": {"$lt": datetime(1972, 1, 1, tzinfo=UTC)}}) > 0
    assert it.toll()[1:] == (0, 0)
    # They keep nothing from being archived that comes after them, and are archived when their time has come.
    it.insert(12, it.when(5, 12), 4, value=90.0)
    it.insert(13, NOW - timedelta(days=40), 4, value=91.0)
    assert it.well()["archive"]["deleted"] == 2
    tally(GROUP, f"readings of other times: {model} {archive}", runs=5, **it.toll()._asdict())
    assert it.toll()[1:] == (0, 0)
    assert it.well()["archive"]["buckets"] == 0
    it.finish(now=later + timedelta(days=60))


@pytest.mark.proof
def test_an_upload_in_hand_is_not_cleared_by_a_clock_that_is_ahead(scene: MakeScene, tally: Tally) -> None:
    """Of another host and another policy, in the same store. An abandoned one goes after a day."""
    it = scene()
    folder = it.folder / "store" / ".tmp"
    it.well("rollup")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("in hand", "abandoned"):
        (folder / name).write_bytes(b"half of a part")
    long_ago = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(folder / "abandoned", (long_ago, long_ago))
    it.well(meddle=clock_off_by(YEARS))
    assert [path.name for path in folder.iterdir()] == ["in hand"]
    tally(GROUP, "another's upload, and a clock years ahead", runs=2, **it.toll()._asdict())
    (folder / "in hand").unlink()
    it.finish()
