"""A writer: a process that changes buckets at full speed, and notes what MongoDB acknowledged, as raw BSON.

Each bucket has a `g`, given anew to each document that takes an `_id`, and a `v` that counts its changes: so
the notes of several writers fall into one order. Many push and set; only a bucket's owner (`_id` modulo the
number of writers) replaces it, deletes it, and touches its overflow.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReturnDocument, WriteConcern

Document = dict[str, Any]
RAW = bson.CodecOptions(document_class=RawBSONDocument, tz_aware=True)
HOURS = 4


@dataclass(frozen=True)
class Orders:
    """`buckets`: those that are there at the start. `start`: of the hours in which all is written, in
    seconds. `most`: operations. `again`: whether an `_id` may be taken again once its bucket is gone."""

    uri: str
    database: str
    model: str
    notes: str
    stop: str
    seed: int
    number: int
    writers: int
    buckets: int
    start: int
    most: int
    again: bool


class Writer:
    def __init__(self, orders: Orders, notes: TextIO) -> None:
        self.orders, self.notes = orders, notes
        self.random = random.Random(f"{orders.seed} {orders.number}")
        client: MongoClient[RawBSONDocument] = MongoClient(orders.uri, document_class=RawBSONDocument)
        concern = WriteConcern("majority")
        self.main = client[orders.database].get_collection("it", codec_options=RAW, write_concern=concern)
        self.more = client[orders.database].get_collection(
            "it_more", codec_options=RAW, write_concern=concern
        )
        self.serial = count(1)
        self.made = list(range(orders.buckets))
        self.extras: dict[int, list[int]] = {}

    def work(self) -> None:
        operations = [self.change] * 8 + [self.insert] * 2 + [self.replace, self.delete]
        if self.orders.model == "samples":
            operations += [self.flag, self.push_overflow, self.push_overflow, self.unflag]
        for turn in range(self.orders.most):
            if turn % 10 == 0 and Path(self.orders.stop).exists():
                break
            self.random.choice(operations)()

    def note(self, what: str, identity: int, **raw: Any) -> None:
        told = {key: base64.b64encode(bytes(it.raw)).decode() for key, it in raw.items() if it is not None}
        self.notes.write(json.dumps({"what": what, "id": identity, **told}) + "\n")

    def value(self) -> float:
        """No two readings have the same one."""
        return 1000.0 * (self.orders.number + 1) + next(self.serial) / 8

    def some(self, mine: bool = False) -> int:
        while True:
            identity = self.random.choice(self.made)
            if not mine or identity % self.orders.writers == self.orders.number:
                return identity

    # What every writer may do

    def insert(self) -> None:
        identity = 100_000 + next(self.serial) * self.orders.writers + self.orders.number
        document = self.document(identity)
        self.note("try", identity, new=document)
        self.main.insert_one(document)
        self.made.append(identity)
        self.note("is", identity, new=document)

    def change(self) -> None:
        identity = self.some()
        self.note("try", identity)
        after = self.main.find_one_and_update(
            {"_id": identity}, self.changing(), return_document=ReturnDocument.AFTER
        )
        self.note("is", identity, new=after)

    def changing(self) -> Document:
        one = {"$inc": {"v": 1}}
        match self.orders.model:
            case "slots":
                slot = f"p.{self.random.randrange(60)}"
                if self.random.random() < 0.2:
                    return one | {"$unset": {slot: ""}}
                return one | {"$set": {slot: self.value()}}
            case "samples":
                if self.random.random() < 0.5:
                    return one | {"$set": {"held.0.p": self.value()}}
                # Beyond all that is there, and inside the hours.
                time = self.orders.start + HOURS * 3600 + next(self.serial) % 600
                sample = {"p": self.value(), "time": time}
                return {"$inc": {"v": 1, "n": 1}, "$push": {"held": sample}, "$max": {"last": time}}
            case _:
                changed: Document = {"p": self.value()}
                if self.random.random() < 0.3:
                    changed["d"] = self.time()
                return one | {"$set": changed}

    # What the owner alone does

    def replace(self) -> None:
        identity = self.some(mine=True)
        document = self.document(identity)
        self.note("try", identity, new=document)
        before = self.main.find_one_and_replace(
            {"_id": identity}, document, upsert=self.orders.again, return_document=ReturnDocument.BEFORE
        )
        is_there = before is not None or self.orders.again
        self.note("replaced", identity, new=document if is_there else None, old=before)
        self.forget_overflow(identity)

    def delete(self) -> None:
        identity = self.some(mine=True)
        self.note("try", identity)
        self.note("deleted", identity, old=self.main.find_one_and_delete({"_id": identity}))
        self.forget_overflow(identity)

    def flag(self) -> None:
        """Overflow first, then the flag. Where the bucket is archived by then, the overflow goes again."""
        identity = self.some(mine=True)
        if identity < self.orders.buckets and identity % 3 == 0:
            return  # comes with overflow that is not of our making
        name = 1_000_000 + next(self.serial) * self.orders.writers + self.orders.number
        time = self.orders.start + identity % 100
        extra = _raw({"_id": name, "of": identity, "held": [{"p": self.value(), "time": time}]})
        self.more.insert_one(extra)
        flagged: Document = {"$set": {"more": True}, "$inc": {"v": 1}}
        flagged |= {"$min": {"first": time}, "$max": {"last": time}}
        after = self.main.find_one_and_update(
            {"_id": identity}, flagged, return_document=ReturnDocument.AFTER
        )
        if after is None:
            self.more.delete_one({"_id": name})
            return
        self.extras.setdefault(identity, []).append(name)
        self.note("is", identity, new=after, extra=extra)

    def push_overflow(self) -> None:
        """Changes a bucket whose own document stays as it is."""
        if not self.extras:
            return
        identity = self.random.choice(list(self.extras))
        name = self.random.choice(self.extras[identity])
        sample = {"p": self.value(), "time": self.orders.start + identity % 100}
        after = self.more.find_one_and_update(
            {"_id": name}, {"$push": {"held": sample}}, return_document=ReturnDocument.AFTER
        )
        if after is not None:
            self.note("overflow", identity, extra=after)

    def unflag(self) -> None:
        """The flag first, then the overflow."""
        if not self.extras:
            return
        identity = self.random.choice(list(self.extras))
        after = self.main.find_one_and_update(
            {"_id": identity},
            {"$unset": {"more": ""}, "$inc": {"v": 1}},
            return_document=ReturnDocument.AFTER,
        )
        self.note("unflagged", identity, new=after)
        self.forget_overflow(identity)

    def forget_overflow(self, identity: int) -> None:
        if names := self.extras.pop(identity, []):
            self.more.delete_many({"_id": {"$in": names}})
        elif self.orders.model == "samples":
            self.more.delete_many({"of": identity})

    # What is written

    def time(self) -> datetime:
        start = datetime.fromtimestamp(self.orders.start, UTC)
        return start + timedelta(seconds=self.random.randrange(HOURS * 3600))

    def document(self, identity: int) -> RawBSONDocument:
        head: Document = {"_id": identity, "dev": identity % 2}
        at, own = self.time(), {"g": f"{self.orders.number}-{next(self.serial)}", "v": 0}
        if self.orders.model == "slots":
            slots = {str(self.random.randrange(60)): self.value() for _ in range(3)}
            return _raw(head | {"p": slots, "d": at.replace(second=0)} | own)
        if self.orders.model == "reading":
            return _raw(head | {"p": self.value(), "d": at} | own)
        first = round(at.timestamp())
        held = [{"p": self.value(), "time": first + i} for i in range(3)]
        return _raw(head | {"n": 3, "first": first, "last": first + 2, "held": held} | own)


def _raw(document: Document) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document), RAW)


if __name__ == "__main__":
    orders = Orders(**json.loads(sys.argv[1]))
    with Path(orders.notes).open("w", buffering=1) as notes:
        Writer(orders, notes).work()
