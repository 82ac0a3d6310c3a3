"""Receipts of old deletes move to the store: they say what they said; none can be changed or taken out."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest

from bucketwise.archivers import writes
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.records import receipt_files
from bucketwise.archivers.records.deletions import legible
from bucketwise.archivers.records.receipt_files import ReceiptFile, ReceiptFiles, chained, numbered_for
from bucketwise.archivers.records.receipts import Receipts
from tests.archivers.builders import CODEC, LATER, encode, insert, slots
from tests.archivers.harness import Cycle, nothing
from tests.archivers.states import States

Document = dict[str, Any]
KEY = "k" * 32
OLD = LATER + timedelta(days=150)
LATE = [
    {"_id": f"late {i}", "p": {"0": i / 2}, "meta": {"symbol": "MDB"}, "d": OLD + timedelta(hours=i)}
    for i in (1, 2)
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five receipts of what there is, and two to a file."""
    monkeypatch.setattr("os.fsync", nothing)
    monkeypatch.setattr(writes, "MAX_BUCKETS", 8)
    monkeypatch.setattr(receipt_files, "MOST", 2)


def signed(cycle: Cycle) -> None:
    cycle.keys = Keys(KEY)
    cycle.run()


@pytest.fixture
def cycle(prepared: States) -> Cycle:
    return prepared(slots("minute"), signed)


def told(cycle: Cycle, since: datetime | None = None, until: datetime | None = None) -> list[Document]:
    context = cycle.context()
    return list(legible(context.receipts, context.receipt_files, since, until))


def in_database(cycle: Cycle) -> list[int]:
    found = cycle.database["bucketwise_receipts"].find({"kind": "delete"}).sort("sequence")
    return [it["sequence"] for it in found]


def files(cycle: Cycle) -> list[Path]:
    return sorted((cycle.root / cycle.policy.name / "meta" / "receipts").glob("*"))


def documents(file: Path) -> list[Document]:
    """As anybody would read them."""
    return list(bson.decode_all(gzip.decompress(file.read_bytes()), CODEC))


def bad(cycle: Cycle) -> set[str]:
    return {it.code for it in cycle.verify().bad}


def test_they_say_what_they_said(cycle: Cycle) -> None:
    before = told(cycle)
    assert [it["sequence"] for it in before] == in_database(cycle) == [1, 2, 3, 4, 5]
    cycle.run(OLD)
    assert (in_database(cycle), told(cycle)) == ([], before)
    read = list(itertools.chain.from_iterable(map(documents, files(cycle))))
    assert [len(documents(it)) for it in files(cycle)] == [2, 2, 1]
    for it, previous in zip(read, [None, *read], strict=False):
        sealed = {key: value for key, value in it.items() if key not in ("sha256", "signature")}
        assert it["sha256"] == hashlib.sha256(encode(sealed)).hexdigest()
        assert it["previous"] == (previous and previous["sha256"])
    assert bad(cycle) == set()
    assert told(cycle, until=LATER) == told(cycle, since=LATER + timedelta(seconds=1)) == []
    assert told(cycle, since=LATER, until=LATER + timedelta(seconds=1)) == before


def test_later_ones_follow_and_move_in_turn(cycle: Cycle) -> None:
    cycle.run(OLD)
    insert(cycle.database, "slots", list(map(encode, LATE)))
    cycle.run(OLD + timedelta(days=60))
    assert in_database(cycle) == [6]
    assert [it["sequence"] for it in told(cycle)] == [1, 2, 3, 4, 5, 6]
    assert bad(cycle) == set()
    there = {it: it.read_bytes() for it in files(cycle)}
    cycle.run(OLD + timedelta(days=60))
    assert in_database(cycle) == [6]  # not old yet
    cycle.run(OLD + timedelta(days=300))
    assert in_database(cycle) == []
    assert [it["sequence"] for it in told(cycle)] == [1, 2, 3, 4, 5, 6]
    assert bad(cycle) == set()
    assert {it: it.read_bytes() for it in there} == there
    assert len(files(cycle)) == 4


def test_young_ones_and_those_of_a_policy_that_keeps_them_stay(cycle: Cycle) -> None:
    cycle.run(LATER + timedelta(days=89))
    assert in_database(cycle) == [1, 2, 3, 4, 5]
    cycle.case = cycle.case.with_archive(move_receipts=None)
    cycle.run(OLD)
    assert (in_database(cycle), files(cycle)) == ([1, 2, 3, 4, 5], [])


def test_only_what_is_as_it_was_written_moves(cycle: Cycle) -> None:
    """The changed one, and all behind it, stay where they are."""
    books = cycle.database["bucketwise_receipts"]
    books.update_one({"sequence": 3}, {"$set": {"buckets": 1}})
    cycle.run(OLD)
    assert in_database(cycle) == [3, 4, 5]
    assert bad(cycle) == {"receipt-differs"}


def test_a_run_that_dies_before_the_exchange_has_changed_nothing(cycle: Cycle) -> None:
    before = told(cycle)

    def die(*_args: object) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReceiptFiles, "add", die)
        with pytest.raises(InterruptedError):
            cycle.run(OLD)
    assert (in_database(cycle), told(cycle)) == ([1, 2, 3, 4, 5], before)
    assert bad(cycle) == set()
    cycle.run(OLD)
    assert (in_database(cycle), told(cycle), bad(cycle)) == ([], before, set())


def test_a_reader_sees_each_once_while_they_move(cycle: Cycle) -> None:
    before = [it["sequence"] for it in told(cycle)]

    class MovedMeanwhile(ReceiptFiles):
        """They move right after somebody has looked which files there are."""

        is_done = False

        def listed(self) -> list[ReceiptFile]:
            found = super().listed()
            if not self.is_done:
                self.is_done = True
                cycle.run(OLD)
            return found

    receipts = Receipts(cycle.database, cycle.policy.name)
    seen = [it["sequence"] for it, _ in chained(receipts, MovedMeanwhile(receipts, cycle.store))]
    assert seen == before
    assert in_database(cycle) == []


def test_signed_anew_where_they_lie(cycle: Cycle) -> None:
    cycle.run(OLD)
    cycle.keys = Keys("n" * 32, KEY)
    assert cycle.sign().receipts == 5
    assert cycle.sign().receipts == 0
    cycle.keys = Keys("n" * 32)
    assert bad(cycle) == set()


def test_what_a_commit_held_is_found_by_its_receipts(cycle: Cycle) -> None:
    context = cycle.context()
    names = [it["held_by"]["commit"] for it in told(cycle)][:1]

    def found() -> list[int]:
        return [it["sequence"] for it in numbered_for(context.receipts, context.receipt_files, 1, names)]

    before = found()
    assert before
    cycle.run(OLD)
    assert found() == before


def rewrite(change: Callable[[list[Document]], object]) -> Callable[[Cycle], object]:
    """Changes the second file, and compresses it again."""

    def do(cycle: Cycle) -> None:
        file = files(cycle)[1]
        found = documents(file)
        change(found)
        file.write_bytes(gzip.compress(b"".join(map(encode, found))))

    return do


def forged(found: list[Document]) -> None:
    """With seals made anew, as far as the file goes."""
    found[0]["buckets"] = 7
    for it, after in zip(found, [*found[1:], {}], strict=True):
        sealed = {key: value for key, value in it.items() if key not in ("sha256", "signature")}
        it["sha256"] = after["previous"] = hashlib.sha256(encode(sealed)).hexdigest()


def unlist(cycle: Cycle) -> None:
    cycle.database["bucketwise_receipts"].update_one({"kind": "moved"}, {"$pop": {"files": -1}})


def unlist_all(cycle: Cycle) -> None:
    cycle.database["bucketwise_receipts"].delete_one({"kind": "moved"})


DAMAGE: dict[str, tuple[Callable[[Cycle], object], set[str]]] = {
    "gone": (lambda it: files(it)[1].unlink(), {"receipt-missing"}),
    "the last is gone": (lambda it: files(it)[2].unlink(), {"receipt-missing"}),
    "empty": (lambda it: files(it)[1].write_bytes(b""), {"receipt-differs"}),
    "cut": (lambda it: files(it)[1].write_bytes(files(it)[1].read_bytes()[:-9]), {"receipt-differs"}),
    "another one's": (lambda it: files(it)[1].write_bytes(files(it)[0].read_bytes()), {"receipt-differs"}),
    "a receipt was changed": (rewrite(lambda found: found[0].update(buckets=7)), {"receipt-differs"}),
    "a receipt was taken out": (rewrite(lambda found: found.pop(0)), {"receipt-missing"}),
    "the last was taken out": (rewrite(lambda found: found.pop()), {"receipt-differs"}),
    "no signature": (rewrite(lambda found: found[0].update(signature=None)), {"signature-missing"}),
    "forged": (rewrite(forged), {"receipt-differs"}),
    "a file is not named any more": (unlist, {"receipt-missing"}),
    "no file is": (unlist_all, {"receipt-missing"}),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged(cycle: Cycle, what: str) -> None:
    cycle.run(OLD)
    change, codes = DAMAGE[what]
    change(cycle)
    assert bad(cycle) & {"receipt-missing", "receipt-differs", "signature-missing"} == codes


@pytest.mark.proof
def test_every_flipped_byte_is_found(cycle: Cycle) -> None:
    cycle.run(OLD)
    file = files(cycle)[0]
    whole = file.read_bytes()
    for at in range(10, len(whole), 23):  # behind the header, which holds a time
        changed = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        file.write_bytes(changed)
        assert bad(cycle) or _says_the_same(changed, whole), at
    file.write_bytes(whole)
    assert bad(cycle) == set()


def _says_the_same(changed: bytes, whole: bytes) -> bool:
    """The last bits before the trailer may be of no code: then they are nobody's."""
    try:
        return gzip.decompress(changed) == gzip.decompress(whole)
    except (OSError, EOFError, zlib.error):
        return False


def test_without_their_store_it_is_said(cycle: Cycle) -> None:
    cycle.run(OLD)
    receipts = cycle.context().receipts
    with pytest.raises(Exception, match="receipts of deletes were moved to a store"):
        list(chained(receipts, ReceiptFiles(receipts, None)))
