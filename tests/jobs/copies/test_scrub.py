"""`run` looks after a share of the archive once a day: what the store has lost is told, and put back."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.archivers.copying.repairing import PERIOD, share_of
from bucketwise.archivers.stores import open_store
from bucketwise.config.tables import Store
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.run.verb import RUN, SCRUB
from tests.jobs.command import Ran
from tests.jobs.copies.test_copies import copied, files, part
from tests.jobs.counting import CountingStore, run_counted, ticks_policy
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after


def _run(place: Place, day: int) -> Ran:
    now = datetime.fromisoformat(NOW) + timedelta(days=day)
    return place("run", "--json", "-p", "ticks", now=now.isoformat())


def _flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-100] + bytes(100))


@given(st.integers(0, 4000), st.integers(0, 1000), st.integers(-10, 5000), st.booleans())
def test_each_day_has_its_turn_within_the_period(first: int, more: int, begin: int, grows: bool) -> None:
    """Also while the archive gains a day each day."""
    seen = set[int]()
    for look in range(PERIOD):
        last = first + more + look * grows
        found = share_of((first, last), begin, 1 / (PERIOD - 1))
        assert first <= found.first <= found.last <= last
        seen |= set(range(found.first, found.last + 1))
        begin = found.next
    assert seen >= set(range(first, first + more + 1))


@pytest.mark.proof
@after("run")
def test_what_a_store_has_lost_is_told_by_each_run_until_it_is_put_back(place: Place) -> None:
    assert "scrub" not in _run(place, 0).policy("ticks"), "what is archived today was read back today"
    ran = _run(place, 1)
    assert (ran.code, ran.policy("ticks")["scrub"]["parts"]) == (0, 1), ran
    assert "scrub" not in _run(place, 1).policy("ticks"), "once a day"
    lost = part(place.folder / "store")
    data = lost.read_bytes()
    lost.unlink()
    for day in (2, 2, 3):
        ran = _run(place, day)
        assert ran.code == 5, ran
        (damage,) = ran.policy("ticks")["scrub"]["damage"]
        assert (damage["code"], damage["place"]) == ("part-missing", f"file://{lost}")
    lost.write_bytes(data)
    ran = _run(place, 3)
    told = ran.policy("ticks")["scrub"]
    assert (ran.code, told["lost"], told["parts"], told["parts_read"]) == (0, 0, 0, 1), ran
    assert "scrub" not in _run(place, 3).policy("ticks")


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("damaged", ["store", "b"])
@pytest.mark.parametrize("damage", ["missing", "manifest", "flipped"])
def test_it_is_put_back_from_where_it_is_not_damaged(place: Place, damaged: str, damage: str) -> None:
    sample = '[policies.ticks.audit]\nsample = "100%"\n' if damage == "flipped" else ""
    copied(place, "b", policies=POLICIES + sample)
    assert _run(place, 0).code == 0
    folder, before = place.folder / damaged, files(place.folder / "store")
    path = next(folder.rglob("manifests/*.json")) if damage == "manifest" else part(folder)
    path.unlink() if damage != "flipped" else _flip(path)
    ran = _run(place, 1)
    assert ran.code == 3, ran
    told = ran.policy("ticks")["scrub"]
    assert (told["repaired"], told["lost"]) == (1, 0)
    assert told["objects"][0]["place"] == f"file://{path}"
    assert files(place.folder / "store") == files(place.folder / "b") == before
    assert _run(place, 2).code == 0


@pytest.mark.proof
@pytest.mark.parametrize("days", [70, 240])
def test_nothing_but_the_share_grows(
    database: Database[dict[str, Any]], mongodb_uri: str, file_store: Store, days: int
) -> None:
    policy = ticks_policy(to="offline")
    readings = [{"symbol": "A", "d": START + timedelta(days=it), "p": 1.0} for it in range(days)]
    database["ticks"].insert_many(readings)
    now = START + timedelta(days=days + 31)

    def asked(steps: Any, day: int) -> dict[str, int]:
        store: Any = CountingStore(open_store(file_store))
        at = now + timedelta(days=day)
        (result,), counts = run_counted(mongodb_uri, database.name, steps, [policy], store, at)
        assert result.exit_code == 0, result.error
        return {**store.asked, "commands": sum(counts.commands.values())}

    asked(RUN, 0)
    commits = database["bucketwise_receipts"].count_documents({"kind": "offline"})
    assert commits >= days // 31
    asked([SCRUB], 0)  # the first one creates indexes
    idle = asked([SCRUB], 0)["commands"]
    looks = [asked([SCRUB], day) for day in range(1, PERIOD + 1)]
    assert asked([SCRUB], PERIOD) == {"commands": idle}, "once a day"
    manifests = sum(it.get("get_bytes", 0) for it in looks)
    assert commits <= manifests <= 2 * commits, "all had their turn, and some began another one"
    for it in looks:
        share = it.get("get_bytes", 0)
        assert share <= commits // PERIOD + 1
        assert it.get("list", 0) == (2 if share else 0)
        assert it["commands"] <= idle + 4 + 4 * share
        assert it.keys() <= {"get_bytes", "list", "listed", "commands"}


@pytest.mark.proof
def test_nothing_is_put_where_a_disk_is_not_mounted(place: Place) -> None:
    copied(place, "b")
    assert _run(place, 0).code == 0
    store = place.folder / "store"
    store.rename(place.folder / "away")
    store.mkdir()
    ran = _run(place, 1)
    assert ran.code == 5, ran
    assert "bucketwise repair" in ran.policy("ticks")["error"]
    assert files(store) == {}
    store.rmdir()
    (place.folder / "away").rename(store)
    ran = _run(place, 1)
    assert (ran.code, ran.policy("ticks")["scrub"]["repaired"]) == (0, 0), ran


@pytest.mark.proof
def test_a_record_that_no_copy_mends_is_told_all_the_same(place: Place) -> None:
    copied(place, "b")
    assert _run(place, 0).code == 0
    receipts = place.database.bucketwise_receipts
    assert receipts.update_many({"kind": "offline"}, {"$inc": {"readings": 1}}).modified_count == 1
    for day in (1, 2):
        ran = _run(place, day)
        assert ran.code == 5, ran
        assert [it["code"] for it in ran.policy("ticks")["scrub"]["damage"]] == ["record-differs"]
    receipts.update_many({"kind": "offline"}, {"$inc": {"readings": -1}})
    assert _run(place, 3).code == 0


def test_metrics_count_what_is_put_back() -> None:
    metrics = Metrics()
    metrics.record("run", Result("ticks", 3, {"scrub": {"repaired": 2}}))
    metrics.record("repair", Result("ticks", 0, {"repaired": 1}))
    assert 'bucketwise_repaired_objects_total{policy="ticks"} 3.0' in metrics.text().decode()
