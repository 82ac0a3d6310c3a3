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

from archivers.restoring.target import How, Mode
from config.policies import Store
from tests.archivers.builders import LATER, Case, encode, insert, raw_documents, slots
from tests.archivers.harness import Cycle
from tests.archivers.test_guard import once, read, slot_rows
from tests.archivers.test_late_versions import hours, original, versioned

Document = dict[str, Any]
FIRST = hours({3: 1.0, 5: 2.0}, unit="C")
LATE = hours({9: 4.0})
DAYS = timedelta(days=1)


class Place:
    """A bucket that is archived, and live: restored, or in its grace."""

    def __init__(self, database: Database[Document], store: Store, to: str, waits: str = "") -> None:
        base = slots("minute")
        case = Case(base.name, base.policy, [], [])
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
            self.cycle.restore("all", how=How(Mode.all, "older"))
            older = sorted(raw_documents(self.cycle.database, "older"), key=versioned)
            found.append([*map(original, older), *raw_documents(self.cycle.database, "all")])
        assert found[0] == found[1]
        return found[0]

    def restored(self, mode: Mode) -> list[bytes]:
        name = f"back_{mode}"
        self.cycle.restore(name, how=How(mode))
        return raw_documents(self.cycle.database, name)


@pytest.fixture(params=["offline", "online"])
def to(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["restored", "grace"])
def place(request: pytest.FixtureRequest, database: Database[Document], file_store: Store, to: str) -> Place:
    return Place(database, file_store, to, request.param)


def counts(place: Place, document: Document) -> None:
    """It alone is in summaries, `readings`, what a reader of the archive sees, and a restore."""
    assert read(place.cycle) == [encode(document)]
    assert place.restored(Mode.merged) == place.restored(Mode.latest) == [encode(document)]
    if place.cycle.policy.archive and place.cycle.policy.archive.to == "offline":
        assert place.cycle.rows() == slot_rows([encode(document)])
    assert place.cycle.verify().bad == []


def test_deleted_and_a_late_upsert(place: Place) -> None:
    place.put(LATE)
    place.finish()
    counts(place, LATE)
    assert place.versions() == [encode(FIRST), encode(LATE)]


def test_a_slot_that_was_wrong_is_taken_out(place: Place) -> None:
    place.source.update_one({}, {"$unset": {"p.5": ""}})
    place.finish()
    corrected = hours({3: 1.0}, unit="C")
    counts(place, corrected)
    assert place.versions() == [encode(FIRST), encode(corrected)]


def test_what_lacks_nothing_leaves_nothing_behind(place: Place) -> None:
    place.source.update_one({}, {"$set": {"p.5": 7.0, "p.6": 1.0}})
    place.finish()
    corrected = hours({3: 1.0, 5: 7.0, 6: 1.0}, unit="C")
    counts(place, corrected)
    assert place.versions() == [encode(corrected)]


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


@pytest.mark.parametrize(
    ("meddle", "wanted"), [(deletes_and_upserts, LATE), (unsets, hours({3: 1.0}, unit="C"))]
)
def test_between_copy_and_delete(
    database: Database[Document], file_store: Store, to: str, meddle: Meddle, wanted: Document
) -> None:
    """At every transaction of the run that copies and deletes."""
    for at in range(1, 10):
        for name in database.list_collection_names():
            database.drop_collection(name)
        store = file_store.model_copy(update={"url": f"{file_store.url}/{at}"})
        place = Place(database, store, to)
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
        counts(place, wanted)
        found = place.versions()
        assert found[-1] == encode(wanted)
        assert found[0] == encode(FIRST) or at == 1  # it had no copy yet
    assert at > 2
