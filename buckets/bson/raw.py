"""Raw BSON documents, back to back, as the server sent them: a bucket's identity is its bytes."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from typing import Any
from uuid import UUID

import numpy as np
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import (
    ARRAY,
    BINARY,
    CODE,
    DOCUMENT,
    FIXED,
    OBJECT_ID,
    STRING,
    SYMBOL,
    decode_value,
    first_at,
)

#: Bytes of an ObjectId, with its type.
OBJECT_ID_SIZE = 13
_ODD_FACTOR = np.uint64(0x9E3779B97F4A7C15)
#: Where the `_id` comes first: its type lies here in the document, behind the length; its value here; and
#: where that begins with its length, this ends here.
_TYPE, _VALUE, _LENGTH_END = 4, 9, 13
_NAME = np.frombuffer(b"_id\0", np.uint8)
#: Sizes of values by their types; of those that begin with a length: what they have beyond it.
_SIZES, _BEYOND = np.full(256, -1), np.full(256, -1)
_SIZES[list(FIXED)] = list(FIXED.values())
_BEYOND[[STRING, CODE, SYMBOL, BINARY, DOCUMENT, ARRAY]] = [4, 4, 4, 5, 0, 0]


def raw_ids(data: bytes, offsets: NDArray[np.int64]) -> list[bytes]:
    """Returns the type and bytes of each document's `_id`; empty bytes where it has none. Where it comes
    first in all, as in ordinary collections, finds all at once."""
    starts = offsets[:-1]
    sizes = _sizes_of_first(np.frombuffer(data, np.uint8), starts, np.diff(offsets))
    ends = np.where(sizes < 0, offsets[1:], starts + _VALUE + sizes)
    found = zip(starts.tolist(), ends.tolist(), (sizes < 0).tolist(), strict=True)
    return [
        first_at(data[start:end], ("_id",))
        if is_elsewhere
        else data[start + _TYPE : start + _TYPE + 1] + data[start + _VALUE : end]
        for start, end, is_elsewhere in found
    ]


def _sizes_of_first(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the size of each `_id` that comes first, and lies inside its document; else -1."""
    if not len(starts):
        return lengths
    heads = data[np.minimum(starts[:, None] + np.arange(_TYPE, _LENGTH_END), len(data) - 1)]
    kinds, length_fields = heads[:, 0], np.ascontiguousarray(heads[:, _VALUE - _TYPE :]).view("<i4")[:, 0]
    has_length = (_BEYOND[kinds] >= 0) & (length_fields >= 0) & (lengths > _LENGTH_END)
    sizes = np.where(has_length, length_fields + _BEYOND[kinds], _SIZES[kinds])
    is_named = (heads[:, 1 : _VALUE - _TYPE] == _NAME).all(axis=1)
    return np.where(is_named & (_VALUE + sizes < lengths), sizes, -1)


def are_object_ids(raw_ids: Sequence[bytes]) -> bool:
    """Returns whether all of these `_id`s are ObjectIds."""
    return all(map(is_object_id, raw_ids))


def is_object_id(raw_id: bytes) -> bool:
    """Returns whether an `_id` is an ObjectId. `raw_id`: its type and bytes."""
    return len(raw_id) == OBJECT_ID_SIZE and raw_id[0] == OBJECT_ID


def mixed(object_ids: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Returns a number for each ObjectId, (n, 12) → (n,): by odd factors, each bit affects those above it.
    MongoDB holds the numbers of archived buckets whose originals stay, so they have to stay as they are."""
    first = np.ascontiguousarray(object_ids[:, :8]).view("<u8")[:, 0] * _ODD_FACTOR
    last = np.ascontiguousarray(object_ids[:, 8:]).view("<u4")[:, 0].astype(np.uint64)
    return np.asarray((((first >> np.uint64(32)) ^ first) + last) * _ODD_FACTOR)


#: Documents of one length, a row each.
Rows = NDArray[np.uint8]
#: A function of CPython: without a text, it returns bytes of uncleared memory.
unwritten = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


def filled(size: int, fill: Callable[[NDArray[np.uint8]], object]) -> bytes:
    """Returns `size` bytes that `fill` writes in place. An array of numpy's own would have to be copied."""
    buffer = BytesIO(unwritten(None, size))
    fill(np.frombuffer(buffer.getbuffer(), np.uint8))
    return buffer.getvalue()  # nobody can write to them any more; else these would be a copy too


def back_to_back(matrices: list[Rows]) -> bytes:
    """Returns the rows of all matrices. Empties the list, so that memory is freed matrix by matrix."""

    def fill(target: NDArray[np.uint8]) -> None:
        matrices.reverse()
        while matrices:
            matrix = matrices.pop()
            target[: matrix.size].reshape(matrix.shape)[:] = matrix
            target = target[matrix.size :]

    return filled(sum(matrix.size for matrix in matrices), fill)


def take_rows(matrix: NDArray[np.uint8], rows: NDArray[np.int64], target: NDArray[np.uint8]) -> None:
    """Copies rows of a matrix. They must exist: numpy does not check, since the mode that does makes a copy
    first."""
    matrix.take(rows, axis=0, out=target.reshape(len(rows), matrix.shape[1]), mode="clip")


#: Bytes of an `_id` that may be queried: a query names a thousand. So many bytes of a longer one are shown.
LONGEST_ID, _SHOWN = 8192, 40
#: Bytes of an empty document.
LEAST = 5
_LENGTH = struct.Struct("<i")
#: How a document begins, behind its length, where its `_id` is an ObjectId and comes first: most do.
_OBJECT_ID_FIRST = bytes([OBJECT_ID]) + b"_id\0"
_ALL_BITS = (1 << 64) - 1
LOSSLESS: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    tz_aware=True,
    uuid_representation=4,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)

#: Continues over values in a document that are not sound.
TOLERANT = LOSSLESS.with_options(
    uuid_representation=UuidRepresentation.UNSPECIFIED, unicode_decode_error_handler="backslashreplace"
)


def as_queried(raw: bytes) -> Any:
    """Returns a value that `first_at` gave as pymongo would; None for an empty one. A document stays raw, so
    that it goes back to the server with its types."""
    if raw[:1] == bytes([DOCUMENT]):
        return RawBSONDocument(raw[1:], LOSSLESS)
    if raw[:1] == bytes([OBJECT_ID]):
        return ObjectId(raw[1:])  # as `decode_value` gives it, sooner
    return decode_value(raw[0], raw[1:], legible=True) if raw else None


def without_uuid(identity: Any) -> Any:
    """Returns an `_id` as collections with `TOLERANT` take it, to which a UUID is binary data."""
    return Binary.from_uuid(identity) if isinstance(identity, UUID) else identity


class Docs:
    """n documents, one after another; document i is data[offsets[i]:offsets[i + 1]]."""

    def __init__(self, data: bytes | list[Rows], offsets: NDArray[np.int64]) -> None:
        """Rows, all of one length, are put back to back when they are first looked at: until then they can be
        cut, and joined with others, without a copy."""
        self._storage = data
        self.offsets = offsets  # n + 1

    @property
    def data(self) -> bytes:
        """Returns all bytes, back to back. Raises ValueError where their length is not what it was."""
        storage = self._storage
        if isinstance(storage, list):
            self._storage = storage = back_to_back(storage)
        if len(storage) != self.size:  # what took the rows out of the list before broke off
            raise ValueError(f"documents of {self.size:,} bytes, and {len(storage):,} of them are there")
        return storage

    @property
    def size(self) -> int:
        """Returns the size of all documents in bytes."""
        return int(self.offsets[-1])

    @classmethod
    def split(cls, data: bytes) -> Docs:
        """Splits a raw batch into documents, by the length in the first four bytes of each. Raises ValueError
        where the lengths don't add up to the bytes that there are."""
        if (alike := cls._of_one_length(data)) is not None:
            return alike
        offsets = [0]
        position, size = 0, len(data)
        while size - position >= LEAST:
            if (length := _LENGTH.unpack_from(data, position)[0]) < LEAST:
                break
            position += length
            offsets.append(position)
        if position != size:
            raise ValueError(f"the documents of a batch of {size:,} bytes end at byte {offsets[-1]:,}")
        return cls(data, np.array(offsets, dtype=np.int64))

    @classmethod
    def _of_one_length(cls, data: bytes) -> Docs | None:
        """Returns the documents where all are as long as the first, by their own lengths; else None."""
        length = _LENGTH.unpack_from(data)[0] if len(data) >= LEAST else 0
        if length < LEAST or len(data) % length:
            return None
        sizes = np.ndarray((len(data) // length,), "<i4", data, strides=(length,))
        return cls(data, np.arange(len(sizes) + 1) * length) if (sizes == length).all() else None

    @classmethod
    def of(cls, documents: Sequence[bytes]) -> Docs:
        """Returns these documents, in their order."""
        lengths = np.fromiter((len(document) for document in documents), np.int64, len(documents))
        return cls(b"".join(documents), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    @classmethod
    def none(cls) -> Docs:
        """Returns no documents."""
        return cls(b"", np.zeros(1, dtype=np.int64))

    @classmethod
    def of_rows(cls, rows: list[Rows]) -> Docs:
        """Returns the rows of these matrices, at least one, as documents."""
        return cls(rows, np.arange(sum(map(len, rows)) + 1) * rows[0].shape[1])

    @classmethod
    def concat(cls, parts: Sequence[Docs]) -> Docs:
        """Returns the documents of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        storages = [part._storage for part in parts]  # noqa: SLF001  (of its own class)
        rows = [matrix for storage in storages if isinstance(storage, list) for matrix in storage]
        if len({matrix.shape[1] for matrix in rows}) == 1 and sum(map(len, rows)) == sum(map(len, parts)):
            return cls.of_rows(rows)
        return cls.split(b"".join(part.data for part in parts))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self.data[self._edges[index] : self._edges[index + 1]]

    def __iter__(self) -> Iterator[bytes]:
        for start, end in itertools.pairwise(self._edges):
            yield self.data[start:end]

    def views(self) -> Iterator[memoryview]:
        """Yields each document without copying it."""
        whole = memoryview(self.data)
        for start, end in itertools.pairwise(self._edges):
            yield whole[start:end]

    @cached_property
    def _edges(self) -> list[int]:
        found: list[int] = self.offsets.tolist()
        return found

    def raw_id(self, index: int) -> bytes:
        """Returns the type and bytes of the `_id`: equal for equal `_id`s of one BSON type, empty where there
        is none.

        It comes first in every document of an ordinary collection, but not in a time-series collection."""
        return self.raw_ids[index]

    @cached_property
    def raw_ids(self) -> list[bytes]:
        """Returns the `raw_id` of each document."""
        if self._object_ids is None:
            return raw_ids(self.data, self.offsets)
        size = OBJECT_ID_SIZE
        found = np.insert(self._object_ids, 0, OBJECT_ID, axis=1).tobytes()
        return [found[at : at + size] for at in range(0, len(found), size)]

    @cached_property
    def id_hashes(self) -> NDArray[np.uint64]:
        """Returns eight bytes for each `raw_id`: fixed in a process, and almost never those of another."""
        return self.hashed_ids(lambda raw_id: hash(raw_id) & _ALL_BITS)

    def hashed_ids(self, hash_of: Callable[[bytes], int]) -> NDArray[np.uint64]:
        """Returns eight bytes for each `raw_id`. ObjectIds are mixed all at once, the same in every process;
        `hash_of` gives those of the others, below 2⁶⁴."""
        if self._object_ids is not None:
            return mixed(self._object_ids)
        hashes = np.fromiter(map(hash_of, self.raw_ids), np.uint64, len(self))
        rows = [i for i, raw_id in enumerate(self.raw_ids) if is_object_id(raw_id)]
        object_ids = np.frombuffer(b"".join([self.raw_ids[i][1:] for i in rows]), np.uint8)
        hashes[rows] = mixed(object_ids.reshape(len(rows), OBJECT_ID_SIZE - 1))
        return hashes

    @cached_property
    def _object_ids(self) -> NDArray[np.uint8] | None:
        """Returns the ObjectIds, (n, 12), where every `_id` is one and comes first; else None."""
        name, size = len(_OBJECT_ID_FIRST), len(_OBJECT_ID_FIRST) + OBJECT_ID_SIZE - 1
        if not len(self) or np.diff(self.offsets).min() <= 4 + size:
            return None
        if self._matrix is not None:
            heads = self._matrix[:, 4 : 4 + size]
        else:
            heads = np.frombuffer(self.data, np.uint8)[self.offsets[:-1, None] + 4 + np.arange(size)]
        is_first = heads[:, :name] == np.frombuffer(_OBJECT_ID_FIRST, np.uint8)
        return heads[:, name:] if is_first.all() else None

    @cached_property
    def _matrix(self) -> NDArray[np.uint8] | None:
        """Returns documents as rows, where all are equally long; else None."""
        lengths = np.diff(self.offsets)
        if not len(self) or (lengths != lengths[0]).any():
            return None
        return np.frombuffer(self.data, np.uint8).reshape(len(self), -1)

    def id_order(self) -> NDArray[np.int64]:
        """Returns the order of the index on `_id`, where all are ObjectIds; else the present order."""
        if not are_object_ids(self.raw_ids):
            return np.arange(len(self))
        return np.array(sorted(range(len(self)), key=self.raw_ids.__getitem__), dtype=np.int64)

    def decode_id(self, index: int) -> Any:
        """Returns the document's `_id`, to name it in a query; None where it has none."""
        raw = self.raw_id(index)
        return as_queried(raw) if len(raw) <= LONGEST_ID + 1 else self.legible_id(index)

    @property
    def ids(self) -> list[Any]:
        """Returns the `_id` of each document, as `decode_id` gives it."""
        return [self.decode_id(i) for i in range(len(self))]

    def legible_id(self, index: int) -> Any:
        """Returns the document's `_id` for people: a document as a dict, and bytes that are not UTF-8 as
        escapes. Of one that is far too long it gives the beginning and a hash, so that no two look alike."""
        raw = self.raw_id(index)
        if len(raw) > LONGEST_ID + 1:
            rest = f"{len(raw) - _SHOWN:,} bytes more, SHA-256 {hashlib.sha256(raw).hexdigest()[:16]}…"
            return f"{raw[:_SHOWN]!r} and {rest}"
        return decode_value(raw[0], raw[1:], legible=True) if raw else None

    def slice(self, start: int, stop: int) -> Docs:
        """Returns documents start to stop, as they lie."""
        storage = self._storage
        if isinstance(storage, list):
            starts = itertools.accumulate(map(len, storage), initial=0)
            cut = [
                rows[max(0, start - at) : max(0, stop - at)]
                for rows, at in zip(storage, starts, strict=False)
            ]
            kept = [rows for rows in cut if len(rows)] or cut[:1]
            return Docs.of_rows(kept)  # none keeps what it isn't of
        low, high = int(self.offsets[start]), int(self.offsets[stop])
        return Docs(self.data[low:high], self.offsets[start : stop + 1] - low)

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> Docs:
        """Returns the documents at these indices, in the order of the indices."""
        chosen = np.asarray(indices, dtype=np.int64)
        offsets = np.append(0, np.cumsum(self.offsets[chosen + 1] - self.offsets[chosen]))
        if self._matrix is not None:
            return Docs(filled(int(offsets[-1]), partial(take_rows, self._matrix, chosen)), offsets)
        edges, view = self._edges, memoryview(self.data)
        return Docs(b"".join([view[edges[i] : edges[i + 1]] for i in chosen.tolist()]), offsets)


@dataclass(frozen=True)
class Batch:
    """Some buckets of one policy: each a document and, where it has any, its overflow documents."""

    main: Docs
    extra: Docs  # overflow documents, those of one bucket side by side, in `_id` order
    owner: NDArray[np.int32]  # of each overflow document: the index of its bucket in main

    @classmethod
    def of(cls, main: Docs) -> Batch:
        """Returns documents as buckets without overflow."""
        return cls(main, Docs.none(), np.zeros(0, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.main)

    @property
    def size(self) -> int:
        """Returns the size in bytes of BSON, overflow included."""
        return self.main.size + self.extra.size

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Returns the bytes of each bucket with its overflow, (n,)."""
        found = np.diff(self.main.offsets)
        np.add.at(found, self.owner, np.diff(self.extra.offsets))
        return found

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> Batch:
        """Returns these buckets, in this order, each with its overflow."""
        chosen = np.asarray(indices, dtype=np.int64)
        if len(chosen) == len(self) and (chosen == np.arange(len(self))).all():
            return self
        main = self.main.take(chosen)
        if not len(self.extra):
            return Batch.of(main)
        place = np.full(len(self.main), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        new_owner = place[self.owner]
        kept = np.flatnonzero(new_owner >= 0)
        kept = kept[np.argsort(new_owner[kept], kind="stable")]
        return Batch(main, self.extra.take(kept), new_owner[kept].astype(np.int32))

    def slice(self, start: int, stop: int) -> Batch:
        """Returns buckets start to stop, each with its overflow."""
        if (start, stop) == (0, len(self)):
            return self
        low, high = (int(at) for at in np.searchsorted(self.owner, [start, stop]))
        owner = self.owner[low:high] - np.int32(start)
        return Batch(self.main.slice(start, stop), self.extra.slice(low, high), owner)

    @classmethod
    def concat(cls, parts: Sequence[Batch]) -> Batch:
        """Returns the buckets of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        shift = np.cumsum([0, *(len(part) for part in parts)])
        owners = [part.owner + base for part, base in zip(parts, shift, strict=False)]
        return cls(
            Docs.concat([part.main for part in parts]) if parts else Docs.none(),
            Docs.concat([part.extra for part in parts]) if parts else Docs.none(),
            np.concatenate(owners).astype(np.int32) if owners else np.zeros(0, dtype=np.int32),
        )

    def unit(self, index: int) -> bytes:
        """Returns a bucket and its overflow as one string of bytes: equal for equal buckets alone."""
        if not len(self.extra):
            return self.main[index]
        low, high = np.searchsorted(self.owner, [index, index + 1])
        return b"".join([self.main[index], *(self.extra[i] for i in range(int(low), int(high)))])

    @property
    def units(self) -> list[bytes]:
        """Returns the `unit` of each bucket."""
        return [self.unit(i) for i in range(len(self))] if len(self.extra) else list(self.main)

    def equals(self, other: Batch) -> bool:
        """Returns whether both hold the same documents and overflow in the same order, byte for byte."""
        own = (self.main.data, self.extra.data, self.owner.tobytes())
        return own == (other.main.data, other.extra.data, other.owner.tobytes())

    @cached_property
    def digest(self) -> str:
        """Returns the SHA-256 of the documents as they lie: buckets, overflow, then the overflow's owners."""
        state = hashlib.sha256(self.main.data)
        state.update(self.extra.data)
        state.update(self.owner.astype("<i4").tobytes())
        return state.hexdigest()
