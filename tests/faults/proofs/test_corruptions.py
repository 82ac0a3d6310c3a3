"""Thousands of random damages to an archive: `verify` finds each, and so does the step before a delete."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import CODEC, LATER, Case, insert, raw_documents, slots
from tests.archivers.harness import Cycle, Standing, nothing
from tests.faults.tally import Tally

Document = dict[str, Any]
Files = dict[str, bytes]
OLD, KEY, OTHER = ("0123456789abcdef" * 2, "fedcba9876543210" * 2, "0" * 40)
AFTER_GRACE = LATER + timedelta(days=3)
KINDS = ("data", "meta/buckets", "meta/manifests", "meta/superseded", "meta/owner")


@dataclass
class Counts:
    """By kind of damage: how many were made, and how many were found; and of those that concern what a run
    was about to delete, how many kept it from deleting anything."""

    made: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    before_delete: Counter[str] = field(default_factory=Counter)
    halted: Counter[str] = field(default_factory=Counter)


@dataclass
class World:
    """An archive with all that a chain can have: commits whose buckets are deleted, one that took over
    another, one that was dropped, one that others were merged into, and two, one of them the head, whose
    buckets wait for their delete."""

    cycle: Cycle
    past: list[Files] = field(default_factory=list)  # the store as it was before
    now: Files = field(default_factory=dict)

    @classmethod
    def make(cls, database: Database[Document], settings: Store, is_signed: bool) -> World:
        base = slots("minute")
        documents = base.documents[:13]
        cycle = Cycle(database, Case("slots", base.policy, documents, []), settings)
        world = cls(cycle)
        cycle.keys = Keys(OLD) if is_signed else Keys()
        source = database.get_collection("slots", codec_options=CODEC)

        def put(first: int, last: int) -> None:
            insert(database, "slots", documents[first:last])

        def run(**archive: Any) -> None:
            cycle.case = cycle.case.with_archive(**archive)
            cycle.run()
            world.past.append(world.read())

        for first in (9, 11):
            put(first, first + 2)
            run(delete=True)
        merged = cycle.compact(LATER - timedelta(hours=2))
        assert (merged.commits, merged.into) == (2, 1)
        world.past.append(world.read())
        run(delete=True)  # what was replaced is dropped
        put(0, 4)
        run(delete=False)
        put(4, 5)
        run(delete=False)
        source.update_many({"_id": {"$in": [1, 4]}}, {"$set": {"note": "new"}})
        run(delete=True)  # one leaves the first commit, and nothing is left of the second
        if is_signed:
            cycle.keys = Keys(KEY, OLD)
            cycle.sign()
            cycle.keys = Keys(KEY)
        for first in (5, 7):
            put(first, first + 2)
            run(grace=timedelta(days=2))
        world.now = world.past.pop()
        return world

    @property
    def root(self) -> Path:
        return self.cycle.root / "slots"

    def read(self) -> Files:
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}

    def write(self, files: Files) -> None:
        """Make the store hold just these."""
        there = self.read()
        for name in there.keys() - files.keys():
            (self.root / name).unlink()
        for name, data in files.items():
            if there.get(name) != data:
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).write_bytes(data)

    def books(self) -> tuple[list[bytes], list[bytes]]:
        """Without the step that a run claims before it clears strays."""
        receipts = raw_documents(self.cycle.database, "bucketwise_receipts")
        return self.cycle.live(), [it for it in receipts if bson.decode(it, CODEC)["kind"] != "owner"]

    @cached_property
    def waiting(self) -> list[str]:
        """The commits whose buckets wait, in the order in which they go."""
        manifests = [json.loads(self.now[name]) for name in self.of("meta/manifests")]
        return [it["commit"] for it in sorted(manifests, key=lambda it: int(it["sequence"]))[-2:]]

    @property
    def next(self) -> str:
        """The commit whose buckets go first."""
        return self.waiting[0]

    def of(self, kind: str) -> list[str]:
        """What is part of the archive: bytes that were taken out of a commit are not."""
        return sorted(name for name in self.now if name.startswith(kind) and not name.endswith(".bson"))


#: Damages the files; returns what it damaged, or None where it changed nothing that counts.
Damage = Callable[[random.Random, World, Files], str | None]


def _any(chance: random.Random, world: World) -> str:
    return chance.choice(world.of(chance.choice(KINDS)))


def flip(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    data = bytearray(files[name])
    data[chance.choice(_counting(name, data))] ^= 1 << chance.randrange(8)
    files[name] = bytes(data)
    return name


def _counting(name: str, data: bytes | bytearray) -> range:
    """The bytes that count. Of the owner's file: its random name; the rest is for people."""
    return range(11, 43) if name.startswith("meta/owner") else range(len(data))


def truncate(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    files[name] = files[name][: chance.choice(_counting(name, files[name]))]
    return name


def extend(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    if name.startswith("meta/owner"):
        return None
    files[name] += chance.randbytes(chance.randrange(1, 100)) if chance.random() < 0.5 else b"\n"
    return name


def zero(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    data = bytearray(files[name])
    first = chance.choice(_counting(name, data))
    last = min(len(data), first + chance.choice((1, 8, 64, 512)))
    if not any(data[first:last]):
        return None
    data[first:last] = bytes(last - first)
    files[name] = bytes(data)
    return name


def swap(chance: random.Random, world: World, files: Files) -> str | None:
    names = world.of(chance.choice(KINDS[:4]))
    one, other = chance.sample(names, 2)
    files[one], files[other] = files[other], files[one]
    return other if world.next in other else one


def delete(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    del files[name]
    return name


def rename(chance: random.Random, world: World, files: Files) -> str | None:
    name = _any(chance, world)
    other = chance.choice(
        (
            name.replace("_f", "_f9"),
            name.replace("2018", "2017"),
            f"{name}.bak",
            name.replace("meta/", "meta/old/").replace("data/", "data/old/"),
        )
    )
    if other == name:
        return None
    files[other] = files.pop(name)
    return name


def older(chance: random.Random, world: World, files: Files) -> str | None:
    """A file that was once there under this name, or under another of its kind."""
    kind = chance.choice(KINDS[:4])
    name = chance.choice(world.of(kind))
    past = chance.choice(world.past)
    found = [it for it in past if it.startswith(kind) and not it.endswith(".bson")]
    if not found:
        return None
    data = past.get(name, b"") if chance.random() < 0.3 else past[chance.choice(found)]
    if data in (b"", files[name]):
        return None
    files[name] = data
    return name


def edit(chance: random.Random, world: World, files: Files) -> str | None:
    """A manifest is changed by somebody who knows how to seal it, and has no key."""
    name = chance.choice(world.of("meta/manifests") + world.of("meta/superseded"))
    manifest = json.loads(files[name])
    key = chance.choice(list(manifest.keys() - {"policy", "commit", "sha256", "signature", "schema_version"}))
    value = manifest[key]
    if isinstance(value, int):
        manifest[key] = value + chance.choice((-1, 1, 1000))
    elif key in ("first", "last", "created"):
        manifest[key] = value.replace("2018", chance.choice(("2017", "2019", "1999")))
    elif isinstance(value, list) and value:
        manifest[key] = value[1:] if chance.random() < 0.5 else [*value, value[0]]
    elif key == "replaces":
        manifest[key] = [chance.choice(world.of("meta/manifests"))[26:-5]]
    elif key == "documents_sha256":
        manifest[key] = hashlib.sha256(chance.randbytes(4)).hexdigest()
    elif isinstance(value, str):
        manifest[key] = value + "x"
    else:
        return None
    seal = reseal(chance, manifest)
    new = name.replace(json.loads(files[name])["sha256"][:16], seal[:16])
    del files[name]
    files[new] = _encoded(manifest)
    return name


def reseal(chance: random.Random, manifest: Document) -> str:
    signature = manifest["signature"]
    manifest |= {"sha256": "0" * 64, "signature": None}
    manifest["sha256"] = seal = hashlib.sha256(_encoded(manifest)).hexdigest()
    forged = [None, signature, signature and Keys(OTHER).sign(seal)]
    manifest["signature"] = chance.choice(forged) if signature else None
    return seal


def _encoded(manifest: Document) -> bytes:
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode()


def strip(chance: random.Random, world: World, files: Files) -> str | None:
    """The signature is taken off, or is another one's; the seal stays right."""
    name = chance.choice(world.of("meta/manifests") + world.of("meta/superseded"))
    manifest = json.loads(files[name])
    if manifest["signature"] is None:
        manifest["signature"] = Keys(OTHER).sign(manifest["sha256"])
    else:
        forged = Keys(OTHER).sign("0" * 64) or ""
        named = f"{manifest['signature'][:8]}{forged[8:]}"
        manifest["signature"] = chance.choice([None, Keys(OTHER).sign(manifest["sha256"]), named])
    files[name] = _encoded(manifest)
    return name


def roll_back(chance: random.Random, world: World, files: Files) -> str | None:
    """The whole store, or its manifests alone, as before."""
    past = chance.choice(world.past)
    part = chance.choice(("", "meta/manifests", "meta/"))
    for name in [name for name in files if name.startswith(part)]:
        del files[name]
    files |= {name: data for name, data in past.items() if name.startswith(part)}
    return world.next


def resurrect(chance: random.Random, world: World, files: Files) -> str | None:
    """A commit that was dropped is there again, as it was, and all else too."""
    past = chance.choice(world.past)
    gone = [
        name.removeprefix("meta/manifests/").removesuffix(".json").partition("_")[2]
        for name in past
        if name.startswith("meta/manifests") and name not in world.now
    ]
    if not gone:
        return None
    commit = chance.choice(gone)
    back = {name: data for name, data in past.items() if commit in name and "superseded" not in name}
    files |= back
    return world.next


DAMAGES: dict[str, Damage] = {
    it.__name__: it
    for it in (flip, truncate, extend, zero, swap, delete, rename, older, edit, strip, roll_back, resurrect)
}


def damage_many(world: World, count: int, seed: int) -> Counts:
    """`count` damages, one at a time."""
    chance, counts = random.Random(seed), Counts()
    before, standing = world.books(), Standing(world.cycle)
    assert world.cycle.verify().bad == []
    while counts.made.total() < count:
        kind = list(DAMAGES)[counts.made.total() % len(DAMAGES)]
        files = dict(world.now)
        damaged = DAMAGES[kind](chance, world, files)
        if damaged is None or files == world.now:
            continue
        counts.made[kind] += 1
        world.write(files)
        counts.found[kind] += bool(world.cycle.verify().bad)
        if world.next in damaged:
            counts.before_delete[kind] += 1
            said = "it did not halt"
            try:
                world.cycle.run(AFTER_GRACE)
            except HaltedError as error:
                said = str(error)
                # Strays may be cleared, by a run that has claimed another step.
                kept = {
                    name: files[name]
                    for name in world.now.keys() & files.keys()
                    if not name.startswith("meta/lineage/")
                }
                counts.halted[kind] += world.books() == before and kept.items() <= world.read().items()
            if counts.halted[kind] < counts.before_delete[kind]:
                sys.stdout.write(f"{kind} {damaged}: {said}\n")  # shown where it fails
            standing.put_back(world.cycle)
        world.write(world.now)
    return counts


def _check(
    database: Database[Document], settings: Store, is_signed: bool, count: int, tally: Tally
) -> Counts:
    world = World.make(database, settings, is_signed)
    counts = damage_many(world, count, seed=count)
    for kind, made in counts.made.items():
        tally("corruptions of the store", kind, made=made, found=counts.found[kind])
    for kind, made in counts.before_delete.items():
        tally("corruptions before a delete", kind, made=made, found=counts.halted[kind])
    assert counts.found == counts.made
    assert counts.halted == counts.before_delete
    assert set(counts.made) == set(DAMAGES)
    assert world.cycle.verify().bad == []  # it was the damage that was found
    assert world.cycle.run(AFTER_GRACE).deleted == 4
    return counts


@pytest.mark.proof
@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "unsigned"])
@pytest.mark.parametrize(
    "count", [24, pytest.param(96, marks=pytest.mark.proof), pytest.param(5000, marks=pytest.mark.soak)]
)
def test_every_damage_is_found(
    database: Database[Document],
    file_store: Store,
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
    is_signed: bool,
    count: int,
) -> None:
    monkeypatch.setattr("os.fsync", nothing)
    counts = _check(database, file_store, is_signed, count, tally)
    assert (counts.made.total(), counts.found.total()) == (count, count)
