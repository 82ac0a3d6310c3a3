"""Change streams: what has changed in the source since the last roll-up, read from where it left off.

The stream is the database's, and tells of the source, of its overflow, and of two collections of our own: of
the receipts that archive runs, whichever policy's, write in each transaction that deletes from the source
(its deletes move readings, and change none), and of the mark that a run leaves to know when it has read far
enough.

Which deletes are an archive run's, their receipt tells only after them. Where there are many, the receipts
are read ahead, and the server then leaves out what their transactions deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from bson.timestamp import Timestamp
from pymongo.change_stream import ChangeStream
from pymongo.errors import OperationFailure

from buckets.bson.raw import TOLERANT
from buckets.source import Source
from config.errors import BucketwiseError
from config.policies import Policy
from rollups import progress
from rollups.changes.events import EventReader, transaction_of
from rollups.changes.gathering import Changed, Gathering

Document = dict[str, Any]
Token = Mapping[str, Any]
T = TypeVar("T")
_UNAVAILABLE = {13: "the user lacks the right to it", 40573: "it takes a replica set"}
_WAIT_MS = 250
_MOST_WAITS = 480  # two minutes without an event
_CHANGES = ("insert", "update", "replace", "delete")
#: After so many deletes of archive runs, receipts are read ahead: of so many transactions.
_MANY, _READ_AHEAD = 1000, 10_000
#: Events of a reply, which else has up to 16 MB of what is not wanted any more.
_REPLY = 1000


class LostError(Exception):
    """The stream does not go on from where the last run left it. The text says why."""


class UnavailableError(Exception):
    """There are no change streams to read here. The text says why."""


def collections_of(source: Source) -> dict[str, str]:
    """What the stream is of: the collections that are there, and what tells one from another of its name."""
    if any(info["type"] != "collection" for info in source.listed):
        raise UnavailableError("views and native time-series collections have none")
    return {info["name"]: str(info["info"]["uuid"]) for info in source.listed}


class Stream:
    """The changes of one policy's source. `books` is where own transactions are written down.

    `leaves_marks`: whether it may write into the database to know when it has read far enough. A dry run
    does not, and reads until nothing comes, or what is new.
    """

    def __init__(self, policy: Policy, source: Source, books: str, *, leaves_marks: bool = True) -> None:
        self._database = source.collection.database.with_options(codec_options=TOLERANT)
        self.policy = policy
        self.leaves_marks = leaves_marks
        self._source = source
        self._books = books
        self._reader = EventReader(policy)

    def token_now(self) -> Token:
        """From here on. Raises UnavailableError."""
        with self._open(self._changes(None, []), None) as stream:
            while stream.resume_token is None:  # where something came in just as it was opened
                _read(stream.try_next, is_resumed=False)
            return stream.resume_token

    def drain(self, token: Token, rolled_up_to: int | None, check: Callable[[], None]) -> Changed:
        """Read all that has happened up to now. Readings that came in at or after `rolled_up_to`
        (milliseconds) are left out.

        Raises LostError, UnavailableError, and BucketwiseError where the stream stays silent.
        """
        found = Gathering(self._source, self._reader)
        # Before the stream is opened: most often its first reply tells of the mark.
        end, archived = self._end(), list[Document]()
        while True:
            with self._open(self._changes(rolled_up_to, archived), token) as stream:
                is_read = self._take_all(self._events(stream, end, check), found)
                assert stream.resume_token is not None
                token = stream.resume_token
            if is_read:
                return found.changed(token)
            archived = self._archived_from(token, end, check)

    def _end(self) -> _End:
        if self.leaves_marks:
            return _End(mark=progress.leave_mark(self._database, self.policy))
        return _End(time=self._database.client.admin.command("ping").get("operationTime"))

    def _take_all(self, events: Iterator[Document], found: Gathering) -> bool:
        """Returns whether that was all; not where most of it seems to be what archive runs deleted."""
        dropped = 0
        for event in events:
            if event["ns"]["coll"] == self._books:
                dropped += found.drop(event)
                if dropped >= _MANY:
                    return False
            elif event["operationType"] in _CHANGES:
                found.add(event)
            else:
                raise LostError(f"the collection {event['ns']['coll']} met with a {event['operationType']}")
        return True

    def _archived_from(self, token: Token, end: _End, check: Callable[[], None]) -> list[Document]:
        """Returns the next transactions of archive runs from the token on, as what their events match."""
        names = ("operationType", "ns.coll", "clusterTime", "lsid.id", "txnNumber")
        told = {**dict.fromkeys(names, 1), "mark": "$fullDocument.mark"}
        pipeline: list[Document] = [{"$match": {"$or": self._own}}, {"$project": told}]
        numbers: dict[Any, list[int]] = {}
        with self._open(pipeline, token) as stream:
            for event in islice(self._events(stream, end, check), _READ_AHEAD):
                if (transaction := transaction_of(event)) is not None:
                    numbers.setdefault(transaction.session, []).append(transaction.number)
        return [{"lsid.id": session, "txnNumber": {"$in": some}} for session, some in numbers.items()]

    def _events(
        self, stream: ChangeStream[Document], end: _End, check: Callable[[], None]
    ) -> Iterator[Document]:
        """Up to the mark. It was written after all that is to be read, so that the stream tells it last."""
        waits = 0
        while stream.alive and waits < _MOST_WAITS:
            check()
            event = _read(stream.try_next, is_resumed=True)
            if event is None:
                if end.mark is None:
                    return
                waits += 1
            elif end.is_past(event):
                return
            elif "ns" not in event or event["ns"]["coll"] != progress.COLLECTION:
                waits = 0
                if event.get("operationType") == "invalidate":
                    break
                yield event
        if waits < _MOST_WAITS:
            raise LostError("the database was dropped")
        raise BucketwiseError(
            f"policy {self.policy.name}: the change stream has not told of a write within "
            f"{_MOST_WAITS * _WAIT_MS // 1000} s: can a majority of the replica set be reached? It is safe "
            'to run again; rollup.late_data = "scan" does without the stream'
        )

    def _open(self, pipeline: list[Document], token: Token | None) -> ChangeStream[Document]:
        def watch() -> ChangeStream[Document]:
            return self._database.watch(
                pipeline,
                start_after=token,
                full_document_before_change="whenAvailable",
                max_await_time_ms=_WAIT_MS,
                batch_size=_REPLY,
            )

        return _read(watch, is_resumed=token is not None)

    @property
    def _own(self) -> list[Document]:
        """Matches the receipts of deletes, and the mark."""
        receipt = {"fullDocument.kind": "delete", "fullDocument.collection": self.policy.collection}
        mark = {"ns.coll": progress.COLLECTION, "documentKey._id": progress.mark_id(self.policy)}
        return [{"ns.coll": self._books, **receipt}, mark]

    def _changes(self, rolled_up_to: int | None, archived: list[Document]) -> list[Document]:
        """Returns the pipeline of all that may tell of a change. `archived`: transactions whose deletes are
        left out."""
        sources = {"ns.coll": {"$in": self.policy.sources}}
        pipeline: list[Document] = [{"$match": {"$or": [sources, *self._own]}}]
        if archived:
            pipeline.append({"$match": {"$nor": [{"operationType": "delete", **sources, "$or": archived}]}})
        if rolled_up_to is not None:
            pipeline.append({"$match": {"$nor": [self._reader.new_readings(rolled_up_to)]}})
        return [*pipeline, {"$project": self._reader.projection()}]


@dataclass(frozen=True)
class _End:
    """How far to read: up to the mark, where one was left; else to what was written after this time."""

    mark: str | None = None
    time: Timestamp | None = None

    def is_past(self, event: Document) -> bool:
        if self.mark is not None:
            return bool(event.get("mark") == self.mark)
        return self.time is not None and "clusterTime" in event and bool(event["clusterTime"] > self.time)


def _read(step: Callable[[], T], *, is_resumed: bool) -> T:
    """A step of the stream itself, with what its errors mean."""
    try:
        return step()
    except OperationFailure as error:
        if error.code in _UNAVAILABLE:
            raise UnavailableError(_UNAVAILABLE[error.code]) from error
        if not is_resumed:
            raise
        # The oplog has rolled over, an event is too large … : what it was is told, and a new stream shows
        # whether it was that.
        raise LostError((error.details or {}).get("errmsg", str(error))) from error
