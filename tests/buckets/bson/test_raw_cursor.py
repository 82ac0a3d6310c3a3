"""Raw documents from a real mongod, held against what the driver's own raw cursor and plain BSON give."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import CursorNotFound, OperationFailure

from bucketwise.buckets.bson import cursor as ahead
from bucketwise.buckets.bson import cursor as raw_cursor
from bucketwise.buckets.bson.cursor import First, find_raw, prefetch
from bucketwise.buckets.bson.raw import Docs
from tests.examples import examples
from tests.jobs.processes import wait_until

pytestmark = pytest.mark.filterwarnings("error")
Document = dict[str, Any]
Mongo = Database[Document]
few = settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))

#: Around where the names of an array's elements get another digit.
COUNTS = st.sampled_from([0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 1001, 2500])


@st.composite
def documents(draw: st.DrawFn) -> list[Document]:
    """All of one length, all of one but for some, or of any."""
    count = draw(COUNTS)
    odd = draw(st.dictionaries(st.integers(0, count), st.binary(max_size=40), max_size=4))
    lengths = draw(st.sampled_from([[0], [7], [5, 6, 4], [1, 1, 1, 2], [300, 3]]))
    return [{"_id": i, "v": odd.get(i, b"x" * lengths[i % len(lengths)])} for i in range(count)]


def store(database: Mongo, found: list[Document]) -> list[bytes]:
    database["it"].delete_many({})
    if found:
        database["it"].insert_many(found)
    return [bson.encode(it) for it in found]


def split(data: bytes) -> list[bytes]:
    return [bytes(it.raw) for it in bson.decode_all(data, bson.CodecOptions(document_class=RawBSONDocument))]


def by_driver(database: Mongo, *args: Any, **options: Any) -> list[bytes]:
    return split(b"".join(cast(Any, database["it"].find_raw_batches(*args, **options))))


def fetching() -> list[str]:
    return [it.name for it in threading.enumerate() if it.name == "bucketwise-ahead"]


def open_cursors(client: MongoClient[Document]) -> int:
    found: int = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    return found


@given(
    found=documents(), piece=st.sampled_from([1, 50, 1000, 8_000_000]), reply=st.sampled_from([1, 7, 10**6])
)
@few
def test_what_the_driver_finds(database: Mongo, found: list[Document], piece: int, reply: int) -> None:
    stored = store(database, found)
    if reply == 1:
        found, stored = found[:12], store(database, found[:12])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_cursor, "MOST_BYTES", piece)
        patch.setattr(raw_cursor, "MOST_DOCUMENTS", reply)
        pieces = list(find_raw(database["it"], {}))
    assert [document for some in pieces for document in some] == stored == by_driver(database)
    assert all(len(some.data) <= piece or len(some) == 1 for some in pieces)
    for some in pieces:
        assert len(some) and some.offsets.tolist() == Docs.split(some.data).offsets.tolist()


def test_a_value_that_looks_like_the_next_document(database: Mongo) -> None:
    """Where all documents were as long as the first, the third would begin inside its own value."""
    like = b"\x032\0"
    inside = (like + bson.encode({"_id": 2, "v": like})).index(like, 1)
    lengths = [60, 60 - inside, 60 + inside]
    found = [{"_id": i, "v": like.ljust(length, b"x")} for i, length in enumerate(lengths)]
    stored = store(database, found)
    assert [it for some in find_raw(database["it"], {}) for it in some] == stored


def test_fields_order_and_limit(database: Mongo) -> None:
    store(database, [{"_id": i, "v": "x" * (i % 3)} for i in range(300)])
    query, fields = {"_id": {"$gte": 7}}, {"v": 1, "_id": 0}
    for limit in (0, 1, 5, 101, 292, 293, 294, 10**7):
        for reply in (5, 10**6):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(raw_cursor, "MOST_DOCUMENTS", reply)
                found = find_raw(database["it"], query, None, fields, First(limit, [("_id", -1)]))
                told = [document for some in found for document in some]
            assert told == by_driver(database, query, fields, sort=[("_id", -1)], limit=limit)
            assert len(told) == min(limit or 293, 293)


@pytest.mark.proof
@pytest.mark.parametrize("lengths", [1, 7])
def test_very_many_documents_in_a_reply(
    database: Mongo, lengths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_cursor, "FIRST_DOCUMENTS", 1_000_000)
    if lengths == 1:
        monkeypatch.delattr(raw_cursor, "_of_any_length")  # they are not gone through one by one
    some: list[Document] = [
        {"$project": {"i": {"$range": [0, 130_000]}}},
        {"$unwind": "$i"},
        {"$project": {"_id": "$i", "v": {"$substrBytes": ["abcdefg", 0, {"$mod": ["$i", lengths]}]}}},
        {"$out": "it"},
    ]
    database["one"].insert_one({})
    database["one"].aggregate(some)
    (data,) = find_raw(database["it"], {})
    assert len(data) == 130_000
    assert data.data == b"".join(cast(Any, database["it"].find_raw_batches()))


def test_a_driver_that_does_not_ask_us(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version's cursor may go other ways."""
    stored = store(database, [{"_id": i, "v": "x" * (i % 3)} for i in range(300)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 100)
    monkeypatch.delattr(raw_cursor._Cursor, "_unpack_response")
    assert [it for some in find_raw(database["it"], {}) for it in some] == stored


def test_a_driver_whose_reply_is_another(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        """Its document is kept elsewhere."""

        def __init__(self, response: Any) -> None:
            self.raw_response = response.raw_response

    def unpack(self: Any, response: Any, *args: Any, **options: Any) -> Any:
        return ours(self, Other(response), *args, **options)

    ours = raw_cursor._Cursor._unpack_response
    stored = store(database, [{"_id": i, "v": "x" * (i % 3)} for i in range(300)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 100)
    monkeypatch.setattr(raw_cursor._Cursor, "_unpack_response", unpack)
    assert [it for some in find_raw(database["it"], {}) for it in some] == stored


@pytest.mark.parametrize("session", [False, True])
def test_errors_are_the_drivers(database: Mongo, session: bool) -> None:
    store(database, [{"_id": 1}])
    with database.client.start_session() as own, pytest.raises(OperationFailure) as ours:
        list(find_raw(database["it"], {"$nonsense": 1}, own if session else None))
    with pytest.raises(OperationFailure) as theirs:
        by_driver(database, {"$nonsense": 1})
    assert (ours.value.code, ours.value._message) == (theirs.value.code, theirs.value._message)


def test_an_error_comes_after_what_was_found_before(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is gone, as when a server starts again: what came before it is whole, and nothing is said to
    be the end."""
    stored = store(database, [{"_id": i} for i in range(30)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 10)
    with database.client.start_session() as session:
        found = find_raw(database["it"], {}, session)
        assert list(next(found)) == stored[:10]
        cursor = found.gi_frame.f_locals["cursor"]  # type: ignore[attr-defined]
        database.command("killCursors", "it", cursors=[cursor.cursor_id])
        with pytest.raises(CursorNotFound):
            next(found)


def test_replies_are_fetched_ahead_and_none_in_a_session(
    database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(database, [{"_id": i} for i in range(30)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 10)
    threads: list[threading.Thread] = []
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if thread.name == "bucketwise-ahead":
            threads.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    assert len(list(find_raw(database["it"], {}))) == 3
    assert len(threads) == 1 and not fetching()
    threads.clear()
    assert len(list(find_raw(database["it"], {"_id": {"$lt": 9}}))) == 1
    with database.client.start_session() as session:
        assert len(list(find_raw(database["it"], {}, session))) == 3
    assert len(threads) == 0


def test_no_more_replies_wait_than_they_may(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fetched is bounded by its bytes, however slow the one is that works on it."""
    stored = store(database, [{"_id": i} for i in range(100)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 10)
    monkeypatch.setattr(raw_cursor, "READ_AHEAD_BYTES", 25 * len(stored[0]))
    cut, most, number = 0, 0, 0
    documents = raw_cursor._documents

    def counted(array: memoryview) -> Iterator[Docs]:
        nonlocal cut, most
        cut += 1
        most = max(most, cut - number)
        return documents(array)

    monkeypatch.setattr(raw_cursor, "_documents", counted)
    for number, _ in enumerate(find_raw(database["it"], {}), 1):
        wait_until(lambda at=number: cut >= min(at + 3, 10), "no more is fetched")  # type: ignore[misc]
    assert number == 10
    assert most <= 4  # three wait at most, and one is on its way


def test_the_bytes_of_a_reply() -> None:
    docs = Docs.of([bson.encode({"_id": 1})])
    assert raw_cursor._size(docs.data) == len(docs.data)
    assert raw_cursor._size([docs, docs]) == 2 * len(docs.data)


def test_who_leaves_off_early_leaves_nothing_open(database: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    store(database, [{"_id": i} for i in range(100)])
    monkeypatch.setattr(raw_cursor, "MOST_DOCUMENTS", 10)
    monkeypatch.setattr(raw_cursor, "READ_AHEAD_BYTES", 1)
    before = open_cursors(database.client)
    found = find_raw(database["it"], {})
    next(found)
    assert open_cursors(database.client) == before + 1
    found.close()  # type: ignore[attr-defined]
    assert not fetching() and open_cursors(database.client) == before


# Without a server


class _Broken(Exception):
    pass


def test_ahead_keeps_the_order_and_the_place_of_an_error() -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise _Broken

    for may_go_on in (True, False):
        found = prefetch(numbers(), lambda may=may_go_on: may)  # type: ignore[misc]
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(_Broken):
            next(found)
        assert not fetching()


def test_one_is_fetched_while_one_is_worked_on() -> None:
    """Each is fetched before the one before it is done with; the one after that is not."""
    fetched = [threading.Event() for _ in range(4)]

    def numbers() -> Iterator[int]:
        for number, event in enumerate(fetched):
            event.set()
            yield number

    found = prefetch(numbers(), lambda: True)
    for number in range(3):
        assert next(found) == number
        assert fetched[number + 1].wait(60)
        assert not any(event.is_set() for event in fetched[number + 2 :])
    found.close()


def test_so_many_are_fetched_as_fit() -> None:
    fetched = [threading.Event() for _ in range(50)]
    taken = most = 0

    def sizes() -> Iterator[int]:
        nonlocal most
        for number, event in enumerate(fetched):
            most = max(most, number - taken)
            event.set()
            yield 2

    found = prefetch(sizes(), lambda: True, lambda size: size, limit=5)
    for _ in range(40):
        next(found)
        taken += 1
        assert fetched[taken + 2].wait(60)
    assert most <= 3  # two wait, where there is room for another one; one is on its way
    before = sum(event.is_set() for event in fetched)
    found.close()
    assert sum(event.is_set() for event in fetched) <= before + 1 and not fetching()


def test_a_cursor_whose_reader_waits_is_asked_for_more_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server would close it otherwise."""
    monkeypatch.setattr(ahead, "IDLE", 0.01)
    fetched: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(50):
            fetched.append(number)
            yield number

    found = prefetch(numbers(), lambda: True)
    assert next(found) == 0
    wait_until(lambda: len(fetched) >= 10, "it is asked for more")
    assert list(found) == list(range(1, 50))


_INTERRUPTED = """
import random, signal, sys, threading, time
from bucketwise.buckets.bson.cursor import prefetch

class Alarm(BaseException):
    pass

def ring(*_):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
chance, rung = random.Random(1), 0
for _ in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 1e-3))
        found = list(prefetch(iter(range(400)), lambda: True, limit=chance.choice([1, 5])))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert found == [*range(400)], found  # else it was interrupted
    except Alarm:
        rung += 1
until = time.monotonic() + 60
while sum(it.is_alive() for it in threading.enumerate()) > 1 and time.monotonic() < until:
    time.sleep(0.01)
alive = [it for it in threading.enumerate() if it.is_alive()]
assert rung > 100 and len(alive) == 1, (rung, alive)
"""


@pytest.mark.proof
@pytest.mark.process
def test_an_interrupt_at_any_instant_leaves_nobody_waiting_and_is_not_lost() -> None:
    """As a worker is told to leave, whatever its main thread is at. Who hears of none has got all."""
    ran = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr


def test_an_interrupt_is_not_taken_for_a_machine_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end as another error: of a lock that it left as it was not thought to be."""

    class Told(BaseException):
        pass

    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        try:
            raise Told
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Told):
        list(prefetch(iter(range(9)), lambda: True))


def test_without_a_thread_each_is_fetched_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert list(prefetch(iter(range(3)), lambda: True)) == [0, 1, 2]
    try:
        raise KeyError
    except KeyError:  # what is under way meanwhile has not interrupted it
        assert list(prefetch(iter(range(3)), lambda: True)) == [0, 1, 2]


def test_leaving_off_waits_for_what_is_under_way() -> None:
    entered, release, done = threading.Event(), threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        yield 0
        entered.set()
        release.wait(60)
        done.set()
        yield 1

    found = prefetch(numbers(), lambda: True)
    next(found)
    assert entered.wait(60)
    threading.Timer(0.05, release.set).start()
    found.close()
    assert done.is_set() and not fetching()


@pytest.mark.parametrize("first", [{}, {"said": "by the server", "at": {"time": 1, "signature": b"x" * 20}}])
def test_a_reply_whose_fields_come_in_another_order(first: dict[str, Any]) -> None:
    """Its documents are cut out all the same, and not sooner or later made one by one."""
    cursor = {"id": 7, "ns": "market.ticks", "firstBatch": [{"_id": 1, "v": "x"}, {"_id": 2}]}
    rest, batch, array = raw_cursor._take_out_array(
        memoryview(bson.encode({**first, "cursor": cursor, "ok": 1.0}))
    )
    assert bson.decode(rest) == {**first, "cursor": {**cursor, "firstBatch": []}, "ok": 1.0}
    assert batch == "firstBatch"
    assert list(bson.decode(bytes(array)).values()) == cursor["firstBatch"]
