"""Change streams: what has changed in the source since the last roll-up, read from where it left off.

The stream is the database's, and tells of the source, of its overflow, and of two collections of our own: of
the books that each transaction of an archive run writes to, whichever policy's it is (its deletes move
readings, and change none), and of the mark that a run leaves to know when it has read far enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import bson
from pymongo.change_stream import ChangeStream
from pymongo.errors import OperationFailure

from buckets.bson.raw import TOLERANT
from buckets.source import Source
from config.errors import BucketwiseError
from config.policies import Policy
from rollups import progress
from rollups.calendar.due import Spans
from rollups.calendar.levels import Span
from rollups.calendar.windows import HIGHEST
from rollups.changes.events import Change, EventReader
from rollups.summaries.documents import OPTIONS

Document = dict[str, Any]
T = TypeVar("T")
_UNAVAILABLE = {13: "the user lacks the right to it", 40573: "it takes a replica set"}
_AT_ONCE = 1000
_WAIT_MS = 250
_MOST_WAITS = 480  # two minutes without an event
#: Spans are widened to multiples of it, so that few remain. Windows begin and end at such.
_QUARTER_MS = 900_000
_CHANGES = ("insert", "update", "replace", "delete")
OPERATIONS = ("insert", "update", "move", "delete")


class LostError(Exception):
    """The stream does not go on from where the last run left it. The text says why."""


class UnavailableError(Exception):
    """There are no change streams to read here. The text says why."""


@dataclass
class Changed:
    """What has changed since the last run: by operation (`EventReader.operation`), the time that was touched,
    and how many of them don't tell what time that was. `is_anything`: deletes of an archive run count too."""

    token: Mapping[str, Any]
    spans: Mapping[str, Spans]
    unknown: Counter[str]
    events: int
    is_anything: bool

    def then(self, later: Changed) -> Changed:
        """This, and what has changed after it."""
        spans = {kind: Spans([*some.spans, *later.spans[kind].spans]) for kind, some in self.spans.items()}
        return Changed(
            later.token,
            spans,
            self.unknown + later.unknown,
            self.events + later.events,
            self.is_anything or later.is_anything,
        )

    @property
    def told(self) -> list[Span]:
        """All spans, whatever the operation."""
        return flat(self.spans)


def flat(spans: Mapping[str, Spans]) -> list[Span]:
    return [span for some in spans.values() for span in some.spans]


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

    def token_now(self) -> Mapping[str, Any]:
        """From here on. Raises UnavailableError."""
        with self._open(None, None) as stream:
            while stream.resume_token is None:  # where something came in just as it was opened
                _read(stream.try_next, is_resumed=False)
            return stream.resume_token

    def drain(self, token: Mapping[str, Any], rolled_up_to: int | None, check: Callable[[], None]) -> Changed:
        """Read all that has happened up to now. Readings that came in at or after `rolled_up_to`
        (milliseconds) are left out.

        Raises LostError, UnavailableError, and BucketwiseError where the stream stays silent.
        """
        found = _Gathering(self._source, self._reader)
        # Before the stream is opened: most often its first reply tells of the mark.
        mark = progress.leave_mark(self._database, self.policy) if self.leaves_marks else None
        with self._open(token, rolled_up_to) as stream:
            started = None if mark else self._database.client.admin.command("ping").get("operationTime")
            for event in self._events(stream, mark, check):
                if started is not None and event["clusterTime"] > started:
                    break
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
            event = _read(stream.try_next, is_resumed=True)
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
            f"policy {self.policy.name}: the change stream has not told of a write within "
            f"{_MOST_WAITS * _WAIT_MS // 1000} s: can a majority of the replica set be reached? It is safe "
            'to run again; rollup.late_data = "scan" does without the stream'
        )

    def _open(self, token: Mapping[str, Any] | None, rolled_up_to: int | None) -> ChangeStream[Document]:
        def watch() -> ChangeStream[Document]:
            return self._database.watch(
                self._pipeline(rolled_up_to),
                start_after=token,
                full_document_before_change="whenAvailable",
                max_await_time_ms=_WAIT_MS,
            )

        return _read(watch, is_resumed=token is not None)

    def _pipeline(self, rolled_up_to: int | None) -> list[Document]:
        own = [
            {"ns.coll": self._books},
            {"ns.coll": progress.COLLECTION, "documentKey._id": progress.mark_id(self.policy)},
        ]
        pipeline: list[Document] = [{"$match": {"$or": [{"ns.coll": {"$in": self.policy.sources}}, *own]}}]
        if rolled_up_to is not None:
            pipeline.append({"$match": {"$nor": [self._reader.new_readings(rolled_up_to)]}})
        return [*pipeline, {"$project": self._reader.projection()}]


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


class _Gathering:
    """What the events add up to. Grows with the spans of time that have changed, not with the changes."""

    def __init__(self, source: Source, reader: EventReader) -> None:
        self._source = source
        self._reader = reader
        self._spans: dict[str, list[Span]] = {kind: [] for kind in OPERATIONS}
        self._buckets: dict[tuple[bytes, str, bool], Any] = {}
        self._overflow: dict[bytes, Any] = {}
        self._deletes: tuple[Document, list[Change]] | None = None  # of one transaction
        self._unknown: Counter[str] = Counter()
        self._events = 0
        self._is_anything = False
        self._most_spans = _AT_ONCE

    def add(self, event: Document) -> None:
        self._is_anything = True
        change, operation = self._reader.read(event), self._reader.operation(event)
        transaction = _transaction(event)
        if self._deletes is not None and self._deletes[0] != transaction:
            self._keep_deletes()
        if operation == "delete" and transaction is not None:
            # It may be our own: the books tell, later in the transaction.
            self._deletes = self._deletes or (transaction, [])
            self._deletes[1].append(change)
        else:
            self._take(change, operation)

    def drop(self, event: Document) -> None:
        """The deletes of this transaction are our own: what they took is archived."""
        if self._deletes is not None and self._deletes[0] == _transaction(event):
            self._deletes = None

    def changed(self, token: Mapping[str, Any]) -> Changed:
        self._keep_deletes()
        self._look_up()
        spans = {kind: Spans(spans) for kind, spans in self._spans.items()}
        return Changed(token, spans, self._unknown, self._events, self._is_anything)

    def _keep_deletes(self) -> None:
        for change in self._deletes[1] if self._deletes is not None else ():
            self._take(change, "delete")
        self._deletes = None

    def _take(self, change: Change, operation: str) -> None:
        self._events += 1
        self._unknown[operation] += change.unknown
        self._spans[operation] += change.spans
        self._buckets.update({(_key(it), operation, change.open_ended): it for it in change.buckets})
        self._overflow.update({_key(it): it for it in change.overflow})
        enough = max(len(self._buckets), len(self._overflow)) >= _AT_ONCE
        if enough or sum(map(len, self._spans.values())) >= self._most_spans:
            self._look_up()

    def _look_up(self) -> None:
        """What is gone by now has an event of its own, here or in what the next run reads."""
        for owner in self._source.owners(list(self._overflow.values())):
            self._buckets[_key(owner), "update", False] = owner
        ids: dict[tuple[str, bool], list[Any]] = {}
        for (_, operation, open_ended), identity in self._buckets.items():
            ids.setdefault((operation, open_ended), []).append(identity)
        for (operation, open_ended), some in ids.items():
            for start, end in self._source.spans(some):
                self._spans[operation].append((start, HIGHEST if open_ended else end))
        self._spans = {kind: _in_quarters(spans) for kind, spans in self._spans.items()}
        self._most_spans = 2 * sum(map(len, self._spans.values())) + _AT_ONCE
        self._buckets.clear()
        self._overflow.clear()


def _in_quarters(spans: Iterable[Span]) -> list[Span]:
    quarters = ((start // _QUARTER_MS, -(-end // _QUARTER_MS)) for start, end in spans)
    return list(Spans((start * _QUARTER_MS, end * _QUARTER_MS) for start, end in quarters).spans)


def _transaction(event: Document) -> Document | None:
    """What tells a transaction from others. Its events come one after the other."""
    return {"session": event["lsid"]["id"], "number": event["txnNumber"]} if "lsid" in event else None


def _key(identity: Any) -> bytes:
    return bson.encode({"": identity}, codec_options=OPTIONS)
