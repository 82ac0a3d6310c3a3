"""Writes summaries: only those that differ from the existing ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, IndexModel, ReplaceOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.raw import LOSSLESS
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Level, Span
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.context import Guard, majority, transaction
from bucketwise.rollups.summaries import documents

Document = dict[str, Any]
_BATCH_SIZE = 1000
#: A write of a summary, and when its window begins (milliseconds).
_Operation = tuple[DeleteOne | ReplaceOne[RawBSONDocument], int]
#: Takes when the windows begin whose summaries a transaction adds, and of those that it removes.
CountChanges = Callable[[Sequence[int], Sequence[int], ClientSession], None]
#: How a document begins, behind its length: the server puts `_id` first.
_ID_FIRST = b"\x03_id\0"
_SERIES_INDEX = "bucketwise_series"
_START_INDEX = "bucketwise_start"
#: DuplicateKey, IndexOptionsConflict, IndexKeySpecsConflict, CannotCreateIndex: an index or data conflicts.
_CONFLICT_CODES = (11000, 85, 86, 67)


@dataclass
class Counts:
    """Summaries of one level. `written` were put, replaced or deleted; `deleted` of them had no reading left.

    `kept` can't be checked: something else removed raw readings of their window by age.
    """

    due: int = 0  # windows
    written: int = 0
    unchanged: int = 0
    deleted: int = 0
    kept: int = 0

    def add(self, changes: SummaryDiff, due: int) -> None:
        """Adds the outcome for so many windows."""
        self.due += due
        self.written += len(changes.replaced) + len(changes.deleted)
        self.deleted += len(changes.deleted)
        self.unchanged += changes.unchanged
        self.kept += changes.kept


def target(database: Database[Document], collection: str) -> Collection[RawBSONDocument]:
    """Returns a collection of summaries that reads raw BSON and writes with majority concern."""
    return database.get_collection(collection, codec_options=LOSSLESS, write_concern=majority(database))  # type: ignore[return-value]


class SummaryDiff:
    """How the summaries of some windows differ from what they should be."""

    def __init__(self, database: Database[Document], policy: Policy, level: Level) -> None:
        self._database, self._policy = database, policy
        self.level = level
        self._collection = target(database, level.collection)
        self.replaced: list[tuple[RawBSONDocument, RawBSONDocument]] = []
        self.deleted: list[RawBSONDocument] = []
        self.unchanged = 0
        self.kept = 0

    @property
    def collection(self) -> str:
        """Returns the name of the collection that the summaries are in."""
        return self._collection.name

    def compare(
        self,
        windows: Sequence[Span],
        computed: dict[bytes, bytes],
        keeps: Callable[[Span, RawBSONDocument, bytes | None], bool],
        outlived: Container[bytes] = (),
        narrow: Callable[[Callable[[], Iterable[bytes]]], Iterable[bytes]] = lambda read: read(),
    ) -> None:
        """Compares computed summaries with those that stand, and gathers what to write and delete.

        `computed`: `_id` → document, both BSON, for all series of the windows. `keeps` is asked of a standing
        summary that differs: its window, it, and what was computed (None: it has no reading). `outlived`: the
        `_id`s of those that are made of a summary whose readings are gone. `narrow`: gives the standing
        summaries of those series alone that were computed, given how all are read."""
        starts = [start for start, _ in windows]
        waiting = dict(computed)
        for raw in narrow(partial(self._existing, windows)):
            name = identity_of(raw)
            if name in waiting and (waiting[name] == raw or self._is_like(raw, waiting[name])):
                del waiting[name]
                self.unchanged += name not in outlived
                self.kept += name in outlived
                continue
            found = RawBSONDocument(raw, LOSSLESS)
            if not isinstance(found["_id"], RawBSONDocument) or "series" not in found["_id"]:
                continue  # it is no summary
            at = bisect_right(starts, to_ms(found["start"])) - 1
            if at < 0 or to_ms(found["start"]) >= windows[at][1]:
                continue  # of a window that is not due
            identity = found["_id"]
            wanted = waiting.pop(bytes(identity.raw), None)
            if keeps(windows[at], found, wanted):
                self.kept += 1
            elif wanted is not None:
                self.replaced.append((identity, RawBSONDocument(wanted, LOSSLESS)))
            else:
                self.deleted.append(identity)
        for key, document in waiting.items():
            self.put(key, document)

    def _is_like(self, raw: bytes, computed: bytes) -> bool:
        return documents.is_like(self._policy, self.level, raw, computed)

    def put(self, identity: bytes, document: bytes) -> None:
        """Adds a summary to those that are written; BSON."""
        self.replaced.append((RawBSONDocument(identity, LOSSLESS), RawBSONDocument(document, LOSSLESS)))

    def _existing(self, windows: Sequence[Span]) -> Iterator[bytes]:
        span = {"$gte": DatetimeMS(windows[0][0]), "$lt": DatetimeMS(windows[-1][1])}
        return chain.from_iterable(find_raw(self._collection, {"start": span}))

    def apply(self, policy: Policy, guard: Guard, count: CountChanges) -> None:
        """Deletes first: a summary whose `_id` is written otherwise now must not stand in the way. `count`
        takes which came and went.

        A run that has lost its lease while it slept writes nothing: another may have mended this since.
        """
        if not self.deleted and not self.replaced:
            return
        ensure_indexes(self._collection, policy)
        operations: list[_Operation] = [(DeleteOne({"_id": it}), _start(it)) for it in self.deleted]
        operations += [
            (ReplaceOne({"_id": key}, document, upsert=True), _start(key)) for key, document in self.replaced
        ]
        for at in range(0, len(operations), _BATCH_SIZE):
            try:
                piece = operations[at : at + _BATCH_SIZE]
                transaction(self._database, guard, partial(_write, self._collection, piece, count))
            except BulkWriteError as error:
                raise BucketwiseError(_explain(policy, self._collection.name, error)) from error


def identity_of(document: bytes) -> bytes:
    """Returns the BSON of a document's `_id`, where that is a document and comes first; else other bytes."""
    start = 4 + len(_ID_FIRST)
    return document[start : start + int.from_bytes(document[start : start + 4], "little")]


def _write(
    collection: Collection[RawBSONDocument],
    piece: Sequence[_Operation],
    count: CountChanges,
    session: ClientSession,
) -> None:
    done = collection.bulk_write([it for it, _ in piece], ordered=True, session=session)
    added = [piece[at][1] for at in done.upserted_ids or ()]
    count(added, [start for it, start in piece if isinstance(it, DeleteOne)], session)


def _start(identity: RawBSONDocument) -> int:
    return to_ms(identity["start"])


def stored_fields(policy: Policy) -> list[str]:
    """Returns where summaries hold each series field."""
    return ["_id.series._id" if name == "_id" else name for name in policy.series_names]


def ensure_indexes(collection: Collection[RawBSONDocument], policy: Policy) -> None:
    """Creates the indexes of a collection of summaries. Creates the unique one anew where the policy's series
    fields have changed."""
    series = [(name, 1) for name in [*stored_fields(policy), "start"]]
    existing, missing = collection.index_information(), list[IndexModel]()
    current = existing.get(_SERIES_INDEX)
    try:
        if current is not None and _key(current) != series:
            collection.drop_index(_SERIES_INDEX)
            del existing[_SERIES_INDEX]
        if not any(_key(index) == series and index.get("unique") for index in existing.values()):
            missing.append(IndexModel(series, unique=True, name=_SERIES_INDEX))
        if not any(key[0] == ("start", 1) for key in [series, *map(_key, existing.values())]):
            missing.append(IndexModel([("start", 1)], name=_START_INDEX))
        if missing:
            collection.create_indexes(missing)
    except OperationFailure as error:
        if error.code not in _CONFLICT_CODES:
            raise
        fields = ", ".join(name for name, _ in series)
        reason = (error.details or {}).get("errmsg", error)
        raise BucketwiseError(
            f"policy {policy.name}: can't make the indexes of {collection.name} on ({fields}): {reason}. "
            "Is something there that this policy did not write? Remove it, or name another collection. "
            "Did the policy have further series fields? Name new collections: there, all is summarized again"
        ) from error


def _key(index: Mapping[str, Any]) -> list[tuple[str, int]]:
    return list(index["key"])


def _explain(policy: Policy, collection: str, error: BulkWriteError) -> str:
    details = error.details or {}
    failed = [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]
    reason = failed[0].get("errmsg", error) if failed else error
    return f"policy {policy.name}: can't write summaries to {collection}: {reason}"
