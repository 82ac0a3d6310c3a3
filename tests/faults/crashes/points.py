"""Crash points: hooks in a process of the command line, which name all it does and end it at a given point.

What is hooked are the edges of the process: the messages of a MongoDB connection, the requests of an S3
client, the operations on files below the store; and a few functions that work for long without them. Each
has a label, as `mongo update bucketwise_lease guard`; `tests.faults.crashes.steps` gives names to them.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeVar

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

from bucketwise.jobs.core.connect import APPLICATION
from tests.jobs.altered import alter

Document = dict[str, Any]
Moment = Literal["before", "after", "lost", "goes on"]
T = TypeVar("T")
_CODEC: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_IGNORED = {"hello", "ismaster", "isMaster", "endSessions", "killCursors", "ping", "collStats"}
#: What is done to the files of a store, by the function of `os` that does it.
_FILE_OPERATIONS = {
    "mkdir": "make folder",
    "replace": "place",
    "link": "place",
    "unlink": "remove",
    "rmdir": "remove folder",
}
#: Transactions, by the first of these that they hold.
_PURPOSES = {
    "update bucketwise_receipts owner": "claim",
    "update bucketwise_receipts ended": "end of a commit",
    "update bucketwise_receipts expired": "end of buckets",
    "update bucketwise_receipts tombstone": "tombstones",
    "update bucketwise_receipts lifted": "lifted tombstones",
    "delete bucketwise_receipts tombstone": "end of a day",
    "update bucketwise_receipts replaced": "exchange",
    "delete it ": "delete",
    "insert it ": "restore",
    "update bucketwise_receipts copied": "copy",
    "update bucketwise_receipts checkpoint": "checkpoint",
    "update bucketwise_receipts moved": "move of receipts",
    "insert it_archive_versions ": "copy of versions",
    "delete it_archive ": "erasure from the archive",
    "update bucketwise_receipts collections": "heads of collections",
    "update bucketwise_receipts pull": "merged windows followed",
    "update bucketwise_receipts live": "receipt",
    "update it_hourly ": "hourly summaries",
    "update it_daily ": "daily summaries",
    "delete it_hourly ": "expired summaries",
    "delete it_daily ": "erased summaries",
    "insert bucketwise_holds ": "hold",
    "update bucketwise_receipts held": "held commits",
    "delete bucketwise_pins ": "unpin",
    "update bucketwise_receipts lake": "note of the table",
    "delete it_archive_versions ": "erasure of versions",
    "find bucketwise_holds ": "question for holds",
    "delete bucketwise_receipts ": "erasure ended",
    "insert bucketwise_receipts ": "erasure begun",
    "update bucketwise_receipts erased": "erased files counted",
    "update bucketwise_runs ": "entries joined",
    "find bucketwise_runs ": "entries compared",
    "update bucketwise_receipts classes": "schedule of moves",
    "update bucketwise_receipts stored": "move of parts",
    "update bucketwise_progress summaries": "tombstones of summaries",
    "update bucketwise_progress ended": "noted end",
    "update bucketwise_receipts heads": "heads",
}
#: Work between the edges: module, attribute, label.
_FUNCTIONS = (
    ("bucketwise.config.load", "load", "read config"),
    ("bucketwise.buckets.decoding.decode", "decode", "sort into what goes"),
    ("bucketwise.archivers.format.writing", "pack", "encode"),
    ("bucketwise.archivers.format.parquet", "write_part", "make part"),
    ("bucketwise.archivers.format.parquet", "write_buckets", "make buckets file"),
    ("bucketwise.archivers.format.archive", "unpack", "rebuild documents"),
    ("bucketwise.archivers.format.archive", "unpacks_to", "rebuild documents"),
    ("bucketwise.rollups.summaries.documents", "summary", "make summary"),
    ("bucketwise.jobs.core.execution", "emit", "report"),
)


class Logged(NamedTuple):
    """A line of a log. `commit`: the one whose file it is about. `is_copy`: a thread that copies did it."""

    mark: str  # ">" or "<"
    label: str
    commit: str | None
    is_copy: bool


#: Of the keys of a commit's files.
_COMMIT = re.compile(r"_(f\d{6}_[0-9a-f]{16})")


class Points:
    """Writes each operation to a log as it begins (`>`) and has taken effect (`<`), and dies where told to.

    `lost`: the reply of the step is lost, then the process dies at the next step that it reaches.
    `goes on`: the replies of `times` such steps are lost, and it has to come to terms with that.
    """

    def __init__(
        self, log: str, at: str | None, nth: int, moment: Moment, times: int, number: int | None
    ) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._at, self._nth, self._moment, self._times, self._number = at, nth, moment, times, number
        self._met = 0
        self._all = itertools.count(1)
        self._doomed = False
        self._lock = threading.RLock()
        self._own = threading.local()
        self.meddling: dict[str, Callable[[], None]] = {}  # once, before the first step of that label

    @property
    def watches(self) -> bool:
        """Not while a hook does something itself."""
        return not getattr(self._own, "hand", False)

    def _write(self, mark: str, label: str, key: str) -> None:
        found = _COMMIT.search(key)
        who = "copier" if threading.current_thread().name.startswith("bucketwise-copier") else ""
        os.write(self._log, f"{mark} {label}\t{found[1] if found else ''}\t{who}\n".encode())

    def begin(self, label: str, key: str = "") -> None:
        with self._lock:
            if label in self.meddling:
                self._own.hand = True
                self.meddling.pop(label)()
                self._own.hand = False
            self._write(">", label, key)
            is_here = self._moment == "before" and self._is_point(label)
            if is_here or self._doomed or next(self._all) == self._number:
                _die()

    def end(self, label: str, key: str = "") -> bool:
        """Whether its reply is lost."""
        with self._lock:
            self._write("<", label, key)
            if self._moment == "before" or not self._is_point(label):
                return False
            if self._moment == "after":
                _die()
            self._doomed = self._moment == "lost"
            return True

    def _is_point(self, label: str) -> bool:
        self._met += label == self._at
        return label == self._at and self._nth <= self._met < self._nth + self._times

    def step(self, label: str, do: Callable[[], T], key: str = "") -> tuple[T, bool]:
        self.begin(label, key)
        result = do()
        return result, self.end(label, key)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # until it arrives


def install(
    log: str,
    *,
    folder: str,
    at: str | None = None,
    nth: int = 1,
    moment: Moment = "before",
    times: int = 1,
    number: int | None = None,
    change: tuple[str, str, str, str] | None = None,
    renews: bool = False,
    abandons: bool = False,
    ahead: int = 0,
    registers: bool = False,
    in_cloud: bool = False,
) -> None:
    """`at`: the label of the step; `number`: die at the so-manieth operation instead, whatever it is.

    `folder` holds the store, and what the process writes aside. `change`: at the first step of a label, a
    writer elsewhere puts a document (hexadecimal BSON) into a collection: (label, uri, database, BSON).
    `renews`: the lease is renewed at once. `abandons`: unfinished writes are cleaned up at any age.
    `ahead`: so many copies are made before the one in hand is committed; with none, one order is kept.
    `registers`: there is an Iceberg table, which keeps few snapshots. `in_cloud`: the store is Google's.
    """
    points = Points(log, at, nth, moment, times, number)
    if change is not None:
        label, uri, database, document = change
        points.meddling[label] = lambda: _change(uri, database, bytes.fromhex(document))
    _make_small()
    alter({"bucketwise.archivers.moving.copies.MAX_PENDING": ahead})
    _hook_functions(points)
    _hook_edges(points, folder, in_cloud)
    if renews:
        _renew_at_once()
    if registers:
        alter({"bucketwise.archivers.lake.catalog.SNAPSHOTS": 2})
    if abandons:
        alter({"bucketwise.jobs.core.turn.ABANDONED": timedelta(days=-1)})


def watch(log: str, folder: str, *, in_cloud: bool = False) -> None:
    """Writes each operation at an edge of the process to a log, and does no more."""
    _hook_edges(Points(log, None, 1, "before", 1, None), folder, in_cloud)


def _hook_edges(points: Points, folder: str, in_cloud: bool) -> None:
    tempfile.tempdir = str(Path(folder, "spool"))
    Path(folder, "spool").mkdir(exist_ok=True)
    _hook_mongo(points)
    _hook_s3(points)
    _hook_files(points, {Path(folder, "store"): "file", Path(folder, "b"): "copy"})
    if in_cloud:
        _hook_cloud(points)


def _change(uri: str, database: str, document: bytes) -> None:
    from bson.raw_bson import RawBSONDocument
    from pymongo import MongoClient

    with MongoClient[Document](uri, w="majority") as client:
        raw = RawBSONDocument(document)
        client[database]["it"].replace_one({"_id": raw["_id"]}, raw)


def _make_small() -> None:
    """Few readings make several commits and batches of deletes; few events several replies of the stream."""
    alter(
        {
            "bucketwise.archivers.moving.sweep.MAX_READINGS": 1,
            "bucketwise.archivers.moving.sweep.Filling.cut": lambda _self, batch: [
                batch
            ],  # a commit of each reply
            "bucketwise.rollups.rolling.rollup.MANY_WRITTEN": 1,
            "bucketwise.archivers.writes.MAX_BUCKETS": 5,
            "bucketwise.archivers.moving.online.MAX_BUCKETS": 5,
            "bucketwise.jobs.undelete.AT_ONCE": 1,
            "bucketwise.buckets.writing.AT_ONCE": 40,
            "bucketwise.rollups.changes.drain.REPLY": 1,
            "bucketwise.rollups.changes.drain.MANY_DROPPED": 3,
            "bucketwise.rollups.changes.drain.READ_AHEAD": 2,
            "botocore.endpoint.time": SimpleNamespace(sleep=lambda _seconds: None),  # between tries
        }
    )


def _renew_at_once() -> None:
    lease = import_module("bucketwise.jobs.core.lease").Lease
    keep = lease._keep

    def renew_and_keep(self: Any) -> None:
        self._renew_once()
        keep(self)

    alter({"bucketwise.jobs.core.lease.Lease._keep": renew_and_keep})


def _hook_functions(points: Points) -> None:
    for module, name, label in _FUNCTIONS:
        _wrap(points, import_module(module), name, label)


def _wrap(points: Points, owner: Any, name: str, label: str) -> None:
    do = getattr(owner, name)

    def hooked(*given: Any, **named: Any) -> Any:
        return points.step(label, lambda: do(*given, **named))[0]

    setattr(owner, name, hooked)


# MongoDB


def _hook_mongo(points: Points) -> None:
    from pymongo.synchronous.pool import Connection

    send, receive = Connection.send_message, Connection.receive_message
    waiting: dict[int, tuple[str, str]] = {}  # what was sent last, by connection
    commands = Commands()

    def hooked_send(self: Any, message: bytes, max_doc_size: int) -> None:
        is_ours = points.watches and self.opts.appname == APPLICATION
        label = commands.label(message) if is_ours else None
        waiting.pop(id(self), None)
        if label is not None:
            points.begin(*label)
            waiting[id(self)] = label
        send(self, message, max_doc_size)

    def hooked_receive(self: Any, request_id: int | None) -> Any:
        reply = receive(self, request_id)
        label = waiting.pop(id(self), None)
        if label is not None and points.end(*label):
            self._raise_connection_failure(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return reply

    Connection.send_message = hooked_send  # type: ignore[method-assign]
    Connection.receive_message = hooked_receive  # type: ignore[method-assign]


class Commands:
    """Gives commands on the wire their labels. Knows what transactions have written so far, and the changes
    that the journal of a store's copies has."""

    def __init__(self) -> None:
        self._transactions: dict[bytes, list[str]] = {}
        self._changes: dict[str, str] = {}  # name -> the first of its keys

    def label(self, message: bytes) -> tuple[str, str] | None:
        """Returns the label of a command, and the key that it is about, or ""; None where it has none."""
        if struct.unpack_from("<i", message, 12)[0] != 2013:
            return None  # the first greeting of a connection
        command = _command(message)
        name = next(iter(command))
        if name in _IGNORED:
            return None
        session = b""
        if command.get("autocommit") is False:
            session = bytes(command["lsid"]["id"]) + str(command["txnNumber"]).encode()
        if name in ("commitTransaction", "abortTransaction"):
            purpose = _purpose(self._transactions.get(session, []))
            return f"mongo {name.removesuffix('Transaction')} {purpose}", ""
        collection = command["collection"] if name == "getMore" else command[name]
        collection = str(collection).replace("$cmd.aggregate", "1")  # 1: of the database
        key = self._changed(command) if collection == "bucketwise_receipts" and not session else None
        detail = (
            _detail(collection, command) if key is None else f"change of {kind_of(key)}" if key else "changes"
        )
        words = [name, "stream" if collection == "1" else collection, detail]
        if session:
            self._transactions.setdefault(session, []).append(" ".join(words))
        words += ["in transaction" if session else ""]
        return " ".join(word for word in ("mongo", *words) if word), key or ""

    def _changed(self, command: Document) -> str | None:
        """Returns the first key of a change that is written down or crossed off; "" where another process has
        written it down; None where it is about none."""
        written = [it for it in command.get("documents", ()) if it.get("kind") == "change"]
        self._changes |= {it["_id"]["name"]: it["keys"][0] for it in written}
        named = command["deletes"][0]["q"].get("_id") if "deletes" in command else None
        names = [it["name"] for it in named["$in"]] if isinstance(named, dict) and "$in" in named else []
        names = [it["_id"]["name"] for it in written] or [it for it in names if it.startswith("change-")]
        return self._changes.get(names[0], "") if names else None


def _purpose(commands: list[str]) -> str:
    """What a transaction is for, by what it wrote."""
    return next((purpose for start, purpose in _PURPOSES.items() if any(map(start.__eq__, commands))), "?")


def _command(message: bytes) -> Document:
    """An OP_MSG: its body, and its sequences of documents as lists."""
    found: Document = {}
    at = 20
    while at < len(message):
        kind, size = message[at], struct.unpack_from("<i", message, at + 1)[0]
        piece = message[at + 1 : at + 1 + size]
        if kind == 0:
            found = {**bson.decode(piece, _CODEC), **found}  # its first key is the command
        else:
            name, _, documents = piece[4:].partition(b"\0")
            found[name.decode()] = bson.decode_all(documents, _CODEC)
        at += 1 + size
    return found


def _detail(collection: str, command: Document) -> str:
    """What tells the writes to our own books apart."""
    statements = command.get("updates") or [{}]
    change = statements[0].get("u", {})
    if collection == "bucketwise_lease":
        if "guards" in str(change):
            return "guard"
        if "findAndModify" in command:
            change = str(command["update"])
            return "take" if "'free'" in change else "renew" if "expires_at" in change else "pause"
        if "$setOnInsert" in change:
            return "made"
        return {True: "release", False: "resume"}["holder" in str(change)] if change else ""
    if collection == "bucketwise_runs" and change == {"$set": {"outcome": "died"}}:
        return "died"
    if collection == "bucketwise_runs" and change == {"$unset": {"open": ""}}:
        return "closed"
    if collection == "bucketwise_receipts" and isinstance(change, list):
        return "next moves"
    if collection == "bucketwise_receipts" and change:
        state = change.get("$set", {}).get("state", "")
        kind = change.get("$set", {}).get("kind")
        if "checkpoint" in change.get("$set", {}):
            return "checkpoint"
        if kind in ("owner", "store", "begun", "copy", "classes"):
            return str(kind)
        if "lineage.done" in change.get("$set", {}):
            return "lineage"
        if kind == "last":  # of the receipts
            return "deleted"
        if "$setOnInsert" in change or kind in ("heads", "collections", "dropped", "moved", "lake"):
            return kind or "policy"
        if "lake" in {**change.get("$set", {}), **change.get("$unset", {})}:
            return "in lake"
        if "replaced_at" in change.get("$unset", {}) and "$set" not in change:
            return "due"
        if change.get("kind") == "copies":
            return "known"
        if change.get("$unset", {}).keys() & {"known", "ids"} and "$set" not in change:
            return "known no more"
        if "live" in change.get("$set", {}):
            return "live"
        if "damaged" in change.get("$addToSet", {}):
            return "damaged"
        if any(name.startswith("counts.") for name in change.get("$inc", {})):
            return "erased"
        if "compacted" in change.get("$set", {}) and not state:
            return "compacted"
        if "tombstone" in change.get("$set", {}):
            return "lifted" if "lifted" in change["$set"]["tombstone"] else "tombstone"
        if "ended" in change.get("$set", {}):
            return "ended"
        if "stored" in change.get("$set", {}):
            return "stored"
        if "next_move" in {**change.get("$set", {}), **change.get("$unset", {})} and not state:
            return "next move"
        if "expired" in change.get("$inc", {}):
            return "expired"
        return str(state or ("pull" if "$pullAll" in change else "deleted"))
    if collection == "bucketwise_receipts" and "deletes" in command:
        name = command["deletes"][0]["q"].get("_id", {}).get("name")
        return "tombstone" if str(name).startswith("tombstone-") else ""
    if collection == "bucketwise_remodel" and change:
        if "task" in change or "target" in change["$set"]:
            return "begun" if "task" in change else "made"
        return "done" if change["$set"]["done"] else "reached"
    if collection == "bucketwise_progress" and change:
        about = statements[0]["q"]["_id"]
        return str(next(iter(about))) if isinstance(about, dict) else "through"
    return ""


# Stores


def kind_of(key: str) -> str:
    """Of an object: "data", "buckets", "manifests", …"""
    parts = key.strip("/").split("/")
    for kind in (
        ".tmp",
        ".bucketwise-probe",
        "data",
        "buckets",
        "manifests",
        "holds",
        "checkpoints",
        "receipts",
        "superseded",
        "versions",
        "iceberg",
    ):
        if kind in parts:
            return kind
    if "bucketwise.json" in key:
        return "marker"
    if "keyring.json" in key:
        return "keyring"
    return "lineage" if "lineage" in parts else "owner" if "owner.json" in key else "other"


def _hook_s3(points: Points) -> None:
    from urllib.parse import unquote, urlsplit

    from botocore.endpoint import Endpoint
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

    answer = Endpoint._do_get_response
    errors = itertools.cycle((ConnectionClosedError, ReadTimeoutError))

    def hooked(self: Any, request: Any, operation: Any, context: Any) -> Any:
        url = urlsplit(request.url)
        place = unquote(url.path)
        if operation.name == "DeleteObjects":  # its keys are in the body
            place = _first_key(request.body)
        elif operation.name.startswith("List"):
            place = unquote(url.query)
        label = f"s3 {operation.name} {kind_of(place.replace('=', '/').replace('&', '/'))}"
        reply, is_lost = points.step(label, lambda: answer(self, request, operation, context), place)
        return (None, next(errors)(endpoint_url=request.url)) if is_lost else reply

    Endpoint._do_get_response = hooked


def _first_key(body: Any) -> str:
    text = body if isinstance(body, bytes) else str(body).encode()
    return text.partition(b"<Key>")[2].partition(b"</Key>")[0].decode()


def _hook_cloud(points: Points) -> None:
    """The requests of Google's and Azure's client, and the names that they begin with."""
    clouds: Any = import_module("bucketwise.archivers.stores.clouds")
    client, without = clouds.obstore, clouds.time

    def hooked(name: str, what: str) -> Any:
        do = getattr(client, name)

        def ask(store: Any, place: Any, *given: Any, **named: Any) -> Any:
            key = place if isinstance(place, str) else next(iter(place or [""]))
            label = f"cloud {what} {kind_of(key)}"
            reply, is_lost = points.step(label, lambda: do(store, place, *given, **named), key)
            if is_lost:
                raise OSError("the connection was closed\n\nDebug source: kind: Request,")
            return reply

        return ask

    methods = {"get": "read", "head": "look", "put": "put", "list": "list", "delete": "delete"}
    clouds.obstore = SimpleNamespace(**{name: hooked(name, what) for name, what in methods.items()})
    clouds.time = SimpleNamespace(**{**vars(without), "sleep": lambda _seconds: None})


def _hook_files(points: Points, roots: Mapping[Path, str]) -> None:
    """`roots`: the directories that are stores, and how labels of what is done there begin."""
    for name, what in _FILE_OPERATIONS.items():
        setattr(os, name, _hooked_file(points, roots, getattr(os, name), what))
    setattr(os, "fsync", lambda _handle: None)  # noqa: B010  # the machine goes on
    store = import_module("bucketwise.archivers.stores.file").FileStore
    listed = store.list
    # At once, as it does itself.
    store.list = lambda self, prefix="", after="": list(listed(self, prefix, after))
    methods = {"get_bytes": "read", "head": "look at", "put_bytes": "put", "list": "list"}
    for name, what in methods.items():
        setattr(store, name, _hooked_method(points, roots, getattr(store, name), what))


def _hooked_file(points: Points, roots: Mapping[Path, str], do: Any, what: str) -> Any:
    def hooked(path: Any, *given: Any, **named: Any) -> Any:
        found = [
            (str(it), root)
            for it in (path, *given)
            for root in map(str, roots)
            if str(it).startswith(f"{root}/") or str(it) == root
        ]
        if not found or not points.watches:
            return do(path, *given, **named)
        place, root = found[-1]
        label = f"{roots[Path(root)]} {what} {kind_of(place.removeprefix(root))}"
        try:
            result, is_lost = points.step(label, lambda: do(path, *given, **named), place)
        except FileNotFoundError:
            if what == "remove":  # somebody else has
                points.end(label, place)
            raise
        if is_lost:
            raise OSError(errno.EIO, "Input/output error", place)
        return result

    return hooked


def _hooked_method(points: Points, roots: Mapping[Path, str], do: Any, what: str) -> Any:
    """A call of the store's: its reply is lost where it gives an error of the file system instead."""

    def hooked(self: Any, key: str = "", *given: Any, **named: Any) -> Any:
        label = f"{roots.get(self._root, 'file')} {what} {kind_of(key)}"
        result, is_lost = points.step(label, lambda: do(self, key, *given, **named), str(key))
        if is_lost:
            with self._errors(what, key):
                raise OSError(errno.EIO, "Input/output error", key)
        return result

    return hooked


def read_log(log: Path) -> Iterator[Logged]:
    """Yields the operations that have begun or taken effect; none where the process came to none."""
    for line in log.read_text().splitlines() if log.exists() else ():
        mark, _, rest = line.partition(" ")
        label, commit, who = rest.split("\t")
        yield Logged(mark, label, commit or None, who == "copier")


def counts(log: Path) -> Counter[str]:
    """How often each operation took effect."""
    return Counter(it.label for it in read_log(log) if it.mark == "<")
