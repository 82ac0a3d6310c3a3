"""Reads the change stream of a database from where it was left, for one policy or for several at once.

The stream covers the policies' sources, their overflow, and two collections of our own. Archive runs of any
policy write receipts in each transaction that deletes from the sources: such deletes move readings, and
change none. A run leaves a mark, to know when it has read far enough.

The receipt of an archive run comes only after its deletes. Where there are many, the receipts are read ahead,
and the server then leaves out what their transactions deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from bson.timestamp import Timestamp
from pymongo.change_stream import ChangeStream
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from bucketwise.buckets.bson.raw import TOLERANT
from bucketwise.buckets.models import model_of
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups import progress
from bucketwise.rollups.calendar.levels import base_levels, levels_of
from bucketwise.rollups.changes.collector import (
    ChangeCollector,
    ChangeSet,
    EventReader,
    projection,
    transaction_of,
)
from bucketwise.rollups.progress import Progress, load_all


def may_stream(policy: Policy) -> bool:
    """Returns whether a change stream can report a policy's late readings, if the server lets us read it."""
    wants_stream = policy.rollup is not None and policy.rollup.late_data != "scan"
    return wants_stream and model_of(policy).unstreamed is None


def rolled_up_to(policy: Policy, through: Mapping[LevelName, int]) -> int:
    """Returns the instant (milliseconds) from which on no reading lies in a window that is rolled up."""
    return max(through[level.name] + level.reach for level in levels_of(policy) if level.name in through)


def new_from(policy: Policy, through: Mapping[LevelName, int]) -> int:
    """Returns the instant from which on incoming readings are new. Weeks and months are made from days,
    so they do not count."""
    known = [through[level.name] for level in base_levels(levels_of(policy)) if level.name in through]
    return min(known or through.values())


Document = dict[str, Any]
Token = Mapping[str, Any]
T = TypeVar("T")
_UNAVAILABLE = {13: "the user is not authorized for it", 40573: "it requires a replica set"}
_WAIT_MS = 250
_MAX_WAITS = 480  # two minutes without an event
_CHANGES = ("insert", "update", "replace", "delete")
#: Deletes of archive runs after which receipts are read ahead; and of how many transactions.
MANY_DROPPED, READ_AHEAD = 1000, 10_000
#: Events of a reply. Otherwise it has up to 16 MB of events that are no longer needed.
REPLY = 1000


class StreamLostError(Exception):
    """The stream cannot be resumed where the last run stopped. The text says why."""


class StreamUnavailableError(Exception):
    """There is no change stream to read. The text says why."""


@dataclass(frozen=True)
class FollowedPolicy:
    """A policy whose changes are read: those after `token`. Readings at or after `rolled_up_to`
    (milliseconds) are ignored; None: none are."""

    source: Source
    token: Token
    rolled_up_to: int | None = None

    @property
    def policy(self) -> Policy:
        """Returns the policy whose collections are followed."""
        return self.source.policy

    @cached_property
    def reader(self) -> EventReader:
        """Returns the reader that turns the policy's events into changes."""
        return EventReader(self.policy)

    def has_read(self, event: Document) -> bool:
        """Returns whether the event was read before. (Resume tokens sort in the order of their events.)"""
        return bool(event["_id"]["_data"] <= self.token["_data"])


@dataclass(frozen=True)
class StopPoint:
    """Where a read of the stream stops: at the mark, if one was written, else at the first event after
    this time."""

    mark: str | None = None
    time: Timestamp | None = None

    def is_past(self, event: Document) -> bool:
        """Returns whether an event is the mark, or was written after the time, so that everything has
        been read."""
        if self.mark is not None:
            return bool(event.get("mark") == self.mark)
        return self.time is not None and "clusterTime" in event and bool(event["clusterTime"] > self.time)


class Drain:
    """One read of all that has happened up to now, for policies that have no collection in common. `receipts`
    is the collection that gets a receipt in each transaction of an archive run.

    `leaves_mark`: whether it may write into the database to know when it has read far enough. A dry run
    does not, and reads until nothing comes, or what is new.
    """

    def __init__(
        self,
        database: Database[Document],
        receipts: str,
        followed: Sequence[FollowedPolicy],
        check: Callable[[], None],
        *,
        leaves_mark: bool,
    ) -> None:
        self._database = database
        self._receipts = receipts
        self._followed = followed
        self._check = check
        self._leaves_mark = leaves_mark
        self._policies = [it.policy for it in followed]
        self._by_collection = {name: it for it in followed for name in it.policy.sources}
        self._collectors = {it.policy.name: ChangeCollector(it.source, it.reader) for it in followed}
        self._lost: dict[str, StreamLostError] = {}

    def read(self) -> dict[str, ChangeSet]:
        """Returns the changes of each policy. Policies whose collections were dropped or renamed are left
        out, because the stream cannot be followed beyond that.

        Raises StreamLostError if no policy can be followed any further, StreamUnavailableError, and
        BucketwiseError if the stream does not answer.
        """
        # Before the stream is opened: then its first reply mostly contains the mark.
        end, archived = self._end(), list[Document]()
        token = min((it.token for it in self._followed), key=lambda token: token["_data"])
        while True:
            with open_stream(self._database, self._changes(archived), token) as stream:
                is_read = self._take_all(self._events(stream, end))
                assert stream.resume_token is not None
                token = stream.resume_token
            if is_read:
                collectors = self._collectors.items()
                return {name: it.changed(token) for name, it in collectors if name not in self._lost}
            archived = self._archived_from(token, end)

    def _end(self) -> StopPoint:
        if self._leaves_mark:
            return StopPoint(mark=progress.leave_mark(self._database, self._policies))
        return StopPoint(time=self._database.client.admin.command("ping").get("operationTime"))

    def _take_all(self, events: Iterator[Document]) -> bool:
        """Adds events to their policies. Returns whether it read to the end; it stops early if most
        events seem to be deletes of archive runs."""
        dropped = 0
        for event in events:
            name = event["ns"]["coll"]
            is_receipt = name == self._receipts
            followed = self._by_collection[event["collection"] if is_receipt else name]
            if followed.has_read(event):
                continue
            collector = self._collectors[followed.policy.name]
            if is_receipt:
                dropped += collector.drop(event)
                if dropped >= MANY_DROPPED:
                    return False
            elif event["operationType"] in _CHANGES:
                collector.add(event)
            else:
                self._drop_policy(
                    followed.policy, f"the collection {name} met with a {event['operationType']}"
                )
        return True

    def _drop_policy(self, policy: Policy, reason: str) -> None:
        self._lost[policy.name] = StreamLostError(reason)
        if len(self._lost) == len(self._followed):
            raise self._lost[policy.name]

    def _archived_from(self, token: Token, end: StopPoint) -> list[Document]:
        """Returns the next transactions of archive runs from the token on, as what their events match."""
        names = ("operationType", "ns.coll", "clusterTime", "lsid.id", "txnNumber")
        fields = {**dict.fromkeys(names, 1), "mark": "$fullDocument.mark"}
        pipeline: list[Document] = [{"$match": {"$or": self._own_events}}, {"$project": fields}]
        numbers: dict[Any, list[int]] = {}
        with open_stream(self._database, pipeline, token) as stream:
            for event in islice(self._events(stream, end), READ_AHEAD):
                if (transaction := transaction_of(event)) is not None:
                    numbers.setdefault(transaction.session, []).append(transaction.number)
        return [{"lsid.id": session, "txnNumber": {"$in": its}} for session, its in numbers.items()]

    def _events(self, stream: ChangeStream[Document], end: StopPoint) -> Iterator[Document]:
        """Yields the events up to the mark, which was written after all that is to be read, and so comes
        last."""
        waits = 0
        while stream.alive and waits < _MAX_WAITS:
            self._check()
            event = read_step(stream.try_next, is_resumed=True)
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
        if waits < _MAX_WAITS:
            raise StreamLostError("the database was dropped")
        raise BucketwiseError(
            f"policy {self._policies[0].name}: the change stream has not reported a write within "
            f"{_MAX_WAITS * _WAIT_MS // 1000} s: can a majority of the replica set be reached? It is safe "
            'to run again; rollup.late_data = "scan" works without the stream'
        )

    @property
    def _own_events(self) -> list[Document]:
        """Matches the receipts of deletes, and the marks. A read begins at one, and has to find it: also
        where it was of more policies."""
        collections = [it.collection for it in self._policies]
        receipt = {"fullDocument.kind": "delete", "fullDocument.collection": {"$in": collections}}
        marks = [progress.mark_id([]), *(progress.mark_id([it]) for it in self._policies)]
        mark = {"ns.coll": progress.COLLECTION, "documentKey._id": {"$in": marks}}
        return [{"ns.coll": self._receipts, **receipt}, mark]

    def _changes(self, archived: list[Document]) -> list[Document]:
        """Returns the pipeline of all that may tell of a change. `archived`: transactions whose deletes are
        left out."""
        sources = {"ns.coll": {"$in": list(self._by_collection)}}
        pipeline: list[Document] = [{"$match": {"$or": [sources, *self._own_events]}}]
        if archived:
            pipeline.append({"$match": {"$nor": [{"operationType": "delete", **sources, "$or": archived}]}})
        for followed in self._followed:  # a stage each: MongoDB 6.0 refuses several of these in one $nor
            if followed.rolled_up_to is not None:
                pipeline.append({"$match": {"$nor": [followed.reader.new_readings(followed.rolled_up_to)]}})
        return [*pipeline, {"$project": projection([followed.reader for followed in self._followed])}]


def open_stream(
    database: Database[Document], pipeline: list[Document], token: Token | None
) -> ChangeStream[Document]:
    """Returns the stream after a token; None: from now on. Raises StreamUnavailableError and
    StreamLostError."""

    def watch() -> ChangeStream[Document]:
        return database.watch(
            pipeline,
            start_after=token,
            full_document_before_change="whenAvailable",
            max_await_time_ms=_WAIT_MS,
            batch_size=REPLY,
        )

    return read_step(watch, is_resumed=token is not None)


def read_step(step: Callable[[], T], *, is_resumed: bool) -> T:
    """Runs one operation on a stream, and translates its errors."""
    try:
        return step()
    except OperationFailure as error:
        if error.code in _UNAVAILABLE:
            raise StreamUnavailableError(_UNAVAILABLE[error.code]) from error
        if not is_resumed:
            raise
        # The oplog has rolled over, an event is too large …: the text of the error says so, and reading
        # from a new stream shows whether that was it.
        raise StreamLostError((error.details or {}).get("errmsg", str(error))) from error


#: A policy that is so much further behind than the one in front reads the stream by itself: it would cost
#: the others a long read.
MOST_BEHIND_S = 86_400


@dataclass(frozen=True)
class _Pending:
    """A policy's changes since it was rolled up, which nobody has taken yet."""

    loaded: Progress
    followed: FollowedPolicy
    changed: ChangeSet | None = None


class SharedChanges:
    """The changes of the policies that can share a read: they follow the change stream, have been rolled up,
    and have no collection in common with another one.

    It only saves reading. A policy whose changes it does not know, or that was rolled up by somebody else in
    the meantime, reads for itself; and so do all where the read fails.
    """

    def __init__(
        self, database: Database[Document], policies: Sequence[Policy], receipts: str, *, leaves_marks: bool
    ) -> None:
        """`receipts` and `leaves_marks`: see `Drain`."""
        self._database = database.with_options(codec_options=TOLERANT)
        self._receipts = receipts
        self._leaves_marks = leaves_marks
        self._unread = list(policies)
        self._pending: dict[str, _Pending] = {}

    def read_on(self, check: Callable[[], None]) -> None:
        """Reads up to now, from where it stopped; nothing where fewer than two policies are left."""
        try:
            self._pending = self._pending or _shareable(self._database, self._unread)
            self._unread = []
            if len(self._pending) > 1:
                self._read(check)
        except (StreamLostError, StreamUnavailableError, BucketwiseError, PyMongoError):
            self._pending = {}  # each of them will meet and report the error in its own turn

    def _read(self, check: Callable[[], None]) -> None:
        followed = [it.followed for it in self._pending.values()]
        drain = Drain(self._database, self._receipts, followed, check, leaves_mark=self._leaves_marks)
        self._pending = {
            name: _extended(self._pending[name], changed) for name, changed in drain.read().items()
        }

    def take(self, policy: Policy, loaded: Progress) -> ChangeSet | None:
        """Returns the changes since `loaded` up to the last read; None if they are not known. Each
        change is returned once."""
        pending = self._pending.pop(policy.name, None)
        return pending.changed if pending is not None and pending.loaded == loaded else None

    def leave_out(self, policy: Policy) -> None:
        """Stops reading for a policy whose turn is over."""
        self._pending.pop(policy.name, None)
        self._unread = [it for it in self._unread if it.name != policy.name]


def _shareable(database: Database[Document], policies: Sequence[Policy]) -> dict[str, _Pending]:
    uses = Counter(name for it in policies for name in it.sources)
    candidates = [it for it in policies if may_stream(it) and all(uses[name] == 1 for name in it.sources)]
    loaded = load_all(database, candidates)
    found = []
    for policy in candidates:
        known = loaded[policy.name]
        if known.bookmark is not None and known.through:
            reached = rolled_up_to(policy, known.through)
            found.append(
                _Pending(known, FollowedPolicy(Source(database, policy), known.bookmark.token, reached))
            )
    newest = max((_seconds(it.followed) for it in found), default=0)
    close_behind = [it for it in found if _seconds(it.followed) >= newest - MOST_BEHIND_S]
    return {it.followed.policy.name: it for it in close_behind}


def _seconds(followed: FollowedPolicy) -> int:
    """Returns the time of a resume token: the seconds of the cluster time that its data begin with."""
    return int(str(followed.token["_data"])[2:10], 16)


def _extended(pending: _Pending, changed: ChangeSet) -> _Pending:
    both = changed if pending.changed is None else pending.changed.then(changed)
    return replace(pending, followed=replace(pending.followed, token=both.token), changed=both)


def collections_of(source: Source) -> dict[str, str]:
    """Returns the collections of the stream that exist, each with what tells it from another of its name."""
    if any(info["type"] != "collection" for info in source.listed):
        raise StreamUnavailableError("views and native time-series collections have none")
    return {info["name"]: str(info["info"]["uuid"]) for info in source.listed}


class Stream:
    """The changes of one policy's source. `receipts` and `leaves_marks`: see `Drain`."""

    def __init__(self, policy: Policy, source: Source, receipts: str, *, leaves_marks: bool = True) -> None:
        self._database = source.collection.database.with_options(codec_options=TOLERANT)
        self.policy = policy
        self.leaves_marks = leaves_marks
        self._source = source
        self._receipts = receipts

    def token_now(self) -> Token:
        """Returns a token from which the stream gives all that happens from here on. Raises
        StreamUnavailableError."""
        pipeline = [{"$match": {"ns.coll": {"$in": self.policy.sources}}}]
        with open_stream(self._database, pipeline, None) as stream:
            while stream.resume_token is None:  # if an event came in just as it was opened
                read_step(stream.try_next, is_resumed=False)
            return stream.resume_token

    def drain(self, token: Token, rolled_up_to: int | None, check: Callable[[], None]) -> ChangeSet:
        """Reads all that has happened up to now. Readings that came in at or after `rolled_up_to`
        (milliseconds) are left out.

        Raises StreamLostError, StreamUnavailableError, and BucketwiseError where the stream stays silent."""
        followed = FollowedPolicy(self._source, token, rolled_up_to)
        drain = Drain(self._database, self._receipts, [followed], check, leaves_mark=self.leaves_marks)
        return drain.read()[self.policy.name]
