"""Random changes of records and files, as somebody with write access and without the key makes them, or an
accident: each is named by `audit`, none makes a restore give wrong bytes, or a run remove a copy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.reading.readings import Readings
from bucketwise.archivers.records.holds import HoldWriter
from bucketwise.buckets.fields.times import EVER
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from bucketwise.rollups.holds import Hold
from tests.archivers.builders import CODEC, LATER, Case, insert, slots
from tests.archivers.harness import Cycle, nothing
from tests.archivers.reading.test_readings import rows_of
from tests.faults.proofs.test_corruptions import DAMAGES, KEY, Files
from tests.faults.proofs.test_corruptions import World as Corrupted
from tests.faults.tally import Tally

Document = dict[str, Any]
Books = dict[str, dict[bytes, Document]]  # by collection, by `_id`
DONE = LATER + timedelta(days=4)
BOOKS = ("bucketwise_receipts", "bucketwise_holds")
#: Changes that audits need not name, with the reason: by kind of record, and field ("": all of it).
WITHOUT_EFFECT = {
    ("offline", "deleted"): "a count for people",
    ("offline", "at"): "a time for people",
    ("offline", "compacted"): "whether a compaction looks at the commit once more",
    ("offline", "drilled"): "which days a drill takes next",
    ("offline", "known"): "whether fingerprints spare a comparison, which each delete makes anyway",
    ("offline", "replaced_at"): "how long a commit stays that is no longer needed",
    ("copies", ""): "fingerprints spare a comparison, which each delete makes anyway",
    ("begun", ""): "seals of manifests of which none is there",
    ("dropped", ""): "a manifest that came back has no record of a commit, and is named",
    ("owner", "kind"): "the record is found by its name",
    ("last", "latest"): "without it, all receipts are asked",
    ("last", "removed"): "what `stats` tells people",
    ("offline", "next_move"): "when a run looks next whether its parts belong in another class",
    ("owner", "since"): "a time for people",
    ("owner", "deployment"): "the file in the store tells it as well",
    ("owner", "marker"): "the marker is known by the URL of the store as well",
    ("owner", "baseline"): "whether an earlier version had begun the archive, for people",
    ("owner", "lineage"): "its number and its run are held against the store; its time is for people",
    ("store", ""): "a store that the database does not remember is one that it meets",
    ("policy", "kind"): "the text is found by its digest",
    ("collections", "baseline"): "when an earlier version's archive was counted, for people",
    ("closed", ""): "copies that wait no more: nothing reads it",
    ("online", "documents_sha256"): "for people: each delete compares bytes",
    ("online", "deleted"): "a count for people",
    ("online", "at"): "a time for people",
    ("online", "collection"): "for people",
    ("online", "into"): "for people",
    ("online", "copied"): "how long a copied bucket stays, which is compared when it goes",
}
#: Those of an online archive beside these: its records are in the database alone.
WITHOUT_EFFECT_ONLINE = {
    ("owner", ""): "the next run that writes records the deployment once more",
    ("archived", ""): "what no record tells of counts as archived now, and stays for longer",
}


@dataclass
class Collections:
    """The documents of an online archive, as the files of a store are looked at."""

    cycle: Cycle
    past: list[Files] = field(default_factory=list)
    now: Files = field(default_factory=dict)

    def read(self) -> Files:
        names = self.cycle.policy.archive_collections
        assert names is not None
        return {
            f"{name}/{it['_id']}": bson.encode(it, codec_options=CODEC)
            for name in names
            if name is not None
            for it in self.cycle.database.get_collection(name, codec_options=CODEC).find()
        }

    def write(self, files: Files) -> None:
        there = self.read()
        for key in there.keys() - files.keys():
            name = key.partition("/")[0]
            identity = bson.decode(there[key], codec_options=CODEC)["_id"]
            self.cycle.database.get_collection(name, codec_options=CODEC).delete_one({"_id": identity})
        for key, data in files.items():
            if there.get(key) != data:
                document = bson.decode(data, codec_options=CODEC)
                held = self.cycle.database.get_collection(key.partition("/")[0], codec_options=CODEC)
                held.replace_one({"_id": document["_id"]}, document, upsert=True)


@dataclass
class World:
    """An archive with all that there can be, and what it was some steps ago."""

    cycle: Cycle
    corrupted: Corrupted | Collections
    past: list[Books] = field(default_factory=list)
    now: Books = field(default_factory=dict)
    live: list[bytes] = field(default_factory=list)
    genuine: list[bytes] = field(default_factory=list)
    readings: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    @classmethod
    def make(cls, database: Database[Document], settings: Store, is_signed: bool) -> World:
        corrupted = Corrupted.make(database, settings, is_signed)
        cycle = corrupted.cycle
        world = cls(cycle, corrupted)
        world.hold("kept")
        world.past.append(world.books())
        cycle.run(LATER + timedelta(days=3))
        corrupted.past.append(corrupted.read())
        world.past.append(world.books())
        cycle.compact(DONE)
        world.now, corrupted.now, world.live = world.books(), corrupted.read(), cycle.live()
        world.genuine, world.readings = world.restored(), world.given()
        return world

    @classmethod
    def online(cls, database: Database[Document], settings: Store, is_signed: bool) -> World:
        """Originals are deleted, wait, or are back; late ones are merged, or wait; versions are kept."""
        base = slots("minute")
        cycle = Cycle(database, Case(base.name, base.policy, base.documents[:8], []).online(), settings)
        cycle.keys = Keys(KEY) if is_signed else Keys()
        world = cls(cycle, Collections(cycle))
        source = database.get_collection("slots", codec_options=CODEC)

        def run(first: int, last: int, **archive: Any) -> None:
            insert(database, "slots", base.documents[first:last])
            cycle.case = cycle.case.with_archive(**archive)
            cycle.run()
            world.past.append(world.books())

        run(0, 4)
        world.hold("kept")
        insert(database, "slots", [bson.encode({**bson.decode(base.documents[0]), "p": {"9": 7.5}})])
        run(4, 5)
        cycle.restore("slots", since=bson.decode(base.documents[2], CODEC)["d"])
        cycle.unpin()
        source.update_one({"_id": 3}, {"$set": {"p": {"1": 4.5}}})
        run(5, 6)
        run(6, 7, grace=timedelta(days=30))
        source.delete_one({"_id": 6})
        run(7, 8, grace=timedelta(days=30))
        cycle.run(LATER + timedelta(days=40), until=bson.decode(base.documents[7], CODEC)["d"])
        insert(database, "slots", [bson.encode({**bson.decode(base.documents[1]), "p": {"9": 7.5}})])
        cycle.run(DONE)
        world.now, world.corrupted.now, world.live = world.books(), world.corrupted.read(), cycle.live()
        world.genuine, world.readings = world.restored(), world.given()
        return world

    def hold(self, name: str) -> None:
        context = self.cycle.context(LATER, fence=self.cycle.fence)
        held = Hold(name, {}, EVER, "a lawsuit", LATER, "me", freeze=False, salt=bytes(32))
        files = context.hold_files
        writer = HoldWriter(context.database, self.cycle.policy.identity, context.deletions, nothing, files)
        assert writer.place(held)

    def books(self) -> Books:
        database = self.cycle.database
        return {
            name: {
                bson.encode(it["_id"]): it for it in database.get_collection(name, codec_options=CODEC).find()
            }
            for name in BOOKS
        }

    def put(self, books: Books) -> None:
        for name, wanted in books.items():
            there = self.cycle.database.get_collection(name, codec_options=CODEC)
            there.delete_many({})
            if wanted:
                there.insert_many(list(wanted.values()))

    def reset(self) -> None:
        self.put(self.now)
        self.corrupted.write(self.corrupted.now)
        source = self.cycle.policy.collection
        self.cycle.database[source].delete_many({})
        if self.live:
            insert(self.cycle.database, source, self.live)

    def restored(self) -> list[bytes]:
        self.cycle.database.drop_collection("back")
        self.cycle.restore("back")
        found = self.cycle.database.get_collection("back", codec_options=CODEC).find()
        return sorted(bson.encode(it, codec_options=CODEC) for it in found)

    def given(self) -> Counter[tuple[Any, ...]]:
        it = self.cycle
        return Counter(rows_of(Readings(it.database, it.policy, it.store, keys=it.keys)))

    def named(self) -> set[tuple[str, str]]:
        try:
            return {(it.code, it.place) for it in audit_policy(self.cycle.context(LATER), full=True).findings}
        except BucketwiseError as error:
            return {("halted", str(error))}

    def counting(self) -> Iterator[str]:
        """The files without those of commits that others have taken over."""
        records = self.now[BOOKS[0]].values()
        replaced = [it["_id"]["name"] for it in records if it.get("state") in ("replaced", "held")]
        moving = "meta/lineage/"  # of which each run that writes removes the last
        found = (it for it in self.corrupted.now if not it.startswith(moving))
        yield from (it for it in found if not any(name in it for name in replaced))

    def faults(self, what: tuple[str, str], known: set[tuple[str, str]], left: set[str]) -> Iterator[str]:
        """What should not happen after a change."""
        is_excused = what in WITHOUT_EFFECT or (what[0], "") in WITHOUT_EFFECT
        is_excused |= isinstance(self.corrupted, Collections) and what in WITHOUT_EFFECT_ONLINE
        is_excused |= what[0] == "file" and what[1] not in left  # others have taken its commit over
        if not is_excused and self.named() <= known:
            yield "it is not named"
        with suppress(BucketwiseError):
            if self.restored() != self.genuine:
                yield "other bytes are restored"
        with suppress(BucketwiseError):
            if self.given() - self.readings:  # fewer where a record hides some, which is named
                yield "readings are given that nobody has archived"
        with suppress(BucketwiseError):
            self.cycle.run(DONE)
        if lost := left - self.corrupted.read().keys():
            yield f"a run removes {sorted(lost)}"


def _other(chance: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.choice((-1, 1, 1000))
    if isinstance(value, str):
        return chance.choice((value[:-1], value + "0", "open", "closed", "replaced", "dropped"))
    if isinstance(value, datetime):
        return value + timedelta(days=chance.choice((-1000, -1, 1, 1000)))
    if isinstance(value, bytes):
        at = chance.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
    if isinstance(value, list):
        return value[1:] if value else [1]
    if isinstance(value, dict):
        key = chance.choice(list(value))
        return value | {key: _other(chance, value[key])}
    return 1


#: Makes one change; returns of which kind of record, and field, or None where nothing changed.
Change = Callable[[random.Random, World, Books], tuple[str, str] | None]


def _kind(document: Document) -> str:
    is_closed = document.get("kind") == "online" and document.get("state") == "closed"
    return "closed" if is_closed else str(document.get("kind", "hold"))


def _any(chance: random.Random, books: Books) -> tuple[dict[bytes, Document], bytes, Document]:
    name = chance.choices(BOOKS, (9, 1))[0]
    kinds = sorted({it.get("kind", name) for it in books[name].values()})
    kind = chance.choice(kinds)
    identity, document = chance.choice([it for it in books[name].items() if it[1].get("kind", name) == kind])
    return books[name], identity, document


def a_field(chance: random.Random, _: World, books: Books) -> tuple[str, str] | None:
    records, identity, document = _any(chance, books)
    key = chance.choice([it for it in document if it != "_id"])
    records[identity] = document | {key: _other(chance, document[key])}
    return _kind(document), key


def a_field_less(chance: random.Random, _: World, books: Books) -> tuple[str, str] | None:
    records, identity, document = _any(chance, books)
    key = chance.choice([it for it in document if it != "_id"])
    records[identity] = {name: value for name, value in document.items() if name != key}
    return _kind(document), key


def another_ones_field(chance: random.Random, _: World, books: Books) -> tuple[str, str] | None:
    records, identity, document = _any(chance, books)
    others = [it for it in records.values() if it is not document and it.get("kind") == document.get("kind")]
    if not others:
        return None
    other = chance.choice(others)
    key = chance.choice([it for it in document if it != "_id"])
    if document[key] == other.get(key, document[key]):
        return None
    records[identity] = document | {key: other[key]}
    return _kind(document), key


def a_record_less(chance: random.Random, _: World, books: Books) -> tuple[str, str] | None:
    records, identity, document = _any(chance, books)
    del records[identity]
    return _kind(document), ""


def moved(chance: random.Random, _: World, books: Books) -> tuple[str, str] | None:
    """All that a record says, under the name of another one."""
    records, identity, document = _any(chance, books)
    others = [it for it in records.values() if it is not document and it.get("kind") == document.get("kind")]
    if not others:
        return None
    records[identity] = chance.choice(others) | {"_id": document["_id"]}
    return None if records[identity] == document else (_kind(document), "")


def replayed(chance: random.Random, world: World, books: Books) -> tuple[str, str] | None:
    """A record of last week."""
    name = chance.choices(BOOKS, (9, 1))[0]
    past = chance.choice(world.past)[name]
    changed = [it for it in past if books[name].get(it) != past[it]]
    if not changed:
        return None
    identity = chance.choice(changed)
    kind = _kind(books[name].get(identity, past[identity]))
    books[name][identity] = past[identity]
    return kind, ""


CHANGES: dict[str, Change] = {
    it.__name__: it for it in (a_field, a_field_less, another_ones_field, a_record_less, moved, replayed)
}


FILES = ("truncate", "swap", "delete", "rename", "older", "edit", "roll_back", "resurrect")


OF_STORES = (*CHANGES, *FILES[: len(CHANGES)], *CHANGES, *FILES[len(CHANGES) :])


def _changes(
    world: World, chance: random.Random, count: int, kinds: Sequence[str] = OF_STORES
) -> Iterator[tuple[str, tuple[str, str], Books, Files]]:
    made = 0
    while made < count:
        kind = kinds[made % len(kinds)]
        books = {name: dict(records) for name, records in world.now.items()}
        files, what = dict(world.corrupted.now), None
        if kind in CHANGES:
            what = CHANGES[kind](chance, world, books)
        elif (
            isinstance(world.corrupted, Corrupted)
            and (name := DAMAGES[kind](chance, world.corrupted, files)) is not None
        ):
            what = ("file", name)
        if what is not None and (books, files) != (world.now, world.corrupted.now):
            made += 1
            yield kind, what, books, files


@pytest.mark.proof
@pytest.mark.parametrize(
    ("is_signed", "count"),
    [
        pytest.param(True, 12, id="signed"),
        pytest.param(True, 200, id="signed, many", marks=pytest.mark.proof),
        pytest.param(False, 60, id="unsigned, many", marks=pytest.mark.proof),
    ],
)
def test_every_change_is_named_and_harms_nothing(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
    is_signed: bool,
    count: int,
) -> None:
    monkeypatch.setattr("os.fsync", nothing)
    world = World.make(database, file_store, is_signed)
    check(world, _changes(world, random.Random(count), count), tally)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("is_signed", "count"),
    [
        pytest.param(True, 12, id="signed"),
        pytest.param(True, 60, id="signed, many", marks=pytest.mark.proof),
        pytest.param(False, 60, id="unsigned, many", marks=pytest.mark.proof),
    ],
)
def test_every_change_of_an_online_archive_is(
    database: Database[Document], file_store: Store, tally: Tally, is_signed: bool, count: int
) -> None:
    world = World.online(database, file_store, is_signed)
    check(world, _changes(world, random.Random(60), count, tuple(CHANGES)), tally)


def check(world: World, changes: Iterator[tuple[str, tuple[str, str], Books, Files]], tally: Tally) -> None:
    known, made = world.named(), Counter[str]()
    left = set(world.counting())
    wrong: list[str] = []
    for kind, what, books, files in changes:
        made[kind] += 1
        world.put(books)
        world.corrupted.write(files)
        wrong += [f"{kind} {what}: {it}" for it in world.faults(what, known, left & files.keys())]
        world.reset()
    for kind, number in made.items():
        tally("changes of records and files", kind, made=number, found=number)
    assert not wrong, "\n".join(wrong)
    assert world.named() == known
