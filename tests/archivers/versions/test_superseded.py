"""A copy whose bucket was deleted or corrected while it was live again: a smaller one stands in its place.

Nobody can tell a late upsert behind a delete from a correction by removal. So the live one counts, and the
copy is kept as it was: a version that counts no more.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.moving import online
from bucketwise.archivers.restoring.options import Mode, VersionHandling
from bucketwise.archivers.versions import kept
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, Case, encode, insert, raw_documents, slots
from tests.archivers.harness import Cycle, in_turn
from tests.archivers.moving.test_guard import once, read, slot_rows
from tests.archivers.versions.test_late_versions import hours, original, versioned

Document = dict[str, Any]
FIRST = hours({3: 1.0, 5: 2.0}, unit="C")
LATE = hours({9: 4.0})
DAYS = timedelta(days=1)


class Place:
    """A bucket that is archived, and live: restored, or in its grace."""

    def __init__(
        self, database: Database[Document], store: Store, to: str, waits: str = "", **keys: Any
    ) -> None:
        base = slots("minute")
        case = Case(base.name, base.policy.model_copy(update=keys), [], [])
        case = case.online() if to == "online" else case
        grace = {"grace": 2 * DAYS} if waits == "grace" else {}
        self.cycle = Cycle(database, case.with_archive(**grace), store)
        self.waits, self.source, self.now = waits, database["slots"], LATER
        insert(database, "slots", [encode(FIRST)])
        if waits:
            self.cycle.run(self.now)
        if waits == "restored":
            self.cycle.restore("slots")
        assert len(self.cycle.live()) == 1

    def put(self, document: Document) -> None:
        """Somebody deletes the bucket, and a late upsert makes it anew."""
        self.source.delete_many({})
        insert(self.cycle.database, "slots", [encode(document)])

    def finish(self, **how: Any) -> None:
        """The bucket stays once more; then it goes."""
        if self.waits == "restored":
            assert self.cycle.run(self.now).left == 1
            self.cycle.unpin()
        self.now += 3 * DAYS
        self.cycle.run(self.now, **how)
        for _ in range(2):
            self.now += 3 * DAYS
            self.cycle.run(self.now)
        assert self.cycle.live() == []

    def versions(self) -> list[bytes]:
        """All that the archive gives of the bucket, the last one last; without it, they are read twice."""
        found = []
        for _ in range(2):
            self.cycle.restore("all", how=VersionHandling(Mode.all, "older"))
            older = sorted(raw_documents(self.cycle.database, "older"), key=versioned)
            found.append([*map(original, older), *raw_documents(self.cycle.database, "all")])
        assert found[0] == found[1]
        return found[0]

    def restored(self, mode: Mode) -> list[bytes]:
        name = f"back_{mode}"
        self.cycle.restore(name, how=VersionHandling(mode))
        return raw_documents(self.cycle.database, name)


KINDS, WAITS = ("offline", "online"), ("restored", "grace")
EACH_ONCE = pytest.mark.parametrize(("to", "waits"), in_turn(KINDS, WAITS))


@pytest.fixture(params=KINDS)
def to(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAITS)
def waits(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(database: Database[Document], file_store: Store, to: str, waits: str) -> Place:
    return Place(database, file_store, to, waits)


def counts(place: Place, document: Document) -> None:
    """It alone is in summaries, `readings`, what a reader of the archive sees, and a restore."""
    assert read(place.cycle) == [encode(document)]
    assert place.restored(Mode.merged) == place.restored(Mode.latest) == [encode(document)]
    if place.cycle.policy.archive and place.cycle.policy.archive.to == "offline":
        assert place.cycle.rows() == slot_rows([encode(document)])
    assert place.cycle.verify().bad == []


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_deleted_and_a_late_upsert(place: Place) -> None:
    place.put(LATE)
    place.finish()
    counts(place, LATE)
    assert place.versions() == [encode(FIRST), encode(LATE)]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@EACH_ONCE
def test_a_slot_that_was_wrong_is_taken_out(place: Place) -> None:
    place.source.update_one({}, {"$unset": {"p.5": ""}})
    place.finish()
    corrected = hours({3: 1.0}, unit="C")
    counts(place, corrected)
    assert place.versions() == [encode(FIRST), encode(corrected)]


@pytest.mark.in_turn(1)
@EACH_ONCE
def test_what_lacks_nothing_leaves_nothing_behind(place: Place) -> None:
    place.source.update_one({}, {"$set": {"p.6": 1.0, "note": "x"}})
    place.finish()
    corrected = {**hours({3: 1.0, 5: 2.0, 6: 1.0}, unit="C"), "note": "x"}
    counts(place, corrected)
    assert place.versions() == [encode(corrected)]


@pytest.mark.in_turn(1)
@EACH_ONCE
def test_a_value_that_was_wrong_is_corrected(place: Place) -> None:
    place.source.update_one({}, {"$set": {"p.5": 7.0}})
    place.finish()
    corrected = hours({3: 1.0, 5: 7.0}, unit="C")
    counts(place, corrected)
    assert place.versions() == [encode(FIRST), encode(corrected)]


@pytest.mark.in_turn(1)
def test_a_late_upsert_of_another_field(database: Database[Document], file_store: Store, to: str) -> None:
    """At the times of the copy's readings."""
    place = Place(database, file_store, to, "grace", value_fields=("p", "q"))
    late = {**FIRST, "q": {"3": 9.0, "5": 9.0}}
    del late["p"]
    place.put(late)
    place.finish()
    assert read(place.cycle) == [encode(late)]
    assert place.versions() == [encode(FIRST), encode(late)]


@pytest.mark.proof
@pytest.mark.in_turn(1)
@EACH_ONCE
def test_one_after_the_other(place: Place) -> None:
    """What comes late to the one that counts is merged with that one alone."""
    place.put(LATE)
    place.finish()
    latest = hours({9: 5.0, 10: 1.0})
    insert(place.cycle.database, "slots", [encode(latest)])
    if place.waits == "restored":
        place.waits = ""
    place.finish()
    assert place.restored(Mode.merged) == [encode(latest)]
    assert place.versions() == [encode(FIRST), encode(LATE), encode(latest)]
    place.cycle.restore("slots")
    place.source.update_one({}, {"$unset": {"p.10": ""}})
    place.cycle.unpin()
    place.finish()
    corrected = hours({9: 5.0})
    counts(place, corrected)
    found = place.versions()
    assert found[0] == encode(FIRST) and found[-1] == encode(corrected)
    assert {encode(LATE), encode(latest)} <= set(found)


@pytest.mark.proof
@pytest.mark.in_turn(1)
def test_a_reading_is_added_after_two_of_them(
    database: Database[Document], file_store: Store, to: str
) -> None:
    place = Place(database, file_store, to, "restored")
    last = hours({11: 6.0})
    for document in (LATE, last):
        place.put(document)
        place.finish()
        place.cycle.restore("slots")
    place.source.update_one({}, {"$set": {"p.12": 1.0}})
    place.finish()
    assert place.versions() == [encode(FIRST), encode(LATE), encode(hours({11: 6.0, 12: 1.0}))]


def test_a_reading_is_added_to_several_versions(database: Database[Document], file_store: Store) -> None:
    """One of them is in the bucket that was restored; the other one is not."""
    place = Place(database, file_store, "online")
    later = hours({5: 3.0}, unit="C")
    for document in ({}, later):
        insert(database, "slots", [encode(document)] if document else [])
        place.finish()
    place.cycle.restore("slots")
    place.waits = "restored"
    place.source.update_one({}, {"$set": {"p.6": 1.0}})
    place.finish()
    edited = hours({3: 1.0, 5: 3.0, 6: 1.0}, unit="C")
    counts(place, edited)
    assert place.versions() == [encode(FIRST), encode(edited)]


@pytest.mark.proof
def test_no_receipt_is_left_of_a_late_copy(database: Database[Document], file_store: Store) -> None:
    """Somebody deletes a bucket that waits to be merged; and the one it was to be merged into is edited."""
    place = Place(database, file_store, "online")
    place.finish()
    place.cycle.case = place.cycle.case.with_archive(grace=20 * DAYS)
    place.put(LATE)
    place.cycle.run(place.now)
    place.source.delete_many({})
    place.cycle.restore("slots")
    place.source.update_one({}, {"$set": {"p.6": 1.0}})
    place.cycle.unpin()
    for _ in range(2):
        place.now += DAYS
        place.cycle.run(place.now)
    assert list(database["bucketwise_receipts"].find({"state": "merging"})) == []
    place.cycle.case = place.cycle.case.with_archive(grace=0 * DAYS)
    last = hours({20: 2.0})
    for document in ({}, last):
        insert(database, "slots", [encode(document)] if document else [])
        place.finish()
    both = encode(hours({3: 1.0, 5: 2.0, 6: 1.0, 20: 2.0}, unit="C"))
    assert read(place.cycle) == place.restored(Mode.merged) == [both]
    edited = hours({3: 1.0, 5: 2.0, 6: 1.0}, unit="C")
    assert place.versions() == [encode(LATE), encode(edited), encode(last)]


@pytest.mark.parametrize("most", [100_000, pytest.param(kept.MAX_BYTES, marks=pytest.mark.proof)])
def test_a_copy_that_is_too_large_to_be_kept(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    for module in (kept, online):
        monkeypatch.setattr(module, "MAX_BYTES", most)
    place = Place(database, file_store, "online")
    large = {**FIRST, "note": "x" * (most + 100_000)}
    place.put(large)
    place.cycle.case = place.cycle.case.with_archive(grace=2 * DAYS)
    place.cycle.run(place.now)
    place.put(LATE)
    for _ in range(2):
        place.now += 3 * DAYS
        (found,) = place.cycle.run(place.now).quarantined
        assert found.field == "_id" and "too large to be kept beside" in found.reason
    assert place.cycle.live() == [encode(LATE)]
    assert place.cycle.archived() == [encode(large)]
    place.put({**large, "p": {"3": 1.0, "5": 2.0, "6": 1.0}})
    place.finish()
    assert place.versions() == [encode({**large, "p": {"3": 1.0, "5": 2.0, "6": 1.0}})]


@pytest.mark.in_turn(1)
@EACH_ONCE
def test_an_older_restore_is_no_stranger(place: Place) -> None:
    place.cycle.restore("back")
    place.put(LATE)
    place.finish()
    place.cycle.restore("back")
    assert raw_documents(place.cycle.database, "back") == [encode(LATE)]


Meddle = Callable[[Place], None]


def deletes_and_upserts(place: Place) -> None:
    place.put(LATE)


def unsets(place: Place) -> None:
    place.source.update_one({}, {"$unset": {"p.5": ""}})


WANTED: dict[Meddle, Document] = {deletes_and_upserts: LATE, unsets: hours({3: 1.0}, unit="C")}


@pytest.mark.proof
@pytest.mark.parametrize(("to", "meddle"), in_turn(KINDS, list(WANTED)))
def test_between_copy_and_delete(
    database: Database[Document], file_store: Store, to: str, meddle: Meddle
) -> None:
    """At every transaction of the run that copies and deletes."""
    for at in range(1, 10):
        for name in database.list_collection_names():
            database.drop_collection(name)
        store = file_store.model_copy(update={"url": f"{file_store.url}/{at}"})
        place = Place(database, store, to)
        place.cycle.root.mkdir()
        met: list[int] = []

        def meddles(place: Place = place, met: list[int] = met) -> None:
            met.append(1)
            meddle(place)

        place.cycle.run(guard=once(meddles, at=at))
        if not met:
            break
        if not place.cycle.live():
            continue  # nothing was there to take out any more
        place.finish()
        counts(place, WANTED[meddle])
        found = place.versions()
        assert found[-1] == encode(WANTED[meddle])
        assert found[0] == encode(FIRST) or at == 1  # it had no copy yet
    assert at > 2
