"""What happens to buckets that change, vanish or come back while they are archived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.context import Connections
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.config.errors import BucketwiseError, HaltedError, LeaseLostError
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    CODEC,
    DAY0,
    LATER,
    Case,
    encode,
    insert,
    raw_documents,
    samples_overflow,
    slots,
    timeseries,
)
from tests.archivers.harness import Cycle, expected_rows, in_turn, plain_row

Document = dict[str, Any]
MARKS = 10_000.0  # values above it are of these tests


def once(action: Callable[[], Any], at: int = 1) -> Callable[..., None]:
    """A guard that does something at the n-th transaction of a run; the first comes after the copy."""
    calls = 0

    def guard(*_args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            action()

    return guard


@pytest.fixture(params=["offline", "online"])
def cycle(request: pytest.FixtureRequest, database: Database[Document], file_store: Store) -> Cycle:
    case = slots("minute")
    return Cycle(database, case if request.param == "offline" else case.online(), file_store).load()


@pytest.fixture
def offline(database: Database[Document], file_store: Store) -> Cycle:
    return Cycle(database, slots("minute"), file_store).load()


def is_offline(cycle: Cycle) -> bool:
    return cycle.policy.archive is not None and cycle.policy.archive.to == "offline"


def slot_rows(documents: list[bytes]) -> Counter[tuple[Any, ...]]:
    """The rows of slot buckets, read out in plain Python."""
    found: Counter[tuple[Any, ...]] = Counter()
    for raw in documents:
        document = bson.decode(raw, CODEC)
        for slot, value in document["p"].items():
            if value is not None:
                at = document["d"] + int(slot) * timedelta(minutes=1)
                found[plain_row((document["meta"]["symbol"],), at, value)] += 1
    return found


def read(cycle: Cycle) -> list[bytes]:
    """What the archive adds to the live buckets, as the roll-up sees it."""
    reader = archived_reader(Connections(cycle.database, cycle.store), cycle.policy)
    return sorted(document for batch in reader.batches(FIRST_MS, LAST_MS + 1) for document in batch.main)


CHANGES: dict[str, Document] = {
    "a value": {"$set": {"p.30": MARKS}},
    "a type": {"$set": {"p.30": 1}},
    "another slot": {"$set": {"p.3": MARKS + 1}},
    "another field": {"$set": {"note": "late"}},
}


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_after_its_copy_stays_and_is_copied_later(cycle: Cycle, change: Document) -> None:
    source = cycle.database["slots"]
    before = {bson.decode(raw, CODEC)["_id"]: raw for raw in cycle.case.documents}
    report = cycle.run(
        guard=once(lambda: source.update_one({"_id": 7}, change), at=1 + (not is_offline(cycle)))
    )
    assert (report.changed, report.left, report.deleted) == (1, 1, len(before) - 1)
    (now,) = cycle.live()
    assert bson.decode(now, CODEC)["_id"] == 7 and now != before[7]
    others = [raw for name, raw in before.items() if name != 7]
    stays = not is_offline(cycle) and change != CHANGES["another field"]  # what is live does not contain it
    assert cycle.archived() == sorted([*others, before[7]] if stays else others)
    assert read(cycle) == sorted(others)
    if is_offline(cycle):
        assert cycle.rows() == slot_rows(others)

    again = cycle.run()
    assert (again.buckets, again.deleted, again.changed) == (1, 1, 0)
    assert cycle.live() == []
    assert cycle.archived() == read(cycle) == sorted([*others, now])
    if is_offline(cycle):
        assert cycle.rows() == slot_rows([*others, now])
    third = cycle.run()
    assert (third.buckets, third.deleted, third.left) == (0, 0, 0)


@pytest.mark.in_turn(1)
def test_what_is_replaced_after_its_copy(cycle: Cycle) -> None:
    document = {"_id": 7, "p": {"1": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0 + timedelta(days=3)}

    def replace() -> None:
        cycle.database["slots"].delete_one({"_id": 7})
        insert(cycle.database, "slots", [encode(document)])

    report = cycle.run(guard=once(replace, at=1 + (not is_offline(cycle))))
    assert (report.changed, cycle.live()) == (1, [encode(document)])
    cycle.run()
    assert cycle.live() == []
    others = [raw for raw in cycle.case.documents if bson.decode(raw, CODEC)["_id"] != 7]
    assert cycle.archived() == sorted([*others, encode(document)])


@pytest.mark.in_turn(1)
def test_what_someone_else_deletes_after_its_copy_is_in_the_archive(cycle: Cycle) -> None:
    report = cycle.run(guard=once(lambda: cycle.database["slots"].delete_one({"_id": 7}), at=2))
    assert (report.changed, report.deleted) == (0, len(cycle.case.documents) - 1)
    assert cycle.archived() == sorted(cycle.case.documents)


@pytest.mark.in_turn(1)
def test_a_write_between_the_comparison_and_the_delete(cycle: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real conflict of transactions: the delete starts anew, and finds the bucket changed."""
    inner = writes._delete
    calls: list[None] = []

    def meddle(*args: Any) -> None:
        calls.append(None)
        if len(calls) == 1:
            cycle.database["slots"].update_one({"_id": 7}, {"$set": {"p.30": MARKS}})
        inner(*args)

    monkeypatch.setattr(writes, "_delete", meddle)
    report = cycle.run()
    assert len(calls) > 1
    assert (report.changed, report.deleted) == (1, len(cycle.case.documents) - 1)
    assert [bson.decode(raw, CODEC)["p"]["30"] for raw in cycle.live()] == [MARKS]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("what", "to"), in_turn(["update", "insert", "delete"], ["offline", "online"]))
def test_overflow_that_changes_after_its_copy(
    database: Database[Document], file_store: Store, to: str, what: str
) -> None:
    case = samples_overflow()
    cycle = Cycle(database, case if to == "offline" else case.online(), file_store).load()
    extra = database["iot_extra"]
    owner = "003"
    assert extra.count_documents({"bucket_id": owner}) == 2
    actions: dict[str, Callable[[], Any]] = {
        "update": lambda: extra.update_one({"bucket_id": owner}, {"$set": {"more.0.val": MARKS}}),
        "insert": lambda: extra.insert_one({"_id": 1, "bucket_id": owner, "more": []}),
        "delete": lambda: extra.delete_one({"bucket_id": owner}),
    }
    report = cycle.run(guard=once(actions[what], at=1 if to == "offline" else 2))
    assert report.changed == 1
    live, live_overflow = cycle.live(), cycle.live_overflow()
    assert [bson.decode(raw, CODEC)["_id"] for raw in live] == [owner]
    assert len(live_overflow) == {"update": 2, "insert": 3, "delete": 1}[what]
    cycle.database["iot"].update_one({"_id": owner}, {"$set": {"nsamples": 3}})
    live = cycle.live()
    again = cycle.run()
    assert (again.deleted, [it.reason for it in again.quarantined]) == (1, [])
    assert (cycle.live(), cycle.live_overflow()) == ([], [])
    cycle.restore("back")
    back = raw_documents(database, "back")
    others = [raw for raw in case.documents if bson.decode(raw, CODEC)["_id"] != owner]
    assert back == sorted([*others, *live])
    others = [raw for raw in case.overflow if bson.decode(raw, CODEC)["bucket_id"] != owner]
    assert cycle.live_overflow() == sorted([*others, *live_overflow])


def test_a_late_bucket_of_an_archived_day_gets_a_part_of_its_own(offline: Cycle) -> None:
    offline.run()
    before = offline.listing()
    late = encode({"_id": 999, "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0})
    insert(offline.database, "slots", [late])
    report = offline.run()
    assert (report.buckets, report.parts, report.deleted) == (1, 1, 1)
    after = offline.listing()
    assert {key: after[key] for key in before} == before
    new = sorted(set(after) - set(before))
    assert [key.split("/")[1] for key in new] == ["data", "meta", "meta"]
    assert offline.rows() == slot_rows([*offline.case.documents, late])
    assert offline.archived() == sorted([*offline.case.documents, late])


@pytest.mark.in_turn(1)
def test_a_bucket_that_comes_back_as_it_was(cycle: Cycle) -> None:
    """As after a partial restore of a dump: it is in the archive already, and goes."""
    cycle.run()
    before = cycle.listing()
    insert(cycle.database, "slots", cycle.case.documents[:10])
    assert read(cycle) == sorted(cycle.case.documents[10:])
    report = cycle.run()
    assert (report.deleted, report.parts) == (10, 0)
    assert cycle.live() == []
    assert cycle.archived() == read(cycle) == sorted(cycle.case.documents)
    assert cycle.listing() == before


def test_another_bucket_with_the_id_of_an_archived_one(offline: Cycle) -> None:
    """As upserts of late readings make them: the archive holds both."""
    offline.run()
    late = [
        encode({"_id": 7, "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0}),
        encode({"_id": 8.0, "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0}),
    ]
    insert(offline.database, "slots", late)
    assert read(offline) == sorted(offline.case.documents)
    offline.run()
    both = [*offline.case.documents, *late]
    assert offline.live() == []
    assert read(offline) == sorted(both)
    assert offline.rows() == slot_rows(both)
    with pytest.raises(BucketwiseError, match=r"2 of 42 buckets were not restored.*_id"):
        offline.restore("back")
    back = raw_documents(offline.database, "back")
    assert len(back) == 40 and set(back) <= set(both)


@pytest.mark.in_turn(1)
def test_restored_into_the_source_and_run_again(cycle: Cycle) -> None:
    cycle.run()
    before = cycle.listing()
    cycle.restore("slots")
    assert cycle.live() == sorted(cycle.case.documents)
    assert read(cycle) == []
    assert cycle.unpin() == len(cycle.case.documents)
    report = cycle.run()
    assert (report.deleted, report.parts) == (len(cycle.case.documents), 0)
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)
    assert cycle.listing() == before


@pytest.mark.in_turn(1)
def test_restored_mended_and_run_again(cycle: Cycle) -> None:
    """A mended bucket takes the place of the archived one."""
    cycle.run()
    cycle.restore("slots", until=DAY0 + timedelta(hours=5))
    restored = len(cycle.live())
    assert 1 < restored < len(cycle.case.documents)
    cycle.database["slots"].update_one({"_id": 7}, {"$set": {"p.30": MARKS}})
    cycle.database["slots"].delete_one({"_id": 6})
    (mended,) = (raw for raw in cycle.live() if bson.decode(raw, CODEC)["_id"] == 7)
    cycle.unpin()
    cycle.run()
    assert cycle.live() == []
    others = [raw for raw in cycle.case.documents if bson.decode(raw, CODEC)["_id"] != 7]
    assert cycle.archived() == read(cycle) == sorted([*others, mended])
    if is_offline(cycle):
        assert cycle.rows() == slot_rows([*others, mended])
    assert cycle.run().deleted == 0


@pytest.mark.parametrize("identity", [7, 7.0])  # one to MongoDB
def test_restoring_over_another_bucket_with_the_same_id_loses_neither(
    offline: Cycle, identity: float
) -> None:
    offline.run()
    late = encode({"_id": identity, "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0})
    insert(offline.database, "slots", [late])
    with pytest.raises(BucketwiseError, match="1 of 40 buckets were not restored"):
        offline.restore("slots")
    assert len(offline.live()) == 40
    assert sorted([*read(offline), *offline.live()]) == sorted([*offline.case.documents, late])
    assert offline.unpin() == 39
    offline.run()
    assert offline.live() == []
    assert offline.rows() == slot_rows([*offline.case.documents, late])


def test_a_new_bucket_in_place_of_one_deleted_before_a_crash(
    offline: Cycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run dies between two deletes; an upsert then takes the `_id` of a bucket that is gone already."""
    monkeypatch.setattr(writes, "MAX_BUCKETS", 10)

    def die() -> None:
        raise LeaseLostError("over")

    with pytest.raises(LeaseLostError):
        offline.run(guard=once(die, at=4))
    gone = {bson.decode(raw, CODEC)["_id"] for raw in offline.case.documents} - {
        bson.decode(raw, CODEC)["_id"] for raw in offline.live()
    }
    assert 0 < len(gone) < 40
    late = encode({"_id": min(gone), "p": {"5": MARKS}, "meta": {"symbol": "MDB"}, "d": DAY0})
    insert(offline.database, "slots", [late])
    both = [*offline.case.documents, late]
    assert sorted([*read(offline), *offline.live()]) == sorted(both)
    offline.run()
    offline.run()
    assert offline.live() == []
    assert offline.rows() == slot_rows(both)


@pytest.mark.proof
def test_copies_without_delete(database: Database[Document], file_store: Store) -> None:
    case = slots("minute")
    kept = Cycle(database, case.with_archive(delete=False), file_store).load()
    report = kept.run()
    assert (report.buckets, report.deleted, report.left) == (40, 0, 40)
    assert kept.live() == kept.archived() == sorted(case.documents)
    before = kept.listing()
    again = kept.run()
    assert (again.buckets, again.parts, again.deleted, again.left) == (0, 0, 0, 40)
    assert kept.listing() == before

    database["slots"].update_one({"_id": 7}, {"$set": {"p.30": MARKS}})
    assert kept.run().buckets == 1
    assert kept.archived() == kept.live()
    assert kept.rows() == slot_rows(kept.live())
    before = kept.listing()
    assert kept.run().buckets == 0
    assert kept.listing() == before

    database["slots"].update_one({"_id": 9}, {"$set": {"p.30": MARKS}})
    live = kept.live()
    moving = Cycle(database, case, file_store, fence=kept.fence)
    report = moving.run()
    assert (report.deleted, report.changed, report.left) == (40, 0, 0)
    assert moving.live() == []
    assert moving.archived() == live
    assert moving.rows() == slot_rows(live)


def test_fingerprints_of_another_kind_do_not_count(database: Database[Document], file_store: Store) -> None:
    """A bucket that they do not recognize would be copied twice."""
    kept = Cycle(database, slots("minute").with_archive(delete=False), file_store).load()
    kept.run()
    before, receipts = kept.listing(), database["bucketwise_receipts"]
    for found in list(receipts.find({"kind": "copies"})):
        other = {"buckets": bytes(16 * 40), "ids": bytes(8 * 40)}
        receipts.replace_one({"_id": found["_id"]}, {"kind": "copies", **other})
    assert kept.run().buckets == 0
    assert kept.listing() == before


def test_a_copy_that_goes_while_a_run_waits(offline: Cycle) -> None:
    """`check` may wait for hours. Whether the commit is there is asked after it."""
    manifests = offline.root / offline.policy.name / "meta" / "manifests"

    def check() -> None:
        for it in manifests.glob("*.json"):
            it.unlink()

    with pytest.raises(HaltedError, match="the manifest is missing"):
        offline.run(check=check)
    assert offline.live() == sorted(offline.case.documents)


@pytest.mark.in_turn(1)
def test_grace(cycle: Cycle) -> None:
    waiting = Cycle(
        cycle.database, cycle.case.with_archive(grace=timedelta(days=2)), cycle.settings, fence=cycle.fence
    )
    report = waiting.run()
    assert (report.buckets, report.deleted, report.left) == (40, 0, 40)
    assert next(iter(report.reasons)).startswith("copied, and waits for the grace of 2 days")
    before = waiting.listing()
    almost = waiting.run(LATER + timedelta(days=2) - timedelta(milliseconds=1))
    assert (almost.buckets, almost.deleted, almost.left) == (0, 0, 40)
    assert waiting.listing() == before

    cycle.database["slots"].update_one({"_id": 7}, {"$set": {"p.30": MARKS}})
    live = waiting.live()
    report = waiting.run(LATER + timedelta(days=2))
    assert (report.deleted, report.changed, report.left) == (39, 0, 1)
    assert len(waiting.live()) == 1
    assert waiting.run(LATER + timedelta(days=3)).deleted == 0  # in the grace of its own copy
    assert waiting.run(LATER + timedelta(days=4)).deleted == 1
    assert waiting.live() == []
    assert waiting.archived() == live


def test_a_holder_that_lost_its_lease_deletes_nothing(cycle: Cycle) -> None:
    """The guard fails inside the transaction of the delete."""

    def lost() -> None:
        raise LeaseLostError("another run took it")

    with pytest.raises(LeaseLostError):
        cycle.run(guard=once(lost, at=2))
    assert cycle.live() == sorted(cycle.case.documents)
    cycle.run()
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)
    if is_offline(cycle):
        assert cycle.rows() == expected_rows(cycle.case)


def test_what_leaves_a_commit_is_set_aside(offline: Cycle) -> None:
    """Nothing that was archived is ever thrown away: a person can bring it back."""
    old = {bson.decode(raw, CODEC)["_id"]: raw for raw in offline.case.documents}[7]
    change = {"$set": {"p.30": MARKS}}
    offline.run(guard=once(lambda: offline.database["slots"].update_one({"_id": 7}, change)))
    (path,) = (offline.root / "slots" / "meta" / "superseded").glob("*.bson")
    assert path.suffix == ".bson" and path.read_bytes() == old


def test_measurements_that_share_everything(database: Database[Document], file_store: Store) -> None:
    """A native time-series collection takes a measurement twice, `_id` and all."""
    base = timeseries()
    twice = [*base.documents, *base.documents[:5]]
    case = Case(base.name, base.policy, twice, [*base.readings, *base.readings[:5]])
    cycle = Cycle(database, case, file_store).load()
    assert cycle.run().readings == 205
    assert cycle.rows() == expected_rows(case)
    before = cycle.listing()
    assert cycle.run().readings == 0
    assert cycle.listing() == before
