"""Receipts of old deletes, in files of the store: MongoDB need not keep them as long as the archive lasts.

A file holds receipts of consecutive numbers as they were in MongoDB, as BSON, one after the other, compressed
with gzip. Each contains the seal of the one before, across files as well. MongoDB keeps the list of the
files, with the seal of the last receipt in each: one that is missing, changed or exchanged is found.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import bson
from bson.errors import InvalidBSON
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.names import receipts_key
from bucketwise.archivers.records.receipts import CODEC, Receipts, reading
from bucketwise.archivers.stores.base import Corrupt, NotFound, ObjectStore
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
Step = Callable[[ClientSession], None]
#: Receipts in one file, at most: some megabytes of BSON.
MOST = 5000
#: The seal comes last but one, and the signature last; neither is sealed.
_UNSEALED = ("sha256", "signature")
#: The receipt that names the files.
MOVED = "moved"
REMEDY = "Restore the file from the store's older versions or a backup, or find out who changed it"


class ReceiptFile(NamedTuple):
    """A file of receipts. `first` and `last` are numbers of receipts, `since` and `until` the earliest and
    latest of their times. `sha256` is the seal of the last of them."""

    first: int
    last: int
    since: datetime
    until: datetime
    sha256: str

    @classmethod
    def of(cls, documents: Sequence[Document]) -> ReceiptFile:
        """Returns the file for these receipts, which follow one another."""
        times = [it["at"] for it in documents]
        first, last = documents[0], documents[-1]
        return cls(first["sequence"], last["sequence"], min(times), max(times), last["sha256"])

    def is_within(self, since: datetime | None, until: datetime | None) -> bool:
        """Returns whether it may hold receipts of [since, until)."""
        return (since is None or self.until >= since) and (until is None or self.since < until)


class ReceiptFiles:
    """The files of receipts of one policy. Without a store there are none."""

    def __init__(self, receipts: Receipts, store: ObjectStore | None) -> None:
        self._receipts = receipts
        self._store = store

    def listed(self) -> list[ReceiptFile]:
        """Returns the files in order, as MongoDB names them."""
        found = self._receipts.get(MOVED) or {}
        with reading(MOVED):
            return [ReceiptFile(**it) for it in found.get("files", ())]

    def place(self, file: ReceiptFile) -> str:
        """Returns the place of the file, for messages."""
        return f"{self._there.url}/{self._key(file)}"

    def read(self, file: ReceiptFile) -> list[Document]:
        """Returns the receipts of a file. Raises DamagedError where it is missing or can't be read, or
        where its last receipt is another one."""
        place = self.place(file)
        try:
            documents = decoded(self._there.get_sound(self._key(file), partial(_ends_with, file)))
        except NotFound:
            what = f"the file of the receipts {file.first} to {file.last} is missing"
            raise DamagedError("receipt-missing", place, what, REMEDY) from None
        except (Corrupt, InvalidBSON, OSError, EOFError, zlib.error) as error:
            what = f"the file of receipts can't be read: {getattr(error, 'reason', error)}"
            raise DamagedError("receipt-differs", place, what, REMEDY) from None
        numbers = [it.get("sequence") for it in documents]
        if not documents or any(not isinstance(it, int) for it in numbers):
            what = "its contents do not have the form of receipts"
            raise DamagedError("receipt-differs", place, what, REMEDY)
        if documents[-1].get("sha256") != file.sha256:
            what = "the file does not end with the receipt that the database names"
            raise DamagedError("receipt-differs", place, what, REMEDY)
        return documents

    def write(self, file: ReceiptFile, documents: Sequence[Document]) -> None:
        """Writes a file, and reads it back. Raises HaltedError where it is not what was written."""
        data = encoded(documents)
        self._there.put_bytes(self._key(file), data)
        if self._there.get_bytes(self._key(file)) != data:
            raise HaltedError(f"{self.place(file)}: the store returned other bytes than were written")

    def add(self, file: ReceiptFile, session: ClientSession) -> None:
        """Adds a file to the list, at its end."""
        update = {"$set": {"kind": MOVED}, "$push": {"files": file._asdict()}}
        self._receipts.update(MOVED, update, session)

    def seals(self, numbers: Collection[int]) -> dict[int, str]:
        """Returns the seals of those of these receipts that lie in files."""
        found: dict[int, str] = {}
        for file in self.listed() if numbers else ():
            if any(file.first <= it <= file.last for it in numbers):
                found |= {it["sequence"]: it["sha256"] for it in self.read(file)}
        return found

    def kept(self) -> Iterator[Document]:
        """Yields the receipts that lie in a file and in MongoDB."""
        if listed := self.listed():
            yield from (it for it in self._receipts.numbered(0) if _number(it) <= listed[-1].last)

    def _key(self, file: ReceiptFile) -> str:
        return receipts_key(self._receipts.policy, file.first, file.last, file.sha256)

    @property
    def _there(self) -> ObjectStore:
        if self._store is None:
            raise HaltedError(
                f"policy {self._receipts.policy}: receipts of deletes were moved to a store, and the policy "
                "file has no [store]. Put it back"
            )
        return self._store


def move_old(
    receipts: Receipts, files: ReceiptFiles, before: datetime, transact: Callable[[Step], None]
) -> int:
    """Moves receipts into files, oldest first, up to the first one that is not from before that instant.
    Returns how many. `transact` runs a step in a transaction of the run."""
    moved, last = 0, next(reversed(files.listed()), None)
    while documents := _oldest(receipts, last, before):
        last = ReceiptFile.of(documents)
        files.write(last, documents)
        transact(partial(_exchange, receipts, files, last, documents))
        moved += len(documents)
    return moved


def _oldest(receipts: Receipts, last: ReceiptFile | None, before: datetime) -> list[Document]:
    """Returns the next receipts for one file, up to the first damaged one, which stays in MongoDB, where an
    audit finds it."""
    found: list[Document] = []
    number, seal = (last.last, last.sha256) if last else (0, None)
    is_due = any(it["at"] < before for it in receipts.numbered(number, {"at": {"$type": "date"}}, most=1))
    for receipt in receipts.numbered(number, most=MOST) if is_due else ():
        if not is_next(receipt, number, seal) or receipt["at"] >= before:
            break
        found.append(receipt)
        number, seal = receipt["sequence"], receipt["sha256"]
    return found


def is_next(receipt: Document, number: int, seal: str | None) -> bool:
    """Returns whether a receipt is undamaged and follows the one with this number and seal."""
    follows = receipt.get("sequence") == number + 1 or receipt.get("kind") == "gap"
    return follows and receipt.get("previous") == seal and seal_of(receipt) == receipt.get("sha256")


def seal_of(receipt: Document) -> str:
    """Returns the SHA-256 of the document's BSON without its last two fields."""
    sealed = {key: value for key, value in receipt.items() if key not in _UNSEALED}
    return hashlib.sha256(bson.encode(sealed, codec_options=CODEC)).hexdigest()


def _exchange(
    receipts: Receipts,
    files: ReceiptFiles,
    file: ReceiptFile,
    documents: Sequence[Document],
    session: ClientSession,
) -> None:
    """Replaces receipts of deletes by the file; other numbered ones stay as well."""
    files.add(file, session)
    moved = [it["_id"] for it in documents if it["kind"] == "delete"]
    if receipts.remove(moved, session) != len(moved):
        raise HaltedError(
            f"policy {receipts.policy}: receipts of deletes disappeared while they were being moved to the "
            "store. Nothing was removed. Find out who removes them from bucketwise_receipts, and run again"
        )


def encoded(documents: Sequence[Document]) -> bytes:
    """Returns the bytes of a file, the same for the same receipts."""
    return gzip.compress(b"".join(bson.encode(it, codec_options=CODEC) for it in documents), mtime=0)


def _ends_with(file: ReceiptFile, data: bytes) -> bool:
    """Returns whether these are the receipts of a file, as far as its last seal tells."""
    try:
        documents = decoded(data)
    except (InvalidBSON, OSError, EOFError, zlib.error):
        return False
    return bool(documents) and seal_of(documents[-1]) == documents[-1].get("sha256") == file.sha256


def decoded(data: bytes) -> list[Document]:
    """Returns the receipts in the bytes of a file."""
    return list(bson.decode_iter(gzip.decompress(data), codec_options=CODEC))


def chained(
    receipts: Receipts, files: ReceiptFiles, since: datetime | None = None, until: datetime | None = None
) -> Iterator[tuple[Document, str | None]]:
    """Yields the receipts of a policy, of [since, until), by their numbers, each with the file that it is in;
    None: in MongoDB. Raises DamagedError."""
    done = 0
    for file in files.listed():
        if file.is_within(since, until):
            yield from ((it, files.place(file)) for it in files.read(file) if is_of(it, since, until))
        done = file.last
    for receipt in receipts.numbered(done):
        number = _number(receipt)
        if number > done + 1:  # a concurrent run may have moved some since
            yield from (it for it in _moved_since(files, done, since, until) if it[0]["sequence"] < number)
        done = max(done, number)
        if is_of(receipt, since, until):
            yield receipt, None
    yield from _moved_since(files, done, since, until)


def _moved_since(
    files: ReceiptFiles, done: int, since: datetime | None, until: datetime | None
) -> Iterator[tuple[Document, str | None]]:
    for file in files.listed():
        if file.last > done and file.is_within(since, until):
            behind = (it for it in files.read(file) if it["sequence"] > done)
            yield from ((it, files.place(file)) for it in behind if is_of(it, since, until))


def numbered_for(
    receipts: Receipts, files: ReceiptFiles, after: int, commits: Sequence[str]
) -> Iterator[Document]:
    """Yields the receipts after this number whose deleted buckets one of these commits holds. Raises
    DamagedError."""
    done = after
    for file in files.listed():
        if file.last > after:
            of_file = (it for it in files.read(file) if it["sequence"] > after)
            yield from (it for it in of_file if (it.get("held_by") or {}).get("commit") in commits)
            done = file.last
    yield from receipts.numbered(done, {"held_by.commit": {"$in": list(commits)}})


def _number(receipt: Document) -> int:
    """Returns the number in a receipt's name; 0 where a person gave the name."""
    digits = str(receipt["_id"]["name"]).removeprefix("delete-")
    return int(digits) if digits.isdecimal() else 0


def is_of(receipt: Document, since: datetime | None, until: datetime | None) -> bool:
    """Returns whether a receipt is of [since, until)."""
    at = receipt.get("at")
    if since is None and until is None:
        return True
    return isinstance(at, datetime) and (since is None or at >= since) and (until is None or at < until)


#: The document with the number and the seal of the last receipt.
LAST = "last"
#: Kind of the receipts which say that later times were recorded by mistake.
TIME = "time"


class Recorded(NamedTuple):
    """The times on record. `latest`: the latest `now` of any receipt since number `lifted`, which says that
    later times were a mistake; 0: there was none. `latest` is None where there are no receipts."""

    latest: datetime | None = None
    lifted: int = 0

    def after(self, kind: str, number: int, now: datetime) -> Recorded:
        """Returns what is recorded after a further receipt."""
        if kind == TIME:
            return Recorded(now, number)
        return Recorded(max(self.latest or now, now), self.lifted)

    def among(self, manifests: Sequence[Manifest]) -> datetime | None:
        """Returns the latest time of these receipts and manifests."""
        after = [(it.receipt.sequence if it.receipt else 0, it.created) for it in manifests]
        counting = [created for number, created in after if number >= self.lifted]
        return max([*counting, *([self.latest] if self.latest else [])], default=None)


def recorded(receipts: Receipts, session: ClientSession | None = None) -> Recorded:
    """Returns what is recorded."""
    return recorded_in(receipts, receipts.get(LAST, session), session)


def recorded_in(receipts: Receipts, last: Document | None, session: ClientSession | None = None) -> Recorded:
    """Returns what is recorded, as the document `LAST` of the receipts tells it; from all receipts where an
    earlier version has written it."""
    if last is None:
        return Recorded()
    if "latest" in last:
        with reading(LAST):
            return Recorded(_instant(last["latest"]), int(last["lifted"]))
    span = {"$gt": receipts.identity("delete-"), "$lt": receipts.identity("delete.")}
    group = {"$group": {"_id": None, "latest": {"$max": "$at"}}}
    found = receipts.collection.aggregate([{"$match": {"_id": span}}, group], session=session)
    times = [it["latest"] for it in found] + [it.until for it in ReceiptFiles(receipts, None).listed()]
    return Recorded(max((it for it in times if isinstance(it, datetime)), default=None))


def _instant(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError
    return value
