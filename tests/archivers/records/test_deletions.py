"""Receipts of deletes: what they say, and that none can be changed or taken out."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, LATER, encode, samples_overflow, slots
from tests.archivers.harness import Cycle, nothing, whole
from tests.archivers.states import States

Document = dict[str, Any]
RECEIPTS = "bucketwise_receipts"
KEY = "k" * 32


@pytest.fixture(autouse=True)
def small_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", nothing)
    monkeypatch.setattr(writes, "MAX_BUCKETS", 8)


def receipts(cycle: Cycle) -> list[Document]:
    books = cycle.database.get_collection(RECEIPTS, codec_options=CODEC)
    return list(books.find({"kind": "delete"}).sort("sequence"))


def numbered(cycle: Cycle) -> list[Document]:
    books = cycle.database.get_collection(RECEIPTS, codec_options=CODEC)
    return list(books.find({"previous": {"$exists": True}}).sort("sequence"))


def check_chain(found: list[Document]) -> None:
    assert [it["sequence"] for it in found] == list(range(1, len(found) + 1))
    previous = None
    for it in found:
        assert it["previous"] == previous
        sealed = {key: value for key, value in it.items() if key not in ("sha256", "signature")}
        previous = hashlib.sha256(encode(sealed)).hexdigest()
        assert it["sha256"] == previous


def units(cycle: Cycle) -> dict[Any, bytes]:
    """Each bucket with its overflow, by its `_id`."""
    found = {bson.decode(raw, CODEC)["_id"]: raw for raw in cycle.case.documents}
    for raw in sorted(cycle.case.overflow, key=lambda raw: bson.decode(raw, CODEC)["_id"]):
        found[bson.decode(raw, CODEC)["bucket_id"]] += raw
    return found


def test_each_delete_leaves_one(database: Database[Document], file_store: Store) -> None:
    """A changed bucket stays, and is in none; the files are those that hold what went."""
    cycle = Cycle(database, samples_overflow(), file_store).load()
    expected = units(cycle)
    assert cycle.run().deleted == 60
    found = receipts(cycle)
    check_chain(found)
    assert [it["buckets"] for it in found] == [8] * 7 + [4]
    (manifest,) = (json.loads(it.read_bytes()) for it in cycle.root.glob("iot/meta/manifests/*"))
    order = list(range(60))
    at = [number for it in found for first, last in it["positions"] for number in range(first, last + 1)]
    assert sorted(at) == order
    archived = [expected[identity] for identity in positions(cycle)]
    for it in found:
        went = b"".join(unit for first, last in it["positions"] for unit in archived[first : last + 1])
        assert it["documents_sha256"] == hashlib.sha256(went).hexdigest()
        held_by = {"commit": manifest["commit"], "manifest_sha256": manifest["sha256"]}
        assert it["held_by"] == held_by
        assert (it["at"], it["fence"], it["collection"]) == (LATER, 1, "iot")
    (text,) = database[RECEIPTS].find({"kind": "policy"})
    assert text["_id"]["name"] == "policy-" + hashlib.sha256(text["text"].encode()).hexdigest()
    assert {f"policy-{it['policy_sha256']}" for it in found} == {text["_id"]["name"]}
    said = json.loads(text["text"])
    assert (said["collection"], said["archive"]["after"]) == ("iot", "P30D")


def positions(cycle: Cycle) -> list[Any]:
    """The `_id`s of the one commit, in its order."""
    archive = cycle.as_stored()
    (commit,) = archive.commits()
    batch = whole(archive, archive.manifest(commit))
    return [batch.main.decode_id(i) for i in range(len(batch))]


@pytest.mark.proof
def test_online(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, samples_overflow().online(), file_store).load()
    expected = units(cycle)
    assert cycle.run().deleted == 60
    check_chain(numbered(cycle))
    found = receipts(cycle)
    went = []
    for it in found:
        ids = bson.decode(zlib.decompress(it["ids"]), CODEC)["ids"]
        assert it["documents_sha256"] == hashlib.sha256(b"".join(expected[i] for i in ids)).hexdigest()
        assert it["held_by"] == {"collection": "iot_archive", "overflow": "iot_archive_overflow"}
        assert it["buckets"] == len(ids)
        went += ids
    assert sorted(went) == sorted(expected)
    assert cycle.verify().bad == []
    database[RECEIPTS].update_one({"kind": "delete"}, {"$inc": {"buckets": 1}})
    assert [bad.code for bad in cycle.verify().bad] == ["receipt-differs"]


@pytest.mark.proof
def test_online_with_another_key(database: Database[Document], file_store: Store) -> None:
    """Nothing is deleted until the receipts before are signed with the key of the policy file."""
    cycle = Cycle(database, samples_overflow().online(), file_store).load()
    late = database.iot.find_one({"has_extras": {"$ne": True}})
    assert late is not None
    cycle.run()
    database.iot.insert_one({**late, "_id": "late"})
    for keys, said in ((Keys(KEY), "run `bucketwise sign`"), (Keys(), "which is not among")):
        cycle.keys = keys
        before = receipts(cycle), cycle.live()
        with pytest.raises(HaltedError, match=said):
            cycle.run()
        assert (receipts(cycle), cycle.live()) == before
        cycle.keys = Keys(KEY)
        cycle.sign()
    assert cycle.run().deleted == 1
    assert cycle.verify().bad == []


def test_what_was_not_deleted_has_none(database: Database[Document], file_store: Store) -> None:
    cycle = Cycle(database, slots("minute").with_archive(grace=timedelta(days=2)), file_store).load()
    cycle.run()
    assert receipts(cycle) == []
    database["slots"].update_one({"_id": 7}, {"$set": {"note": "new"}})
    cycle.run(LATER + timedelta(days=3))
    assert sum(it["buckets"] for it in receipts(cycle)) == 39
    check_chain(receipts(cycle))


def set_of(number: int, **changes: Any) -> Callable[[Any], object]:
    return lambda books: books.update_one({"_id.name": f"delete-{number:010d}"}, {"$set": changes})


def forge(books: Any) -> None:
    """With the seal made anew."""
    found = books.find_one({"_id.name": "delete-0000000002"})
    found["buckets"] = 7
    sealed = {key: value for key, value in found.items() if key not in ("sha256", "signature")}
    found["sha256"] = hashlib.sha256(encode(sealed)).hexdigest()
    books.replace_one({"_id": found["_id"]}, found)


def forge_last(books: Any) -> None:
    """… of the last one, and the record of the last one as well: only the key knows."""
    found = books.find_one({"_id.name": "delete-0000000005"})
    found["buckets"] = 7
    sealed = {key: value for key, value in found.items() if key not in ("sha256", "signature")}
    found["sha256"] = hashlib.sha256(encode(sealed)).hexdigest()
    books.replace_one({"_id": found["_id"]}, found)
    books.update_one({"_id.name": "last"}, {"$set": {"sha256": found["sha256"]}})


def remove(*numbers: int) -> Callable[[Any], object]:
    names = [f"delete-{number:010d}" for number in numbers]
    return lambda books: books.delete_many({"_id.name": {"$in": names}})


DAMAGE: dict[str, tuple[Callable[[Any], object], set[str]]] = {
    "another number of buckets": (set_of(3, buckets=1), {"receipt-differs"}),
    "another time": (set_of(1, at=LATER + timedelta(days=1)), {"receipt-differs"}),
    "another hash": (set_of(2, documents_sha256="0" * 64), {"receipt-differs"}),
    "another kind of value": (set_of(2, sequence="two"), {"receipt-differs", "receipt-missing"}),
    "one more field": (set_of(2, note="!"), {"receipt-differs"}),
    "another seal": (set_of(2, sha256="0" * 64), {"receipt-differs"}),
    "no signature": (set_of(2, signature=None), {"signature-missing"}),
    "another signature": (set_of(2, signature=Keys("x" * 32).sign("0" * 64)), {"signature-missing"}),
    "the signature of another": (set_of(2, signature=Keys(KEY).sign("0" * 64)), {"signature-wrong"}),
    "forged": (forge, {"receipt-differs", "signature-wrong"}),
    "forged, the last one": (forge_last, {"signature-wrong"}),
    "the first is gone": (remove(1), {"receipt-missing"}),
    "one is gone": (remove(3), {"receipt-missing"}),
    "the last is gone": (remove(5), {"receipt-missing"}),
    "all are gone": (remove(1, 2, 3, 4, 5), {"receipt-missing"}),
    "the record of the last is gone": (
        lambda books: books.delete_one({"_id.name": "last"}),
        {"receipt-missing"},
    ),
    "another policy text": (
        lambda books: books.update_one({"kind": "policy"}, {"$set": {"text": "{}"}}),
        {"receipt-differs"},
    ),
    "the policy text is gone": (lambda books: books.delete_one({"kind": "policy"}), {"receipt-differs"}),
}


def signed(cycle: Cycle) -> None:
    cycle.keys = Keys(KEY)
    cycle.run()


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged(prepared: States, what: str) -> None:
    cycle = prepared(slots("minute"), signed)
    assert len(receipts(cycle)) == 5
    assert cycle.verify().bad == []
    change, codes = DAMAGE[what]
    change(cycle.database.get_collection(RECEIPTS, codec_options=CODEC))
    assert {bad.code for bad in cycle.verify().bad} == codes


def test_a_commit_whose_files_have_gone_or_may_go_names_none(database: Database[Document]) -> None:
    """What others have taken over lies in theirs."""
    known = Receipts(database, "ticks")
    assert known.files("2018-06-30") == []
    for state, files in (("open", ["a", "b"]), ("closed", ["a", "b"]), (REPLACED, []), (HELD, [])):
        known.update("2018-06-30", {"$set": {"state": state, "parts": ["a", "b"]}})
        assert known.files("2018-06-30") == files
    known.update("2018-06-30", {"$unset": {"parts": "", "state": ""}})
    assert known.files("2018-06-30") == []
