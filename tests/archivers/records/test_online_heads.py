"""The collections of an online archive are those that were left, with all that was put into them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.records.deletions import COLLECTIONS
from bucketwise.archivers.records.online_heads import Head, OnlineHeads
from bucketwise.archivers.records.receipt_files import seal_of
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from tests.archivers.builders import CODEC, LATER, samples_overflow
from tests.archivers.harness import Cycle, nothing
from tests.archivers.states import States, all_archived

Document = dict[str, Any]
KEY = "k" * 32


@pytest.fixture
def cycle(prepared: States) -> Cycle:
    return prepared(samples_overflow().online(), all_archived)


def heads(cycle: Cycle) -> OnlineHeads:
    return OnlineHeads(cycle.database, cycle.policy)


def least(cycle: Cycle) -> dict[str, int]:
    return {what: head.least for what, head in held(cycle).items()}


def held(cycle: Cycle) -> dict[str, Head]:
    return dict(heads(cycle).read().heads)


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


@pytest.mark.in_turn(3)
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
    before = held(cycle)["buckets"].uuid
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
    assert held(other)["buckets"].name == "iot_archiv"


@pytest.mark.proof
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
        assert cycle.verify().bad == []
        assert not any(least(cycle).values())  # all is live again
    database[cycle.policy.collection].update_many({}, {"$set": {"note": "late"}})
    cycle.run(LATER)
    assert least(cycle) == there()
    assert cycle.verify().bad == []


@pytest.mark.proof
def test_an_older_archive_gets_a_baseline_once(cycle: Cycle) -> None:
    before = held(cycle)
    assert heads(cycle).read().baseline is None
    forget(cycle)
    forget_receipts(cycle)
    check_baseline(cycle, before)


@pytest.mark.proof
def test_heads_that_no_receipt_tells_become_a_baseline_once(cycle: Cycle) -> None:
    """As the version before this one has left them; a restore may come before the next run."""
    forget_receipts(cycle)
    check_baseline(cycle, held(cycle))
    forget_receipts(cycle)
    cycle.restore(cycle.policy.collection)
    assert not any(least(cycle).values())
    cycle.run()
    assert heads(cycle).read().receipt == 0  # nothing must stay any more
    assert cycle.verify().bad == []


def check_baseline(cycle: Cycle, before: dict[str, Head]) -> None:
    for now in (LATER, LATER.replace(year=2031)):
        cycle.run(now)
        record = heads(cycle).read()
        assert (record.heads, record.baseline) == (before, LATER)
        assert record.receipt is not None
    assert [it.code for it in audit_policy(cycle.context(LATER.replace(year=2031))).findings] == [
        "archive-baseline"
    ]


@pytest.mark.parametrize("fault", [drop, rename])
def test_an_older_archive_that_is_gone_halts(
    cycle: Cycle, fault: Callable[[Database[Document]], None]
) -> None:
    forget(cycle)
    forget_receipts(cycle)
    fault(cycle.database)
    with pytest.raises(DamagedError, match="receipts say that it holds the archive"):
        cycle.run()


def records(cycle: Cycle) -> Any:
    return cycle.database.get_collection("bucketwise_receipts", codec_options=CODEC)


def forget(cycle: Cycle) -> None:
    records(cycle).delete_one({"_id.name": COLLECTIONS})


def forget_receipts(cycle: Cycle) -> None:
    """Receipts as they were before they told any heads, or superseded versions."""
    records(cycle).update_one({"_id.name": COLLECTIONS}, {"$unset": {"receipt": "", "baseline": ""}})
    previous = None
    for it in list(
        records(cycle).find({"sequence": {"$exists": True}, "previous": {"$exists": True}}).sort("_id")
    ):
        new = {"heads", "is_baseline", *(("ids", "fingerprints") if it["kind"] == "superseded" else ())}
        told = {key: value for key, value in it.items() if key not in new}
        told["previous"] = previous
        previous = told["sha256"] = seal_of(told)
        records(cycle).replace_one({"_id": it["_id"]}, told)
    records(cycle).update_one({"_id.name": "last"}, {"$set": {"sha256": previous}})


def test_what_was_restored_on_purpose_is_adopted(cycle: Cycle) -> None:
    replace(cycle.database)
    take_one(cycle.database)
    heads(cycle).adopt(cycle.context().deletions, nothing)
    cycle.run()
    assert least(cycle)["buckets"] == cycle.database["iot_archive"].count_documents({})


@pytest.mark.proof
def test_what_comes_back_as_it_was_is_counted_once(cycle: Cycle) -> None:
    """Somebody puts archived buckets into the source again, with no restore."""
    held = heads(cycle).read().heads
    cycle.load()
    assert cycle.run().deleted == held["buckets"].least
    assert heads(cycle).read().heads == held
    assert cycle.run().buckets == 0
    assert cycle.verify().bad == []


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("is_all", [True, False])
def test_what_no_receipt_names_any_more_is_adopted(cycle: Cycle, is_all: bool) -> None:
    """As where a database was restored without its newest receipts, or without any."""
    backup, some = list(records(cycle).find()), cycle.database["iot_archive"].find_one({"_id": "004"})
    assert some is not None
    cycle.database[cycle.policy.collection].insert_one({**some, "_id": "later"})
    cycle.run()
    before = least(cycle)
    records(cycle).delete_many({})
    if not is_all:
        records(cycle).insert_many(backup)
    assert "copy-unknown" in {it.code for it in cycle.verify().bad}
    assert archive_of(cycle.context()).needs_adoption()
    cycle.adopt()
    assert cycle.verify().bad == []
    assert least(cycle) == before
    cycle.run()
    cycle.restore(cycle.policy.collection)
    assert not any(least(cycle).values())


@pytest.mark.proof
def test_what_two_restores_name_is_counted_once(cycle: Cycle) -> None:
    """Receipts of both say that a bucket is live again; it is deleted because of one of them."""
    before, source = held(cycle), cycle.policy.collection
    some = cycle.database["iot_archive"].find_one({"_id": "004"})
    assert some is not None
    cycle.restore(source, since=some["first"])
    cycle.restore(source)
    cycle.unpin()
    cycle.run()
    assert held(cycle) == before
    assert cycle.run().buckets == 0


def lower(cycle: Cycle) -> None:
    records(cycle).update_one({"_id.name": COLLECTIONS}, {"$inc": {"held.buckets.least": -1}})


def unseal(cycle: Cycle) -> None:
    records(cycle).update_one({"_id.name": COLLECTIONS}, {"$unset": {"receipt": ""}})


def replay(cycle: Cycle) -> None:
    """The heads as they were before the first delete."""
    told = {"held.buckets.least": 0, "held.overflow.least": 0, "receipt": 0}
    records(cycle).update_one({"_id.name": COLLECTIONS}, {"$set": told})


def shorten(cycle: Cycle) -> None:
    """The last receipt is taken out as well."""
    last = records(cycle).find_one({"heads": {"$exists": True}}, sort=[("_id", -1)])
    records(cycle).delete_one({"_id": last["_id"]})


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("change", [lower, unseal, forget, replay, shorten])
def test_heads_that_somebody_changed_are_named(cycle: Cycle, change: Callable[[Cycle], None]) -> None:
    """So that a loss is not hidden by them."""
    change(cycle)
    take_one(cycle.database)
    cycle.restore("back", skip_damaged=True)
    source = cycle.policy.collection
    into_source = partial(cycle.restore, source), partial(cycle.restore, source, skip_damaged=True)
    for attempt in (cycle.run, lambda: cycle.restore("back"), *into_source):
        with pytest.raises(DamagedError, match="bucketwise_receipts, collections") as raised:
            attempt()
        assert raised.value.code == "record-differs"
    assert "record-differs" in [it.code for it in cycle.verify().bad]
    assert "record-differs" in [it.code for it in audit_policy(cycle.context()).findings]


def test_where_an_earlier_version_has_moved_them_they_are_adopted(cycle: Cycle) -> None:
    """Its receipts tell no heads."""
    lower(cycle)
    with pytest.raises(DamagedError, match="Where an earlier version has run meanwhile: `bucketwise adopt`"):
        cycle.run()
    cycle.adopt()
    cycle.run()
    assert least(cycle)["buckets"] == cycle.database["iot_archive"].count_documents({})


@pytest.mark.proof
def test_with_a_key_a_right_seal_is_not_enough(database: Database[Document], file_store: Store) -> None:
    """Without one, `verify` alone tells a last receipt that was written again."""
    case = samples_overflow().online()
    for keys in (Keys(), Keys(KEY)):
        database.client.drop_database(database.name)
        cycle = Cycle(database, case, file_store, keys=keys).load()
        cycle.run()
        cycle.keys = Keys()  # whoever has no key reads by seals
        cycle.restore("back")
        if keys.first:
            with pytest.raises(DamagedError, match="not among"):
                cycle.restore(cycle.policy.collection)  # which a receipt records
        cycle.keys = keys
        lower(cycle)
        last = records(cycle).find_one({"heads": {"$exists": True}}, sort=[("_id", -1)])
        last["heads"]["buckets"]["least"] -= 1
        forged = {**last, "sha256": seal_of(last), "signature": None}
        records(cycle).replace_one({"_id": last["_id"]}, forged)
        take_one(cycle.database)
        if keys.first:
            with pytest.raises(DamagedError, match="it is not signed"):
                cycle.run()
        assert cycle.verify().bad


@pytest.mark.proof
def test_the_receipt_that_tells_them_is_found_however_many_tell_none(cycle: Cycle) -> None:
    last = records(cycle).find_one({"heads": {"$exists": True}}, sort=[("_id", -1)])
    number = last["sequence"]
    del last["heads"]
    later = [{**last, "_id": {**last["_id"], "name": f"delete-{number + it:010d}"}} for it in range(1, 100)]
    records(cycle).insert_many({**it, "sequence": number + at} for at, it in enumerate(later, start=1))
    cycle.database.command("profile", 2)
    heads(cycle).check()
    cycle.database.command("profile", 0)
    asked = list(cycle.database["system.profile"].find({"command.filter.heads": {"$exists": True}}))
    assert asked and max(it["docsExamined"] for it in asked) <= 2


def test_what_somebody_had_copied_there_before_has_to_stay_as_well(
    database: Database[Document], file_store: Store
) -> None:
    cycle = Cycle(database, samples_overflow().online(), file_store).load()
    assert cycle.policy.overflow is not None
    sources = {"buckets": cycle.policy.collection, "overflow": cycle.policy.overflow.collection}
    counts = {what: database[name].count_documents({}) for what, name in sources.items()}
    for name, into in zip(sources.values(), ("iot_archive", "iot_archive_overflow"), strict=True):
        database[name].aggregate([{"$out": into}])
    cycle.run()
    assert least(cycle) == counts
