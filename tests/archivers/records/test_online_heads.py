"""The collections of an online archive are those that were left, with all that was put into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.online_heads import HEADS, OnlineHeads
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, samples_overflow
from tests.archivers.harness import Cycle, nothing

Document = dict[str, Any]


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    cycle = Cycle(database, samples_overflow().online(), file_store).load()
    cycle.run()
    return cycle


def heads(cycle: Cycle) -> OnlineHeads:
    return OnlineHeads(cycle.database, cycle.policy)


def least(cycle: Cycle) -> dict[str, int]:
    return {what: head.least for what, head in heads(cycle).read()[0].items()}


def drop(database: Database[Document]) -> None:
    database["iot_archive"].drop()


def rename(database: Database[Document]) -> None:
    database["iot_archive"].rename("elsewhere")


def replace(database: Database[Document]) -> None:
    held = list(database["iot_archive"].find())
    drop(database)
    database["iot_archive"].insert_many(held)


def take_one(database: Database[Document]) -> None:
    database["iot_archive"].delete_one({})


def take_overflow(database: Database[Document]) -> None:
    database["iot_archive_overflow"].delete_one({})


FAULTS = [
    (drop, "archive-missing"),
    (rename, "archive-missing"),
    (replace, "archive-replaced"),
    (take_one, "archive-short"),
    (take_overflow, "archive-short"),
]


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_run_halts_before_anything_else(
    cycle: Cycle, fault: Callable[[Database[Document]], None], code: str
) -> None:
    fault(cycle.database)
    names = set(cycle.database.list_collection_names())
    for attempt in (cycle.run, lambda: cycle.restore("back"), lambda: cycle.erase({"sensor": "7"})):
        with pytest.raises(DamagedError) as raised:
            attempt()
        assert raised.value.code == code
    assert set(cycle.database.list_collection_names()) == names


def test_uuids_are_told_as_people_write_them(cycle: Cycle) -> None:
    before = heads(cycle).read()[0]["buckets"].uuid
    replace(cycle.database)
    told = rf"another collection \(UUID [0-9a-f-]{{36}}\) than the archive was \({before}\)"
    with pytest.raises(DamagedError, match=told):
        cycle.run()


def test_another_name_in_the_policy_halts_unless_the_collections_have_it_too(
    cycle: Cycle, file_store: Store
) -> None:
    database, case = cycle.database, cycle.case
    other = Cycle(database, case.with_archive(collection="iot_archiv"), file_store, fence=9)
    with pytest.raises(DamagedError, match=r"archive\.collection names it, and the archive is iot_archive"):
        other.run()
    for name in ("iot_archive", "iot_archive_overflow"):
        database[name].rename(name.replace("archive", "archiv"))
    other.run()
    assert heads(other).read()[0]["buckets"].name == "iot_archiv"


def test_heads_count_what_comes_and_goes(cycle: Cycle) -> None:
    database = cycle.database

    def there() -> dict[str, int]:
        names = {"buckets": "iot_archive", "overflow": "iot_archive_overflow"}
        return {what: database[name].count_documents({}) for what, name in names.items()}

    assert least(cycle) == there() and all(there().values())
    series = cycle.case.readings[0][0]
    cycle.erase({name: str(it) for name, it in zip(cycle.policy.series_names, series, strict=True)})
    assert least(cycle) == there()
    for _ in range(2):
        cycle.restore(cycle.policy.collection, pinned_until=LATER)
        assert not any(least(cycle).values())  # all is live again
    database[cycle.policy.collection].update_many({}, {"$set": {"note": "late"}})
    cycle.run(LATER)
    assert least(cycle) == there()


def test_an_older_archive_gets_a_baseline_once(cycle: Cycle) -> None:
    before = heads(cycle).read()[0]
    assert heads(cycle).read()[1] is None
    forget(cycle)
    cycle.run()
    assert heads(cycle).read() == (before, LATER)
    cycle.run(LATER.replace(year=2031))
    assert heads(cycle).read() == (before, LATER)


@pytest.mark.parametrize("fault", [drop, rename])
def test_an_older_archive_that_is_gone_halts(
    cycle: Cycle, fault: Callable[[Database[Document]], None]
) -> None:
    forget(cycle)
    fault(cycle.database)
    with pytest.raises(DamagedError, match="receipts say that it holds the archive"):
        cycle.run()


def forget(cycle: Cycle) -> None:
    cycle.database["bucketwise_receipts"].delete_one({"_id.name": HEADS})


def test_what_was_restored_on_purpose_is_adopted(cycle: Cycle) -> None:
    replace(cycle.database)
    take_one(cycle.database)
    heads(cycle).adopt(nothing)
    cycle.run()
    assert least(cycle)["buckets"] == cycle.database["iot_archive"].count_documents({})


def test_what_two_restores_name_is_counted_once(cycle: Cycle) -> None:
    """Receipts of both say that a bucket is live again; it is deleted because of one of them."""
    held, source = heads(cycle).read(), cycle.policy.collection
    some = cycle.database["iot_archive"].find_one({"_id": "004"})
    assert some is not None
    cycle.restore(source, since=some["first"])
    cycle.restore(source)
    cycle.unpin()
    cycle.run()
    assert heads(cycle).read() == held
    assert cycle.run().buckets == 0
