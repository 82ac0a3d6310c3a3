"""Finds raw documents, faster than `find_raw_batches`; fetches the next ones meanwhile; and asks what
collections are to the server.

The driver makes an object of every document of a reply, and then joins their bytes again. Here the documents
are cut out of a reply before the driver decodes the rest of it: the cursor's number, errors, the cluster's
time. So sessions, retries, read concerns and the end of a cursor stay the driver's. A version of the driver
that replies in another shape, or never calls `_unpack_response`, gives bytes as before; these are read too.
"""

from __future__ import annotations

import contextvars
import copy
import struct
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar, cast
from uuid import UUID

import numpy as np
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collation import Collation
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.topology_description import TOPOLOGY_TYPE

from bucketwise.buckets.bson.raw import LEAST, LOSSLESS, Docs, Rows, are_object_ids
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, extent
from bucketwise.buckets.phases import waiting

T = TypeVar("T")
#: Seconds: the server closes the cursors of a session that was idle for half an hour.
IDLE = 600.0


def prefetch(
    items: Iterator[T],
    may_continue: Callable[[], bool],
    size: Callable[[T], int] = lambda _: 1,
    limit: int = 1,
) -> Generator[T, None, None]:
    """Yields the same items in the same order, and fetches the next ones meanwhile.

    Once `may_continue` is true after an item, a thread fetches those after it while the caller works, until
    those that wait have a size of `limit`. Where the caller takes long, it now and then fetches one more, so
    that a cursor stays open. An error is raised in place of the item that it kept from coming. Closing this
    iterator waits for the fetch under way; nothing is read after that."""
    reader: _Reader[T] | None = None
    try:
        while (it := next(items, None)) is not None:
            if may_continue():
                reader = _Reader(items, size, limit)
                reader.begin()
            yield it
            del it
            if reader is not None and reader.ident is not None:
                yield from reader.read()
    finally:
        if reader is not None:
            reader.close()


class _Reader(threading.Thread, Generic[T]):
    """A daemon: a process that is told to end does not wait for the server.

    The two threads speak by queues alone. An exception that a signal raises in one leaves no lock held that
    the other waits for."""

    def __init__(self, items: Iterator[T], size: Callable[[T], int], limit: int) -> None:
        super().__init__(name="bucketwise-ahead", daemon=True)
        self._items, self._size, self._limit = items, size, limit
        self._context = contextvars.copy_context()  # the driver keeps time limits there
        self._waiting: SimpleQueue[tuple[int, T] | None] = SimpleQueue()  # with their sizes; None: the end
        self._taken: SimpleQueue[int | None] = SimpleQueue()  # sizes; None: no more is wanted
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Starts, unless the machine has no thread left."""
        before = sys.exception()
        try:
            self.start()
        except RuntimeError as error:
            if error.__context__ is before:
                return
            # What a signal raised met it with a lock in its hand, which was then let go twice. The thread may
            # be at work: who took it for none, and read on by himself, would miss what it reads.
            raise cast(BaseException, error.__context__) from None

    def run(self) -> None:
        try:
            self._fetch()
        except BaseException as error:  # noqa: BLE001 - it is raised by who reads
            self._error = error
        self._waiting.put(None)

    def _fetch(self) -> None:
        held = 0
        while True:
            while held >= self._limit or not self._taken.empty():
                try:
                    taken = self._taken.get(timeout=IDLE)
                except Empty:
                    break
                if taken is None:
                    return
                held -= taken
            if (it := self._context.run(next, self._items, None)) is None:
                return
            size = self._size(it)
            held += size
            self._waiting.put((size, it))
            del it

    def read(self) -> Iterator[T]:
        while (sized := self._waiting.get()) is not None:
            self._taken.put(sized[0])
            yield sized[1]
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._taken.put(None)
        if self.is_alive():
            self.join()


Document = dict[str, Any]


def uuid_of(listed: Mapping[str, Any]) -> str | None:
    """Returns the UUID of a collection as people write it, from what MongoDB lists of it; None for a view."""
    found = listed["info"].get("uuid")
    return None if found is None else str(found if isinstance(found, UUID) else UUID(bytes=bytes(found)))


def is_sharded(database: Database[Any]) -> bool:
    """Returns whether the database is reached through a mongos. Sends no command if the client has sent
    one before."""
    found = database.client.topology_description.topology_type
    return found in (TOPOLOGY_TYPE.Sharded, TOPOLOGY_TYPE.LoadBalanced)


def shard_key(database: Database[Document], collection: str) -> Document | None:
    """Returns the shard key of a collection; None if it is not sharded, or if the user may not ask."""
    try:
        found = database.client["config"]["collections"].find_one({"_id": f"{database.name}.{collection}"})
    except OperationFailure:
        return None
    return None if found is None or found.get("unsplittable") else dict(found["key"])


def keeps_ids_unique(key: Document) -> bool:
    """Returns whether documents with one `_id` always lie on one shard, which lets in one of them: where all
    fields of the shard key are of the `_id`."""
    return all(path.split(".")[0] == "_id" for path in key)


#: Documents of a reply, at most; and of the first one, which tells how large they are.
MOST_DOCUMENTS, FIRST_DOCUMENTS = 1_000_000, 1000
#: Bytes of a piece, if it is more than one document, and about those of a reply, which the server would close
#: at 16 MB. Work on it takes many times that.
MOST_BYTES = 1 << 22
#: Replies are fetched ahead while those that wait have fewer bytes.
READ_AHEAD_BYTES = 2 * MOST_BYTES
#: Compares texts by their bytes, whatever the collection does.
SIMPLE = Collation("simple")
_BATCHES = (b"firstBatch", b"nextBatch")
_NAME_BYTES, _MAX_DIGITS = 64, 8
_LENGTH = struct.Struct("<i")
_EMPTY = _LENGTH.pack(LEAST) + b"\0"


class First(NamedTuple):
    """The first documents of a query, at `most` so many: in an order, or as MongoDB finds them. `collation`:
    by which texts are compared."""

    most: int
    order: list[tuple[str, int]] | None = None
    collation: Collation | Mapping[str, Any] = SIMPLE


#: All documents of a query, as MongoDB finds them.
ALL = First(0)


def find_raw(
    collection: Collection[Any],
    query: Mapping[str, Any],
    session: ClientSession | None = None,
    fields: Document | None = None,
    first: First = ALL,
    reads_ahead: bool = True,
) -> Iterator[Docs]:
    """Yields the documents that meet the query, or the `first` of them, in pieces of at most MOST_BYTES.
    Where it `reads_ahead`, and without a session, the next replies are fetched while one is worked on. Texts
    are compared by their bytes, unless a collation is named. In a query for `_id`s the server compares as the
    collection does, so that their index serves: `lookup.find_ids` leaves out what it takes for equal."""
    reads_ahead = reads_ahead and session is None
    collation = None if "_id" in query else first.collation
    cursor = _Cursor(
        collection,
        query,
        fields,
        session=session,
        sort=first.order,
        limit=first.most,
        batch_size=min(FIRST_DOCUMENTS, MOST_DOCUMENTS),
        collation=collation,
    )
    try:
        replies = prefetch(cursor, lambda: reads_ahead and cursor.alive, _size, READ_AHEAD_BYTES)
        for reply in waiting("read", replies):
            yield from reply if isinstance(reply, list) else [Docs.split(reply)]
    finally:
        cursor.close()


def _size(reply: list[Docs] | bytes) -> int:
    return len(reply) if isinstance(reply, bytes) else sum(docs.size for docs in reply)


class _Cursor(RawBatchCursor[Any]):
    def _unpack_response(self, response: Any, *args: Any, **options: Any) -> Any:
        try:
            rest, batch, array = _take_out_array(memoryview(response.payload_document))
            pieces = list(_documents(array))
        except (AttributeError, ValueError, struct.error):
            return super()._unpack_response(response, *args, **options)  # an error's reply, mostly
        without_documents = copy.copy(response)
        without_documents.payload_document = rest
        replies: Any = super()._unpack_response(without_documents, *args, **options)
        replies[0]["cursor"][batch] = [pieces] if pieces else []
        if pieces:  # the next reply is asked for with it
            self._batch_size = min(MOST_DOCUMENTS, max(1, MOST_BYTES * sum(map(len, pieces)) // len(array)))
        return replies


def _take_out_array(reply: memoryview) -> tuple[bytes, str, memoryview]:
    """Returns a reply with an empty array in place of its documents, that array's name, and the array itself.
    Raises ValueError where it has none."""
    cursor, _ = _field(reply, 0, (b"cursor",), DOCUMENT)
    start, name = _field(reply, cursor, _BATCHES, ARRAY)
    size = _length(reply, start)
    rest = bytearray(reply[:start]) + _EMPTY + reply[start + size :]
    for outer in (0, cursor):
        _LENGTH.pack_into(rest, outer, _length(reply, outer) - size + len(_EMPTY))
    return bytes(rest), name.decode(), reply[start : start + size]


def _field(data: memoryview, document: int, names: tuple[bytes, ...], kind: int) -> tuple[int, bytes]:
    """Returns where the value of the field with one of these names starts, and which of them it has."""
    position, end = document + 4, document + _length(data, document) - 1
    while position < end:
        name = bytes(data[position + 1 : position + _NAME_BYTES]).partition(b"\0")[0]
        value = position + 1 + len(name) + 1
        if name in names and data[position] == kind:
            return value, name
        position = value + extent(cast(bytes, data), data[position], value)[0]
    raise ValueError("the reply has no such field")


def _length(data: memoryview, at: int) -> int:
    return int(_LENGTH.unpack_from(data, at)[0])


def _documents(array: memoryview) -> Iterator[Docs]:
    """Yields what an array holds, in pieces. Raises ValueError where it holds anything but documents."""
    return _of_one_length(Docs.of_rows(rows)) if (rows := _rows(array)) else _of_any_length(bytes(array))


def _rows(array: memoryview) -> list[Rows] | None:
    """Returns documents of one length as matrices, one for each number of digits in the names of the
    elements; else None. Compares all that tells one element from the next."""
    position, end = 4, len(array) - 1
    matrices: list[Rows] = []
    length = _length(array, position + 3) if position < end else 0
    for digits in range(1, _MAX_DIGITS):
        if position == end:
            return matrices
        head = digits + 2  # type, name, zero
        limit = 10**digits - (10 ** (digits - 1) if digits > 1 else 0)
        count = min((end - position) // (head + length), limit) if length >= LEAST else 0
        rows: Rows = np.ndarray((count, head + length), np.uint8, array, position)
        lengths = np.ascontiguousarray(rows[:, head : head + 4]).view("<i4")
        checks = rows[:, :1] == DOCUMENT, rows[:, 1 : head - 1] != 0, rows[:, head - 1 : head] == 0
        if not count or not all(it.all() for it in (*checks, lengths == length)):
            return None
        matrices.append(rows[:, head:])
        position += count * (head + length)
    return None


def _of_one_length(docs: Docs) -> Iterator[Docs]:
    count = max(1, MOST_BYTES * len(docs) // docs.size)
    for at in range(0, len(docs), count):
        yield docs.slice(at, min(at + count, len(docs)))


def _of_any_length(array: bytes) -> Iterator[Docs]:
    documents: list[bytes] = []
    size, position, end = 0, 4, len(array) - 1
    while position < end:
        start = array.index(0, position + 1) + 1
        stop = start + _LENGTH.unpack_from(array, start)[0]
        if array[position] != DOCUMENT or not start + LEAST <= stop <= end:
            raise ValueError("the array holds something else than documents")
        size += stop - start
        if documents and size > MOST_BYTES:
            yield Docs.of(documents)
            documents, size = [], stop - start
        documents.append(array[start:stop])
        position = stop
    if documents:
        yield Docs.of(documents)


def ids_query(raw_ids: Sequence[bytes]) -> RawBSONDocument:
    """Returns a query for the documents that have these `_id`s, byte for byte. `raw_ids`: as
    `Docs.raw_id` returns them."""
    names = dict.fromkeys(filter(None, raw_ids))
    array = b"".join([b"%c%d\0%b" % (raw[0], place, raw[1:]) for place, raw in enumerate(names)])
    return _query(b"\x04$in\0" + _document(array))


def id_range_query(raw_ids: Sequence[bytes]) -> RawBSONDocument | None:
    """Returns a query for all documents from the least of these `_id`s to the greatest. None if an
    `_id` is not an ObjectId: then others may lie between them."""
    if not raw_ids or not are_object_ids(raw_ids):
        return None
    return _query(b"\x07$gte\0" + min(raw_ids)[1:] + b"\x07$lte\0" + max(raw_ids)[1:])


def _query(condition: bytes) -> RawBSONDocument:
    return RawBSONDocument(_document(b"\x03_id\0" + _document(condition)), LOSSLESS)


def _document(fields: bytes) -> bytes:
    return _LENGTH.pack(len(fields) + 5) + fields + b"\0"
