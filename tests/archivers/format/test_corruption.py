"""Damage in the store or the archive collection: it is told, and nothing is deleted on its account."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers import writes
from bucketwise.archivers.context import Connections
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.verifying.report import VerifyReport
from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, LATER, raw_documents, samples_overflow, slots
from tests.archivers.harness import Cycle
from tests.archivers.states import States, all_archived
from tests.tiers import tier

Document = dict[str, Any]
AFTER_GRACE = LATER + timedelta(days=3)


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    return Cycle(database, samples_overflow(), file_store).load()


@pytest.fixture
def archived(prepared: States) -> Cycle:
    return prepared(samples_overflow(), all_archived)


@pytest.fixture
def waiting(prepared: States) -> Cycle:
    """Copied, and waiting for its grace to be over."""
    cycle = prepared(samples_overflow().with_archive(grace=timedelta(days=2)), all_archived)
    assert len(cycle.live()) == 60
    return cycle


def files(cycle: Cycle, kind: str) -> list[Path]:
    found = sorted(path for path in (cycle.root / cycle.policy.name / kind).rglob("*") if path.is_file())
    assert found
    return found


def flip(path: Path, position: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(bytes(data))


def verified(cycle: Cycle) -> VerifyReport:
    return cycle.verify()


KINDS = ["data", "meta/buckets", "meta/manifests"]
DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit": lambda path: flip(path, path.stat().st_size // 2),
    "the first bit": lambda path: flip(path, 0, 0),
    "the last bit": lambda path: flip(path, -1, 7),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "gone": lambda path: path.unlink(),
}
#: `make test` tries each damage once, and what is gone of each kind, as each is told in another way.
IN_TURN = pytest.mark.parametrize(
    ("damage", "kind"),
    [
        pytest.param(
            damage,
            kind,
            id=f"{damage}-{kind}",
            marks=tier(is_first=damage == "gone" or (turn + at) % len(KINDS) == 0, is_proof=True),
        )
        for turn, damage in enumerate(DAMAGE)
        for at, kind in enumerate(KINDS)
    ],
)


@pytest.mark.in_turn(4)
@IN_TURN
def test_damage_between_copy_and_delete(waiting: Cycle, kind: str, damage: str) -> None:
    DAMAGE[damage](files(waiting, kind)[0])
    before = waiting.listing()
    for _ in range(2):
        with pytest.raises(HaltedError) as error:
            waiting.run(AFTER_GRACE)
        assert error.value.exit_code == 5
        assert "Nothing was deleted" in str(error.value)
    assert waiting.live() == sorted(waiting.case.documents)
    assert waiting.live_overflow() == sorted(waiting.case.overflow)
    assert waiting.listing() == before


@pytest.mark.in_turn(4)
@IN_TURN
def test_damage_after_the_delete(archived: Cycle, kind: str, damage: str) -> None:
    assert verified(archived).bad == []
    path = files(archived, kind)[0]
    DAMAGE[damage](path)
    if (kind, damage) != ("meta/manifests", "gone"):
        (bad,) = verified(archived).bad
        assert bad.code == ("part-missing" if damage == "gone" else "part-differs")
        assert bad.place.endswith(str(path.relative_to(archived.root)))
        with pytest.raises(HaltedError):
            archived.restore("back")
        assert "back" not in archived.database.list_collection_names()
        with pytest.raises(HaltedError):
            reader = archived_reader(Connections(archived.database, archived.store), archived.policy)
            list(reader.batches(FIRST_MS, LAST_MS))
    else:  # files without their manifest look like those of a run that died; the receipt knows better
        before = archived.listing()
        with pytest.raises(HaltedError, match="the manifest is missing"):
            archived.run()
        assert archived.listing() == before


@pytest.mark.proof
@pytest.mark.parametrize("step", [43, pytest.param(3, marks=pytest.mark.proof)])
def test_every_bit_of_a_manifest_counts(prepared: States, step: int) -> None:
    """A flip in a date or a number would hide a commit, or end its grace."""
    cycle = prepared(slots("minute"), all_archived)
    (path,) = files(cycle, "meta/manifests")
    data = path.read_bytes()
    for position in range(0, len(data), step):
        flip(path, position, position % 7)
        assert len(verified(cycle).bad) == 1, position
        path.write_bytes(data)
    assert verified(cycle).bad == []


def test_a_manifest_under_another_name(archived: Cycle) -> None:
    (path,) = files(archived, "meta/manifests")
    other = path.with_name(path.name.replace("_f000001_", "_f000002_"))
    other.write_bytes(path.read_bytes())
    assert [bad.code for bad in verified(archived).bad] == ["part-differs"]


@dataclass
class FlippingStore:
    """Flips a bit of the n-th object that is put into the store behind it."""

    inner: Any
    flip_at: int
    puts: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        self.puts += 1
        if self.puts == self.flip_at:
            data = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        self.inner.put_bytes(key, data, **given)


@pytest.mark.proof
def test_a_bit_flips_on_its_way_into_the_store(cycle: Cycle) -> None:
    """Every object of the first commit in turn; afterwards a clean run does the work."""
    for put, key in ((1, "bucketwise.json"), (2, "lineage/.*"), (2, "owner.json")):
        with pytest.raises(HaltedError, match=f"{key}: read back, it is not what was written"):
            cycle.run(store=FlippingStore(cycle.store, put))
    cycle.context(fence=1).binding.claim()
    flips = 0
    while flips < 10:
        store = FlippingStore(cycle.store, flips + 1)
        try:
            cycle.run(store=store)
        except HaltedError:
            flips += 1
            assert cycle.live() == sorted(cycle.case.documents)
            assert cycle.live_overflow() == sorted(cycle.case.overflow)
            continue
        break
    assert flips == 5  # a step of the lineage, three days and the buckets; a manifest is written once more
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)
    assert verified(cycle).bad == []


def test_copies_that_are_not_equal_online(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = Cycle(database, slots("minute").online(), file_store).load()
    inner = writes.insert_raw

    def insert(database: Any, collection: str, documents: Docs, session: Any = None) -> None:
        changed = [bson.decode(document, CODEC) for document in documents]
        changed[0]["p"]["0"] = -1.0
        inner(
            database, collection, Docs.of([bson.encode(it, codec_options=CODEC) for it in changed]), session
        )

    with monkeypatch.context() as patch:
        patch.setattr(writes, "insert_raw", insert)
        with pytest.raises(HaltedError, match="not equal to their originals"):
            cycle.run()
    assert cycle.live() == sorted(cycle.case.documents)
    cycle.run()
    assert cycle.live() == []
    assert cycle.archived() == sorted(cycle.case.documents)


def test_copies_that_change_before_the_delete_online(database: Database[Document], file_store: Store) -> None:
    """What is deleted equals a copy as it is then: a damaged copy is made anew first."""
    case = samples_overflow().online().with_archive(grace=timedelta(days=2))
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    database["iot_archive"].update_one({"_id": "004"}, {"$set": {"note": "?"}})
    database["iot_archive"].delete_one({"_id": "005"})
    database["iot_archive_overflow"].update_one({"bucket_id": "003"}, {"$set": {"p": 99}})
    database["iot_archive_overflow"].delete_one({"bucket_id": "006"})
    cycle.run(AFTER_GRACE)
    cycle.run(AFTER_GRACE + timedelta(days=3))
    assert (cycle.live(), cycle.live_overflow()) == ([], [])
    assert cycle.archived() == sorted(case.documents)
    assert raw_documents(database, "iot_archive_overflow") == sorted(case.overflow)


def test_a_part_under_the_name_of_an_older_run_is_not_cleared(archived: Cycle) -> None:
    """It looks like what a crash left, and is the only copy."""
    part = files(archived, "data")[0]
    renamed = part.with_name(part.name.replace("_f000001_", "_f000000_"))
    part.rename(renamed)
    with pytest.raises(HaltedError, match="may have been renamed"):
        archived.run()
    assert renamed.exists()
    renamed.rename(part)
    archived.run()
    assert verified(archived).bad == []


def test_files_of_strangers_are_left_alone(cycle: Cycle) -> None:
    """What doesn't carry a name of ours isn't ours to delete, nor part of the archive."""
    strangers: Iterable[str] = (
        "iot/data/dt=2018-06-30/mine.parquet",
        "iot/meta/manifests/notes.json",
        "x.txt",
    )
    for key in strangers:
        cycle.store.put_bytes(key, b"mine")
    cycle.run()
    cycle.run()
    assert all(cycle.store.get_bytes(key) == b"mine" for key in strangers)
