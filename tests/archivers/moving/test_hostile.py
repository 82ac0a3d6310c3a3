"""Documents, sizes and failures that nobody plans for."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson.binary import Binary, UuidRepresentation
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.archivers import writes
from bucketwise.archivers.moving import sweep
from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.config.tables import Store
from tests.archivers.builders import (
    DAY0,
    LATER,
    Case,
    encode,
    insert,
    raw_documents,
    reading,
    samples,
    samples_overflow,
    slots,
)
from tests.archivers.harness import Cycle, expected_rows
from tests.archivers.moving.test_guard import once

Document = dict[str, Any]


@pytest.fixture(params=["offline", "online"])
def to(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cycle_of(database: Database[Document], settings: Store, case: Case, to: str) -> Cycle:
    return Cycle(database, case.online() if to == "online" else case, settings)


@pytest.mark.proof
@pytest.mark.parametrize("to", ["offline", pytest.param("online", marks=pytest.mark.proof)])
def test_buckets_near_the_largest_with_overflow(
    database: Database[Document], file_store: Store, to: str
) -> None:
    """Two documents of 9 MB make a bucket: more than a document, a batch or an entry of the oplog."""
    case = samples_overflow()
    cycle = cycle_of(database, file_store, case, to)
    documents, overflow = [], []
    for i in range(1):
        inner = [{"val": float(n), "time": DAY0 + n * timedelta(milliseconds=10)} for n in range(1000)]
        document = {
            "_id": i, "deviceid": 1, "sensorid": i, "nsamples": 1000, "first": DAY0,
            "last": DAY0 + timedelta(hours=1), "samples": inner, "has_extras": True, "blob": bytes(9 << 20),
        }  # fmt: skip
        documents.append(encode(document))
        more = [{"val": -1.0, "time": DAY0 + timedelta(minutes=5)}]
        overflow.append(encode({"_id": i, "bucket_id": i, "more": more, "blob": b"\1" * (9 << 20)}))
    for raw in documents:
        insert(database, "iot", [raw])
    for raw in overflow:
        insert(database, "iot_extra", [raw])
    report = cycle.run()
    assert (report.deleted, report.readings) == (1, 1001)
    assert cycle.live() == cycle.live_overflow() == []
    cycle.restore("back")
    assert raw_documents(database, "back") == sorted(documents)
    assert cycle.live_overflow() == sorted(overflow)


def test_a_timestamp_of_zero_is_moved_and_restored_as_it_is(
    database: Database[Document], file_store: Store, to: str
) -> None:
    """MongoDB fills such a field in where a document is inserted, or replaced: updates alone leave one."""
    cycle = cycle_of(database, file_store, reading(), to)
    zero = Timestamp(0, 0)
    for i in range(3):
        shown = {"symbol": "MDB", "d": DAY0 + i * timedelta(hours=1), "p": 1.0}
        database["ticks"].insert_one({"_id": i, **shown})
    changes = {"$set": {"seen": zero, "more": zero, "in": {"it": zero}, "no": Binary(b"\x11a\0" + bytes(9))}}
    database["ticks"].update_many({"_id": {"$lt": 2}}, changes)
    before = cycle.live()
    assert cycle.run().deleted == 3
    assert cycle.archived() == before
    for _ in range(2):
        cycle.restore("ticks")
        assert cycle.live() == before
    cycle.restore("back")
    assert raw_documents(database, "back") == before


def test_a_document_is_replaced_as_it_is(database: Database[Document]) -> None:
    zero = Timestamp(0, 0)
    documents = [encode({"_id": 1, "seen": zero, "b": "$c"}), encode({"_id": zero, "d": 2})]
    database["ticks"].insert_many([{"_id": 1}, {"_id": zero}, {"_id": 3}])
    with database.client.start_session() as session, session.start_transaction():
        writes.replace_raw(
            database, "ticks", Docs.of([*documents, encode({"_id": 4, "seen": zero})]), session
        )
    assert raw_documents(database, "ticks") == sorted([*documents, encode({"_id": 3})])


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_ids_of_every_type(database: Database[Document], file_store: Store, to: str) -> None:
    ids: list[Any] = [
        1, Int64(2), 3.5, float("nan"), float("inf"), Decimal128("1.5"), "", "word", "ä\0b", ObjectId(),
        True, False, None, MinKey(), MaxKey(), Timestamp(1, 2), b"\0", Binary(b"x", 5),
        Binary.from_uuid(uuid.UUID(int=7)),
        Binary.from_uuid(uuid.UUID(int=7), UuidRepresentation.PYTHON_LEGACY),
        {"a": 1}, {"a": {"b": [1, None]}}, {}, Code("f()"), DatetimeMS(-(2**62)), DatetimeMS(2**62),
        datetime(1, 1, 1, tzinfo=UTC), {"at": DatetimeMS(2**60)}, {"u": uuid.UUID(int=9)},
    ]  # fmt: skip
    documents = [
        encode({"_id": it, "symbol": "MDB", "d": DAY0 + i * timedelta(hours=1), "p": float(i)})
        for i, it in enumerate(ids)
    ]
    cycle = cycle_of(database, file_store, reading(), to)
    insert(database, "ticks", documents)
    stays = once(lambda: database["ticks"].update_one({"_id": {"a": 1}}, {"$set": {"p": -1}}), at=2)
    assert cycle.run(guard=stays).deleted >= len(ids) - 1
    cycle.run()
    assert cycle.live() == []
    cycle.restore("back")
    back = raw_documents(database, "back")
    assert len(back) == len(ids)
    assert len(set(back) & set(documents)) >= len(ids) - 1
    cycle.restore("ticks")
    assert len(cycle.live()) == len(ids)
    assert (cycle.run().left, cycle.unpin()) == (len(ids), len(ids))
    assert cycle.run().deleted == len(ids)
    assert cycle.archived() == back


def test_one_and_one_point_zero(database: Database[Document], file_store: Store) -> None:
    """One `_id` to MongoDB, two buckets to the archive."""
    cycle = Cycle(database, reading(), file_store)
    first = encode({"_id": 1, "symbol": "MDB", "d": DAY0, "p": 1.0})
    second = encode({"_id": 1.0, "symbol": "MDB", "d": DAY0 + timedelta(seconds=1), "p": 2.0})

    def replace() -> None:
        database["ticks"].delete_one({"_id": 1})
        insert(database, "ticks", [second])

    insert(database, "ticks", [first])
    cycle.run(guard=once(replace))
    assert cycle.live() == [second]
    cycle.run()
    assert cycle.live() == []
    assert sorted(row[-1] for row in cycle.rows()) == [1.0, 2.0]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "last",
    [Decimal128("1"), [DAY0, LATER], [1, 2], {"a": 1}, "2018", None, float("nan"), Int64(2**62), True],
    ids=str,
)
def test_ends_that_are_no_times(database: Database[Document], file_store: Store, last: Any) -> None:
    """One bad bucket is reported; the others go."""
    cycle = Cycle(database, samples("dates"), file_store).load()
    bad = {"_id": "bad", "deviceid": 1, "sensorid": 1, "nsamples": 0, "sum": 0, "first": DAY0, "last": last}
    database["iot"].insert_one({**bad, "samples": []})
    report = cycle.run()
    assert [it.id for it in report.quarantined] == ["bad"]
    assert report.deleted == len(cycle.case.documents)
    assert len(cycle.live()) == 1


@pytest.mark.proof
def test_ends_in_fractions_of_seconds(database: Database[Document], file_store: Store) -> None:
    """Epoch seconds whose product with 1000 rounds down, just where the run's range ends or days meet."""
    cycle = Cycle(database, samples("epoch").of_any_time(), file_store)
    moments = [1.001, 1535530432.007, 1535530432.001, 86399.9999, 86400.0001, -0.001, 1.0005, 4.35]
    rows = []
    for i, at in enumerate(moments):
        inner = [{"val": float(i), "time": at}]
        document = {
            "_id": i, "deviceid": 1, "sensorid": 2, "nsamples": 1, "sum": float(i), "first": at, "last": at,
            "samples": inner,
        }  # fmt: skip
        insert(database, "iot", [encode(document)])
        rows.append(encode(document))
    for at in sorted(moments):
        now = datetime.fromtimestamp(0, UTC) + timedelta(days=30, milliseconds=round(at * 1000))
        cycle.run(now)
        cycle.run(now + timedelta(milliseconds=1), until=now - timedelta(days=30))
    cycle.run()
    assert cycle.live() == []
    assert cycle.archived() == sorted(rows)


@pytest.mark.in_turn(1)
def test_dates_at_the_ends_of_time(database: Database[Document], file_store: Store, to: str) -> None:
    """The years 1 to 9999 go; what lies outside is reported and stays."""
    cycle = cycle_of(database, file_store, reading().of_any_time(), to)
    codec = bson.CodecOptions[Document](datetime_conversion=DatetimeConversion.DATETIME_MS)
    sound = [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), DAY0]
    documents = [encode({"_id": i, "symbol": "x", "d": at, "p": 1.0}) for i, at in enumerate(sound)]
    bad = [
        bson.encode({"_id": 10 + i, "symbol": "x", "d": DatetimeMS(ms), "p": 1.0}, codec_options=codec)
        for i, ms in enumerate([-62_135_596_800_001, 253_402_300_800_000, 2**62, -(2**62)])
    ]
    insert(database, "ticks", [*documents, *bad])
    report = cycle.run()
    assert report.deleted == len(documents)
    assert sorted(it.id for it in report.quarantined) == [10, 11, 12, 13]
    assert cycle.live() == sorted(bad)
    assert cycle.archived() == sorted(documents)


@pytest.mark.in_turn(1)
def test_a_cursor_that_gives_a_bucket_twice(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Its end moves forward in the index while the cursor is on its way: only the later one counts."""
    database["iot"].create_index("last")
    database["iot"].create_index("first")
    cycle = cycle_of(database, file_store, samples("dates"), to).load()
    inner = sweep.Sweep.sort
    seen: list[int] = []

    def sort(self: Any, buckets: Any) -> None:
        inner(self, buckets)
        if not seen:
            database["iot"].update_one({"_id": "001"}, {"$set": {"note": "moved"}})
            moved = self._work.source.by_ids(["001"])
            seen.extend(len(again) for again in moved)
            for again in self._work.source.by_ids(["001", "002"]):
                inner(self, BucketSet(again, cycle.policy))

    monkeypatch.setattr(sweep.Sweep, "sort", sort)
    live = [raw for raw in cycle.live() if bson.decode(raw)["_id"] != "001"]
    report = cycle.run()
    assert (report.buckets, report.deleted, report.changed) == (60, 60, 0)
    found = cycle.archived()
    assert len(found) == 60 and set(live) < set(found)


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_a_policy_without_series_fields(database: Database[Document], file_store: Store, to: str) -> None:
    case = reading()
    case = Case(
        case.name, case.policy.model_copy(update={"series_fields": ()}), case.documents, case.readings
    )
    cycle = cycle_of(database, file_store, case, to).load()
    cycle.run()
    assert cycle.live() == []
    cycle.restore("back")
    assert raw_documents(database, "back") == sorted(case.documents)


def test_the_same_archive_for_two_policies(database: Database[Document], file_store: Store) -> None:
    """One policy's name begins another's."""
    one = Cycle(database, slots("minute"), file_store).load()
    base = samples("dates")
    longer = Case("x", base.policy.model_copy(update={"name": "slots2"}), base.documents, base.readings)
    two = Cycle(database, longer, file_store).load()
    one.run()
    two.run()
    one.run()
    two.run()
    assert one.rows() == expected_rows(one.case)
    assert two.rows() == expected_rows(longer)


def depose(client: MongoClient[Document]) -> None:
    """The primary steps down; it is elected again some seconds later."""
    client.admin.command("replSetStepDown", 1, secondaryCatchUpPeriodSecs=0, force=True)


@contextmanager
def elections(client: MongoClient[Document], every: float) -> Iterator[None]:
    """The primary steps down and is elected again, over and over."""
    over = threading.Event()

    def again_and_again() -> None:
        while not over.wait(every):
            with contextlib.suppress(PyMongoError):
                depose(client)

    thread = threading.Thread(target=again_and_again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def await_primary(client: MongoClient[Document]) -> None:
    for _ in range(600):
        with contextlib.suppress(PyMongoError):
            if client.admin.command("hello")["isWritablePrimary"]:
                return
        time.sleep(0.1)
    pytest.fail("no primary in a minute")


@pytest.fixture
def small_steps(database: Database[Document], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writes, "MAX_BUCKETS", 50)
    monkeypatch.setattr(sweep, "MAX_READINGS", 60)
    yield
    await_primary(database.client)


@pytest.mark.proof
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("to", [pytest.param("offline", marks=pytest.mark.proof), "online"])
def test_a_failover_on_the_way(database: Database[Document], file_store: Store, to: str) -> None:
    """The transaction in hand aborts, and is tried again where there is a primary."""
    cycle = cycle_of(database, file_store, reading(), to).load()
    with contextlib.suppress(PyMongoError):
        cycle.run(guard=once(lambda: depose(database.client), at=2))
    await_primary(database.client)
    check_moved(cycle)


@pytest.mark.proof
@pytest.mark.usefixtures("small_steps")
def test_failovers_again_and_again(database: Database[Document], file_store: Store, to: str) -> None:
    """Cursors die, transactions abort, replies of commits are lost: runs fail or wait, and one succeeds."""
    cycle = cycle_of(database, file_store, reading(), to).load()
    with elections(database.client, 0.7):
        for _ in range(4):
            with contextlib.suppress(PyMongoError):
                cycle.run()
    await_primary(database.client)
    check_moved(cycle)


def check_moved(cycle: Cycle) -> None:
    cycle.run()
    cycle.run()
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)
    if cycle.policy.archive is not None and cycle.policy.archive.to == "offline":
        assert cycle.rows() == expected_rows(cycle.case)
