"""Finds raw documents, faster than `find_raw_batches`.

The driver makes an object of every document of a reply, and then joins their bytes again. Here the documents
are cut out of a reply before the driver decodes the rest of it: the cursor's number, errors, the cluster's
time. So sessions, retries, read concerns and the end of a cursor stay the driver's. A version of the driver
that replies in another shape, or never calls `_unpack_response`, gives bytes as before; these are read too.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collation import Collation
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor

from bucketwise.buckets.bson.identities import are_object_ids
from bucketwise.buckets.bson.prefetch import prefetch
from bucketwise.buckets.bson.raw import LEAST, LOSSLESS, Docs
from bucketwise.buckets.bson.rows import Rows
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, extent

Document = dict[str, Any]
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


def find_raw(  # noqa: PLR0913  (the arguments of pymongo's `find`)
    collection: Collection[Any],
    query: Mapping[str, Any],
    session: ClientSession | None = None,
    fields: Document | None = None,
    sort: list[tuple[str, int]] | None = None,
    limit: int = 0,
    reads_ahead: bool = True,
) -> Iterator[Docs]:
    """Yields the documents that meet the query, in pieces of at most MOST_BYTES. Where it `reads_ahead`, and
    without a session, the next replies are fetched while one is worked on. Texts are compared by their bytes;
    in a query for `_id`s as the collection does, so that their index serves."""
    first, reads_ahead = min(FIRST_DOCUMENTS, MOST_DOCUMENTS), reads_ahead and session is None
    collation = None if "_id" in query else SIMPLE
    cursor = _Cursor(
        collection,
        query,
        fields,
        session=session,
        sort=sort,
        limit=limit,
        batch_size=first,
        collation=collation,
    )
    try:
        for reply in prefetch(cursor, lambda: reads_ahead and cursor.alive, _size, READ_AHEAD_BYTES):
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
