"""Searches for the values of a series as text, wherever they stand: in collections and files of a policy."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator

import bson

from bucketwise.archivers.context import ArchiveContext, offline_archive
from bucketwise.archivers.erasing.collections import places_of
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.report import Remaining, counted
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.records.receipt_files import decoded
from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.raw import TOLERANT, Docs
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of

_WHAT = "documents contain a value of the series"
_UNREADABLE = "the file can't be read, so whether it holds a value of the series is unknown"


class TextSearch:
    """The search of one erasure."""

    def __init__(self, context: ArchiveContext, erasure: Erasure) -> None:
        self._context = context
        self._policy = erasure.policy
        self._matcher = erasure.matcher
        self._places = [
            it for place in places_of(erasure) for it in (place.collection, place.overflow) if it is not None
        ]

    def run(self) -> Iterator[Remaining]:
        """Yields where a value stands."""
        levels = [level.collection for level in levels_of(self._policy)]
        for name in sorted({*self._places, *levels}):
            yield from counted(name, _WHAT, sum(map(self._count, self._all_of(name))))
        for name in self._context.database.list_collection_names(filter={"name": {"$regex": "^bucketwise_"}}):
            own = (_unpacked(it) for some in self._all_of(name) for it in _read(some))
            mine = (it for it in own if not _is_of_another(it, self._policy))
            yield from counted(name, _WHAT, sum(map(self._matcher.is_in, mine)))
        archive = offline_archive(self._context.connections, self._policy)
        if archive is not None:
            yield from self._in_commits(archive)
            yield from self._beside(archive)

    def _all_of(self, name: str) -> Iterator[Docs]:
        self._context.check()
        return find_raw(self._context.database[name], {})

    def _count(self, documents: Docs) -> int:
        if not self._matcher.may_be_in(documents.data):
            return 0
        return sum(map(self._matcher.is_in, _read(documents)))

    def _in_commits(self, archive: OfflineArchive) -> Iterator[Remaining]:
        """Searches the documents that each commit gives: all that its Parquet files hold comes from these."""
        for commit in archive.commits():
            self._context.check()
            held = (it.batch for it in archive.sections(archive.manifest(commit)))
            count = sum(self._count(documents) for it in held for documents in (it.main, it.extra))
            yield from counted(archive.place(commit), _WHAT, count)

    def _beside(self, archive: OfflineArchive) -> Iterator[Remaining]:
        for found in archive.store.list(f"{self._policy.identity}/meta/"):
            self._context.check()
            place = f"{archive.store.url}/{found.key}"
            try:
                held = list(_entries(found.key, archive.store.get_bytes(found.key)))
            except (ValueError, OSError, EOFError, zlib.error, bson.errors.InvalidBSON):
                yield Remaining(place, _UNREADABLE, True)
                continue
            yield from counted(place, _WHAT, sum(map(self._matcher.is_in, held)))


def _read(documents: Iterable[bytes]) -> Iterator[dict[str, object]]:
    return (bson.decode(it, codec_options=TOLERANT) for it in documents)


def _is_of_another(document: dict[str, object], policy: Policy) -> bool:
    """Returns whether a document of the suite's own is another policy's."""
    named = document.get("policy")
    identity = document.get("_id")
    if named is None and hasattr(identity, "get"):
        named = identity.get("policy")
    return named not in (None, policy.identity)


def _unpacked(document: dict[str, object]) -> dict[str, object]:
    """Returns the document with the `_id`s that receipts hold compressed."""
    packed = document.get("ids")
    if not isinstance(packed, bytes) or packed[:1] != b"\x78":
        return document
    return {**document, "ids": bson.decode(zlib.decompress(packed), codec_options=TOLERANT)}


def _entries(key: str, data: bytes) -> Iterator[object]:
    """Yields what a file beside the parts holds: JSON, documents one after the other, or compressed
    receipts."""
    if key.endswith(".json"):
        yield json.loads(data)
    elif key.endswith(".bson.gz"):
        yield from map(_unpacked, decoded(data))
    elif key.endswith(".bson"):
        yield from _read(Docs.split(data))
