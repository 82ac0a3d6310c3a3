"""Change streams: what has changed in the source since the last roll-up, read from where it left off.

The stream is the database's, and tells of the source, of its overflow, and of two collections of our own: of
the books that each transaction of an archive run writes to, whichever policy's it is (its deletes move
readings, and change none), and of the mark that a run leaves to know when it has read far enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.change_stream import ChangeStream
from pymongo.database import Database
from pymongo.errors import OperationFailure

from buckets.source import Source
from config.errors import BucketwiseError
from config.policies import Policy
from rollups import progress
from rollups.due import Span, Spans
from rollups.events import Change, EventReader
from rollups.windows import HIGHEST

Document = dict[str, Any]
_CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    uuid_representation=UuidRepresentation.STANDARD,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_UNAVAILABLE = {13: "the user lacks the right to it", 40573: "it takes a replica set"}
_AT_ONCE = 1000
_WAIT_MS = 250
_MOST_WAITS = 480  # two minutes without an event
#: Spans are widened to multiples of it, so that few remain. Windows begin and end at such.
_QUARTER_MS = 900_000
_CHANGES = ("insert", "update", "replace", "delete")


class LostError(Exception):
    """The stream does not go on from where the last run left it. The text says why."""


class UnavailableError(Exception):
    """There are no change streams to read here. The text says why."""


@dataclass
class Changed:
    """What has changed since the last run.

    `unknown` of the changes touched time that can't be told; `deleted` are those of them that were deletes.
    """

    token: Mapping[str, Any]
    spans: Spans = field(default_factory=lambda: Spans(()))
    events: int = 0
    unknown: int = 0
    deleted: int = 0


def collections_of(database: Database[Document], policy: Policy) -> dict[str, str]:
    """What the stream is of: the collections that are there, and what tells one from another of its name."""
    names = [policy.collection, *([policy.overflow.collection] if policy.overflow else [])]
    found = list(
        database.with_options(codec_options=_CODEC).list_collections(filter={"name": {"$in": names}})
    )
    if any(info["type"] != "collection" for info in found):
        raise UnavailableError("views and native time-series collections have none")
    return {info["name"]: str(info["info"]["uuid"]) for info in found}


class Stream:
    """The changes of one policy's source. `books` is where own transactions are written down."""

    def __init__(self, database: Database[Document], policy: Policy, source: Source, books: str) -> None:
        self._database = database.with_options(codec_options=_CODEC)
        self._policy = policy
        self._source = source
        self._books = books
        self._reader = EventReader(policy)

    def token_now(self) -> Mapping[str, Any]:
        """From here on. Raises UnavailableError."""
        with self._open(None, None) as stream:
            token = stream.resume_token
            assert token is not None
            return token

    def drain(
        self,
        token: Mapping[str, Any],
        rolled_up_to: int | None,
        check: Callable[[], None],
        *,
        dry_run: bool,
    ) -> Changed:
        """Read all that has happened up to now. Readings that came in at or after `rolled_up_to`
        (milliseconds) are left out. A dry run leaves no mark, and reads until nothing comes.

        Raises LostError, UnavailableError, and BucketwiseError where the stream stays silent.
        """
        found = _Gathering(self._policy, self._source, self._reader)
        with self._open(token, rolled_up_to) as stream:
            mark = None if dry_run else progress.leave_mark(self._database, self._policy)
            for event in self._events(stream, mark, check):
                self._take(event, found)
            assert stream.resume_token is not None
            return found.changed(stream.resume_token)

    def _take(self, event: Document, found: _Gathering) -> None:
        if event["ns"]["coll"] == self._books:
            found.drop(event)
        elif event["operationType"] in _CHANGES:
            found.add(event)
        else:
            raise LostError(f"the collection {event['ns']['coll']} met with a {event['operationType']}")

    def _events(
        self, stream: ChangeStream[Document], mark: str | None, check: Callable[[], None]
    ) -> Iterator[Document]:
        """Up to the mark. It was written after all that is to be read, so that the stream tells it last."""
        waits = 0
        while stream.alive and waits < _MOST_WAITS:
            check()
            event = stream.try_next()
            if event is None:
                if mark is None:
                    return
                waits += 1
            elif "ns" not in event or event["ns"]["coll"] != progress.COLLECTION:
                waits = 0
                if event["operationType"] == "invalidate":
                    break
                yield event
            elif event.get("mark") == mark:
                return
        if waits < _MOST_WAITS:
            raise LostError("the database was dropped")
        raise BucketwiseError(
            f"policy {self._policy.name}: the change stream has not told of a write within "
            f"{_MOST_WAITS * _WAIT_MS // 1000} s: can a majority of the replica set be reached? It is safe "
            'to run again; rollup.late_data = "scan" does without the stream'
        )

    @contextmanager
    def _open(
        self, token: Mapping[str, Any] | None, rolled_up_to: int | None
    ) -> Iterator[ChangeStream[Document]]:
        try:
            with self._database.watch(
                self._pipeline(rolled_up_to),
                start_after=token,
                full_document_before_change="whenAvailable",
                max_await_time_ms=_WAIT_MS,
            ) as stream:
                yield stream
        except OperationFailure as error:
            if error.code in _UNAVAILABLE:
                raise UnavailableError(_UNAVAILABLE[error.code]) from error
            if token is None:
                raise
            # The oplog has rolled over, an event is too large … : what it was is told, and a new stream shows
            # whether it was that.
            raise LostError((error.details or {}).get("errmsg", str(error))) from error

    def _pipeline(self, rolled_up_to: int | None) -> list[Document]:
        names = [self._policy.collection]
        if self._policy.overflow is not None:
            names.append(self._policy.overflow.collection)
        own = [
            {"ns.coll": self._books},
            {"ns.coll": progress.COLLECTION, "documentKey._id": progress.mark_id(self._policy)},
        ]
        pipeline: list[Document] = [{"$match": {"$or": [{"ns.coll": {"$in": names}}, *own]}}]
        if rolled_up_to is not None:
            pipeline.append({"$match": {"$nor": [self._reader.new_readings(rolled_up_to)]}})
        return [*pipeline, {"$project": self._reader.projection()}]


class _Gathering:
    """What the events add up to. Grows with the spans of time that have changed, not with the changes."""

    def __init__(self, policy: Policy, source: Source, reader: EventReader) -> None:
        self._policy = policy
        self._source = source
        self._reader = reader
        self._spans: list[Span] = []
        self._buckets: dict[tuple[bytes, bool], Any] = {}
        self._overflow: dict[bytes, Any] = {}
        self._in_transaction: dict[tuple[bytes, int], list[tuple[Change, bool]]] = {}
        self._events = self._unknown = self._deleted = 0
        self._most_spans = _AT_ONCE

    def add(self, event: Document) -> None:
        change, deletes = self._reader.read(event), event["operationType"] == "delete"
        if deletes and "lsid" in event:  # it may be our own: the books tell, later in the transaction
            self._in_transaction.setdefault(_transaction(event), []).append((change, deletes))
        else:
            self._take(change, deletes=deletes)

    def drop(self, event: Document) -> None:
        """These deletes are our own: what they took is archived."""
        if "lsid" in event:
            self._in_transaction.pop(_transaction(event), None)

    def changed(self, token: Mapping[str, Any]) -> Changed:
        for changes in self._in_transaction.values():
            for change, deletes in changes:
                self._take(change, deletes=deletes)
        self._in_transaction.clear()
        self._look_up()
        return Changed(token, Spans(self._spans), self._events, self._unknown, self._deleted)

    def _take(self, change: Change, *, deletes: bool) -> None:
        self._events += 1
        self._unknown += change.unknown
        self._deleted += change.unknown and deletes
        self._spans += change.spans
        self._buckets.update({(_key(it), change.open_ended): it for it in change.buckets})
        self._overflow.update({_key(it): it for it in change.overflow})
        enough = max(len(self._buckets), len(self._overflow)) >= _AT_ONCE
        if enough or len(self._spans) >= self._most_spans:
            self._look_up()

    def _look_up(self) -> None:
        """What is gone by now has an event of its own, here or in what the next run reads."""
        for owner in self._source.owners(list(self._overflow.values())):
            self._buckets[_key(owner), False] = owner
        for open_ended in (False, True):
            ids = [it for (_, open_end), it in self._buckets.items() if open_end == open_ended]
            for start, end in self._source.spans(ids) if ids else ():
                self._spans.append((start, HIGHEST if open_ended else end))
        quarters = ((start // _QUARTER_MS, -(-end // _QUARTER_MS)) for start, end in self._spans)
        self._spans = list(Spans((start * _QUARTER_MS, end * _QUARTER_MS) for start, end in quarters).spans)
        self._most_spans = 2 * len(self._spans) + _AT_ONCE
        self._buckets.clear()
        self._overflow.clear()


def _transaction(event: Document) -> tuple[bytes, int]:
    return bson.encode({"": event["lsid"]["id"]}, codec_options=_CODEC), event["txnNumber"]


def _key(identity: Any) -> bytes:
    return bson.encode({"": identity}, codec_options=_CODEC)
