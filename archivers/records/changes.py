"""The journal of a store's copies, in MongoDB beside the receipts; and what is known of each copy.

A change is one document for each copy that may differ from the first store at some keys. Its name has the
copy and the time, so that one query gives those of a policy in their order. It is removed once the copy is
alike: what waits is found by nothing but what waits, however large the archive is. Objects at the root of a
store are of the policy "".
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pymongo.database import Database

from bucketwise.archivers.records.receipts import CODEC, Receipts, reading

Document = dict[str, Any]
#: Kinds of records: a change that waits for a copy, and what is known of a copy.
CHANGE, COPY = "change", "copy"
#: Keys in one document, at most.
_MOST_KEYS = 1000


class Change(NamedTuple):
    """Keys at which a copy may differ from the first store. `deleted`: they were deleted there."""

    name: str
    keys: Sequence[str]
    deleted: bool
    at: datetime


class Waiting(NamedTuple):
    """How many keys wait for a copy, and since when the first of them does."""

    keys: int = 0
    since: datetime | None = None


class CopyRecord(NamedTuple):
    """What the database knows of a copy of a policy's archive. `filled`: when it had all that the first store
    had; None: never. `url`: where it was then."""

    url: str
    filled: datetime | None
    others: int = 0


class StoreJournal:
    """The `Journal` of a store's copies. `database` is set before anything is written; `clock` returns the
    present."""

    def __init__(self, clock: Callable[[], datetime], database: Database[Document] | None = None) -> None:
        self.database = database
        self._clock = clock
        self._numbers = itertools.count()

    def begin(
        self, copies: Sequence[str], keys: Sequence[str], *, deleted: bool
    ) -> Mapping[str, Sequence[Document]]:
        """Records, before it is done, that these keys are written or deleted. Returns what `end` takes: the
        `_id`s of the records, by copy."""
        at = self._clock()
        micros = int(at.timestamp() * 1_000_000)
        order = f"{micros:020d}-{next(self._numbers):010d}-{uuid.uuid4().hex[:8]}"
        records: list[Document] = []
        for number, (policy, some) in enumerate(_groups(keys)):
            facts = {"kind": CHANGE, "keys": some, "deleted": deleted, "at": at}
            name = f"{order}-{number:04d}"
            records += [{"_id": _name(policy, f"{CHANGE}-{it}/{name}"), "copy": it, **facts} for it in copies]
        assert self.database is not None
        Receipts(self.database, "").collection.insert_many(records)
        return {name: [it["_id"] for it in records if it["copy"] == name] for name in copies}

    def end(self, copies: Sequence[str], change: Mapping[str, Sequence[Document]]) -> None:
        """Forgets a change for these copies, which are like the first store at its keys."""
        assert self.database is not None
        ids = [_id for name in copies for _id in change[name]]
        Receipts(self.database, "").collection.delete_many({"_id": {"$in": ids}})

    def waits(self, copy: str, key: str) -> bool:
        """Returns whether a copy may differ from the first store at a key."""
        assert self.database is not None
        records = Receipts(self.database, "").collection
        return records.find_one({"_id": _span(_policy_of(key), copy), "keys": key}, {"_id": 1}) is not None


def _span(policy: str, copy: str) -> Document:
    """Returns the query for the `_id`s of the changes that wait for a copy."""
    return {"$gte": _name(policy, f"{CHANGE}-{copy}/"), "$lt": _name(policy, f"{CHANGE}-{copy}0")}


def _name(policy: str, name: str) -> Document:
    return {"policy": policy, "name": name}


def _groups(keys: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields keys of one policy, a thousand at most."""
    for policy, some in itertools.groupby(sorted(keys), _policy_of):
        named = list(some)
        yield from ((policy, named[at : at + _MOST_KEYS]) for at in range(0, len(named), _MOST_KEYS))


def _policy_of(key: str) -> str:
    """Returns the policy in whose folder an object lies; "" at the root of the store."""
    return key.partition("/")[0] if "/" in key else ""


class CopyRecords:
    """The records of the copies of one policy's archive."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts
        self._database = receipts.collection.database
        self._collection = receipts.collection.with_options(codec_options=CODEC)

    def changes(self, copy: str) -> Iterator[Change]:
        """Yields the changes that wait for a copy, in their order."""
        for policy in ("", self._receipts.policy):
            for it in self._collection.find({"_id": _span(policy, copy)}).sort("_id"):
                with reading(CHANGE):
                    yield Change(it["_id"]["name"], tuple(it["keys"]), bool(it["deleted"]), it["at"])

    def remove(self, names: Sequence[str]) -> None:
        """Forgets changes, by their names."""
        ids = [_name(it, name) for it in ("", self._receipts.policy) for name in names]
        self._receipts.collection.delete_many({"_id": {"$in": ids}})

    def waiting(self) -> dict[str, Waiting]:
        """Returns what waits for each copy, with one query; not those for which nothing does."""
        spans = [
            {"_id": {"$gte": _name(policy, f"{CHANGE}-"), "$lt": _name(policy, f"{CHANGE}.")}}
            for policy in ("", self._receipts.policy)
        ]
        sums = {"keys": {"$sum": {"$size": "$keys"}}, "since": {"$min": "$at"}}
        stages: list[Document] = [{"$match": {"$or": spans}}, {"$group": {"_id": "$copy", **sums}}]
        found = self._collection.aggregate(stages)
        return {it["_id"]: Waiting(it["keys"], it["since"].replace(tzinfo=UTC)) for it in found}

    def waiting_keys(self, copy: str) -> set[str]:
        """Returns the keys that wait for a copy."""
        return {key for change in self.changes(copy) for key in change.keys}

    def known(self) -> dict[str, CopyRecord]:
        """Returns what is known of copies, by their names, with one query."""
        span = {"$gte": self._receipts.identity(f"{COPY}-"), "$lt": self._receipts.identity(f"{COPY}.")}
        with reading(COPY):
            return {
                it["_id"]["name"].removeprefix(f"{COPY}-"): CopyRecord(
                    it["url"], it.get("filled"), it.get("others", 0)
                )
                for it in self._collection.find({"_id": span})
            }

    def note_filled(self, copy: str, url: str, at: datetime, others: int = 0) -> None:
        """Records that a copy has all that the first store has, and `others` objects that it has not."""
        self._receipts.update(
            f"{COPY}-{copy}", {"$set": {"kind": COPY, "url": url, "filled": at, "others": others}}
        )

    def note_removed(self, names: Container[str]) -> None:
        """Records that copies of other names are not up to the store from now on: nothing is written into
        them, and no journal tells what they miss."""
        for name, it in self.removed(names).items():
            if it.filled is not None:
                self.note_begun(name, it.url)

    def removed(self, names: Container[str]) -> dict[str, CopyRecord]:
        """Returns the known copies of other names."""
        return {name: it for name, it in self.known().items() if name not in names}

    def note_begun(self, copy: str, url: str) -> None:
        """Records that a copy is being filled."""
        update = {"$set": {"kind": COPY, "url": url}, "$unset": {"filled": ""}}
        self._receipts.update(f"{COPY}-{copy}", update)

    def forget(self, copy: str) -> None:
        """Forgets a copy, and what waits for it."""
        names = [f"{COPY}-{copy}", *(it.name for it in self.changes(copy))]
        self.remove(names)
