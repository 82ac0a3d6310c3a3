"""`_id`s that say nothing of time: strings, hashes, UUIDs, documents, several types beside one another."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.buckets.bson.cursor import ids_query
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, HOUR, Case, insert, slots
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.moving.test_guard import once
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Value
from tests.buckets.odd_documents import IDS
from tests.buckets.oracle import milliseconds

Document = dict[str, Any]
_CHANCE = random.Random(7)
_NUMBERS = [bson_of.int32(1), bson_of.double(1.5), bson_of.int64(2), bson_of.decimal("3"), bson_of.double(-4)]
KINDS: dict[str, list[Value]] = {
    "text, series by series": [
        bson_of.text(f"dev{device}_{hour:02}") for device in range(12) for hour in range(8)
    ],
    "UUID": [bson_of.binary(_CHANCE.randbytes(16), 4) for _ in range(96)],
    "hash": [bson_of.text(_CHANCE.randbytes(20).hex()) for _ in range(96)],
    "compound": [
        bson_of.sub(("device", bson_of.text(f"d{device}")), ("hour", bson_of.int32(hour)))
        for hour in range(8)
        for device in range(12)
    ],
    "ObjectId, in no order": [bson_of.object_id(_CHANCE.randbytes(12)) for _ in range(96)],
    "all types": [*(value for name, value in IDS.items() if name != "short UUID"), *_NUMBERS],
}


def bucket(identity: Value, hour: int, value: float = 1.5) -> bytes:
    return bson_of.document(
        ("_id", identity),
        ("p", bson_of.sub(("0", bson_of.double(value)), ("59", bson_of.double(2.5)))),
        ("meta", bson_of.sub(("symbol", bson_of.text("MDB")))),
        ("d", bson_of.date(milliseconds(DAY0) + hour * HOUR // timedelta(milliseconds=1))),
    )


@pytest.fixture(params=KINDS)
def buckets(request: pytest.FixtureRequest) -> list[bytes]:
    """In the order in which they were written; many share a time."""
    return [bucket(identity, i // 12) for i, identity in enumerate(KINDS[request.param])]


@pytest.fixture
def cycle(
    request: pytest.FixtureRequest,
    database: Database[Document],
    file_store: Store,
    buckets: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Cycle:
    monkeypatch.setattr(writes, "MAX_BUCKETS", 7)
    case = Case("slots", slots("minute").policy, buckets, [])
    return Cycle(database, case if request.param == "offline" else case.online(), file_store).load()


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("buckets", "cycle"), in_turn(list(KINDS), ["offline", "online"]), indirect=True)
def test_all_go_and_come_back(cycle: Cycle, buckets: list[bytes]) -> None:
    report = cycle.run()
    assert (report.buckets, report.deleted, report.left, report.changed) == (len(buckets), len(buckets), 0, 0)
    assert (cycle.live(), cycle.archived()) == ([], sorted(buckets))
    receipts = list(cycle.context().receipts.numbered(0, {"kind": "delete"}))
    assert [it["buckets"] for it in receipts] == [len(it) for it in pieces(buckets)]
    again = cycle.run()
    assert (again.buckets, again.deleted) == (0, 0)


def pieces(buckets: list[bytes]) -> list[list[bytes]]:
    return [buckets[at : at + 7] for at in range(0, len(buckets), 7)]


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("buckets", "cycle"), in_turn(list(KINDS), ["online", "offline"]), indirect=True)
def test_one_that_changes_and_one_that_goes_meanwhile(cycle: Cycle, buckets: list[bytes]) -> None:
    """In the midst of others that are as they were."""
    number = len(buckets) // 2
    hour = number // 12
    (kind, value), gone = identity_of(buckets[number]), buckets[number + 1]
    changed = bucket((kind, value), hour, 99.5)

    def meddle() -> None:
        rewrite(cycle.database, [buckets[number], gone], [changed])

    is_online = cycle.policy.archive is not None and cycle.policy.archive.to == "online"
    report = cycle.run(guard=once(meddle, at=2 * (number // 7 + 1) if is_online else 1))
    assert (cycle.live(), report.changed) == ([changed], 1)
    cycle.run()
    cycle.run()
    others = [it for it in buckets if it != buckets[number]]
    assert (cycle.live(), cycle.archived()) == ([], sorted([*others, changed]))


def identity_of(document: bytes) -> Value:
    raw_id = Docs.of([document]).raw_id(0)
    return raw_id[0], raw_id[1:]


def rewrite(database: Database[Document], away: list[bytes], new: list[bytes]) -> None:
    """Somebody else deletes these, and writes those."""
    for document in away:
        query = ids_query(Docs.of([document]).raw_ids)
        assert database["slots"].delete_one(query).deleted_count == 1
    insert(database, "slots", new)


def test_the_same_number_of_another_type_is_another_bucket(
    database: Database[Document], file_store: Store
) -> None:
    """To MongoDB 1 and 1.0 are one `_id`, of which one document can be there."""
    held = [bucket(identity, i) for i, identity in enumerate(_NUMBERS)]
    other = bucket(bson_of.double(1.0), 0)
    case = Case("slots", slots("minute").policy, held, [])
    cycle = Cycle(database, case, file_store).load()
    cycle.run(guard=once(lambda: rewrite(database, held[:1], [other])))
    assert cycle.live() == [other]
    assert cycle.archived()[-len(held) + 1 :] == sorted(held)[-len(held) + 1 :]


@pytest.mark.in_turn(3)
def test_what_is_found_in_another_order_is_compared_as_a_whole(
    database: Database[Document], buckets: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket alone is looked at where one of its piece has changed."""
    insert(database, "slots", buckets)
    policy = slots("minute").policy
    verified = Batch.of(Docs.of(buckets))
    alone: list[int] = []
    unit = Batch.unit

    def watched(batch: Batch, index: int) -> bytes:
        alone.append(index)
        return unit(batch, index)

    monkeypatch.setattr(Batch, "unit", watched)
    assert writes.compare(database, policy, verified) == (list(range(len(buckets))), [], [])
    assert alone == []
    altered = [*buckets[:-1], buckets[-1].replace(b"MDB", b"MDC")]
    found = writes.compare(database, policy, Batch.of(Docs.of(altered)))
    assert found == (list(range(len(buckets) - 1)), [len(buckets) - 1], [])
    assert alone != []
