"""Batches of raw documents: taking, cutting and joining them keeps every document with its overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import bson
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketwise.buckets.bson import raw
from bucketwise.buckets.bson.raw import Batch, Docs, Rows
from bucketwise.buckets.bson.types import OBJECT_ID
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.batches import batch_of
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import anything, ids, object_ids

documents = st.builds(lambda key, held: bson_of.document(("_id", key), ("a", held)), ids, anything)
some = st.lists(st.builds(Bucket, documents, st.lists(documents, max_size=3).map(tuple)), max_size=6)


def buckets_of(batch: Batch) -> list[Bucket]:
    extras: list[list[bytes]] = [[] for _ in range(len(batch))]
    for owner, extra in zip(batch.owner.tolist(), batch.extra, strict=True):
        extras[owner].append(extra)
    assert batch.owner.tolist() == sorted(batch.owner.tolist())
    return [Bucket(main, tuple(more)) for main, more in zip(batch.main, extras, strict=True)]


@given(some, st.data())
def test_take_gives_these_buckets_in_this_order(found: list[Bucket], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(found))))
    chosen = order[: data.draw(st.integers(0, len(order)))]
    taken = batch_of(found).take(np.array(chosen, dtype=np.int64))
    assert buckets_of(taken) == [found[i] for i in chosen]


@given(some, st.data())
def test_slice_gives_these_buckets(found: list[Bucket], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(found)))
    stop = data.draw(st.integers(start, len(found)))
    assert buckets_of(batch_of(found).slice(start, stop)) == found[start:stop]


@given(st.lists(some, max_size=4))
def test_concat_joins_batches(parts: list[list[Bucket]]) -> None:
    joined = Batch.concat([batch_of(part) for part in parts])
    assert buckets_of(joined) == [bucket for part in parts for bucket in part]
    assert joined.size == sum(len(b.main) + sum(map(len, b.extras)) for part in parts for b in part)


@given(some)
def test_a_unit_is_a_bucket_with_its_overflow(found: list[Bucket]) -> None:
    batch = batch_of(found)
    assert [batch.unit(i) for i in range(len(batch))] == [b.main + b"".join(b.extras) for b in found]


@given(st.lists(documents, max_size=6), st.data())
def test_documents_are_split_indexed_and_taken(found: list[bytes], data: st.DataObject) -> None:
    docs = Docs.split(b"".join(found))
    assert len(docs) == len(found) and list(docs) == found == [docs[i] for i in range(len(docs))]
    built = Docs.of(found)
    assert built.data == docs.data and built.offsets.tolist() == docs.offsets.tolist()
    chosen = data.draw(st.lists(st.integers(0, len(found) - 1), max_size=8)) if found else []
    assert list(docs.take(chosen)) == [found[i] for i in chosen]
    cut = data.draw(st.integers(0, len(found)))
    assert list(Docs.concat([docs.slice(0, cut), docs.slice(cut, len(found))])) == found


def of_one_length(numbers: list[int]) -> list[bytes]:
    return [bson_of.document(("a", bson_of.int64(number))) for number in numbers]


def as_rows(found: list[bytes]) -> Rows:
    """Each behind a byte that is no part of it, as in a reply."""
    held = np.frombuffer(b"".join(b"x" + document for document in found), np.uint8)
    return held.reshape(len(found), len(of_one_length([0])[0]) + 1)[:, 1:]


some_numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)


@given(st.lists(some_numbers, min_size=1, max_size=4), st.lists(documents, max_size=2), st.data())
def test_rows_are_documents_however_they_are_cut_and_joined(
    numbers: list[list[int]], others: list[bytes], data: st.DataObject
) -> None:
    there = of_one_length([number for some in numbers for number in some])
    docs = Docs.of_rows([as_rows(of_one_length(some)) for some in numbers])
    start = data.draw(st.integers(0, len(there)))
    stop = data.draw(st.integers(start, len(there)))
    parts = [docs.slice(0, start), docs.slice(start, stop), docs.slice(stop, len(there))]
    if data.draw(st.booleans()):
        assert list(parts[1]) == there[start:stop]  # it is back to back from now on
    joined = Docs.concat([*parts, Docs.of(others)] if others else parts)
    assert joined.size == sum(map(len, there + others)) and list(joined) == there + others
    assert list(docs) == there and docs.data == b"".join(there)


def test_rows_keep_no_reply_of_which_they_have_none() -> None:
    docs = Docs.of_rows([as_rows(of_one_length([number, number])) for number in range(3)])
    held = docs._storage
    assert isinstance(held, list)
    bases = [ref(some.base) for some in held]
    part = docs.slice(2, 4)
    del docs, held
    assert [base() is not None for base in bases] == [False, True, False]
    assert list(part) == of_one_length([1, 1])
    assert [base() is not None for base in bases] == [False, False, False]


def test_replies_go_one_by_one_as_they_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all would be there twice. Where that breaks off, nobody is given what is left as the whole."""
    docs = Docs.of_rows([as_rows(of_one_length([number])) for number in range(3)])
    held = docs._storage
    assert isinstance(held, list)
    bases = [ref(some.base) for some in held]
    del held
    there: list[list[bool]] = []

    class Watched(np.ndarray[Any, np.dtype[np.uint8]]):
        def __setitem__(self, key: Any, value: Any) -> None:
            there.append([base() is not None for base in bases])
            if len(there) == 3:
                raise KeyboardInterrupt
            super().__setitem__(key, value)

    def watched(size: int, fill: Callable[[NDArray[np.uint8]], object]) -> bytes:
        fill(np.empty(size, np.uint8).view(Watched))
        raise AssertionError("it was to break off")

    with monkeypatch.context() as patch:
        patch.setattr(raw, "filled", watched)
        with pytest.raises(KeyboardInterrupt):
            _ = docs.data
    assert there == [[True, True, True], [False, True, True], [False, False, True]]
    with pytest.raises(ValueError, match="documents of"):
        _ = docs.data


@given(ids, st.booleans())
def test_an_id_is_decoded_and_goes_back_as_it_was(key: bson_of.Value, first: bool) -> None:
    fields = [("_id", key), ("x", bson_of.text("_id"))]
    docs = Docs.of([bson_of.document(*(fields if first else reversed(fields)))])
    assert bson.encode({"_id": docs.decode_id(0)}, codec_options=oracle.OPTIONS) == bson_of.document(
        fields[0]
    )
    assert docs.raw_id(0) == bytes([key[0]]) + key[1]


_OID = bson_of.object_id(b"0123456789ab")
named = st.tuples(st.one_of(object_ids, st.just(_OID), ids), st.sampled_from(["first", "last", "missing"]))


@example([(_OID, "first"), (bson_of.int64(7), "first")])
@example([(_OID, "first"), (bson_of.text("twelve bytes"), "first")])
@example([(_OID, "first"), (_OID, "last"), (_OID, "missing")])
@given(st.lists(named, max_size=5))
def test_each_has_its_own_id_whatever_the_others_have(found: list[tuple[bson_of.Value, str]]) -> None:
    other = ("x_id", _OID)
    fields = [
        {"first": [("_id", key), other], "last": [other, ("_id", key)], "missing": [other]}[where]
        for key, where in found
    ]
    expected = [b"" if where == "missing" else bytes([key[0]]) + key[1] for key, where in found]
    whole = Docs.of([bson_of.document(*some) for some in fields])
    assert [whole.raw_id(i) for i in range(len(found))] == expected
    of_short = [raw if where == "first" else b"" for raw, (_, where) in zip(expected, found, strict=True)]
    short = Docs.of([bson_of.document(some[0]) for some in fields])
    assert [short.raw_id(i) for i in range(len(found))] == of_short


@given(st.lists(st.one_of(object_ids, ids), max_size=6))
def test_the_name_of_an_id_depends_on_nothing_else(keys: list[bson_of.Value]) -> None:
    """What a run met in one batch it has to know again in any other."""
    raw_ids = [bytes([key[0]]) + key[1] for key in keys]
    alone = [Docs.of([bson_of.document(("_id", key), ("x", key))]).id_hashes[0] for key in keys]
    assert Docs.of([bson_of.document(("_id", key)) for key in keys]).id_hashes.tolist() == alone
    assert len(set(alone)) == len(set(raw_ids))


def plain_hash(object_id: bytes) -> int:
    """As MongoDB holds it for copies of earlier runs."""
    factor, limit = 0x9E3779B97F4A7C15, 1 << 64
    first, last = (int.from_bytes(it, "little") for it in (object_id[:8], object_id[8:]))
    first = first * factor % limit
    return ((first >> 32 ^ first) + last) * factor % limit


@given(st.lists(st.one_of(object_ids, ids), max_size=6))
def test_hashes_of_object_ids_are_the_same_in_every_release(keys: list[bson_of.Value]) -> None:
    docs = Docs.of([bson_of.document(("_id", key), ("x", key)) for key in keys])
    plain = [plain_hash(key[1]) if key[0] == OBJECT_ID else 7 for key in keys]
    assert docs.hashed_ids(lambda _: 7).tolist() == plain


@given(st.lists(ids, max_size=6))
def test_views_are_the_documents(keys: list[bson_of.Value]) -> None:
    documents = [bson_of.document(("_id", key)) for key in keys]
    assert list(map(bytes, Docs.of(documents).views())) == documents


def test_object_ids_of_one_second_and_of_all_bits_have_names_of_their_own() -> None:
    near = [bytes.fromhex(f"5b15d3800102030405{number:06x}") for number in range(20_000)]
    bits = [bytes(at) + bytes([1 << bit]) + bytes(11 - at) for at in range(12) for bit in range(8)]
    documents = [bson_of.document(("_id", bson_of.object_id(key))) for key in (*near, *bits)]
    assert len(set(Docs.of(documents).id_hashes.tolist())) == len(documents)


def test_no_id() -> None:
    docs = Docs.of([bson_of.document(("a", bson_of.int32(1)))])
    assert docs.decode_id(0) is None and docs.raw_id(0) == b""


def test_an_id_inside_a_sub_document_is_not_the_documents() -> None:
    inner = bson_of.sub(("_id", bson_of.int32(1)))
    assert Docs.of([bson_of.document(("a", inner))]).decode_id(0) is None


def test_a_digest_tells_buckets_from_overflow_order_and_bits() -> None:
    one = bson_of.document(("_id", bson_of.int32(1)), ("p", bson_of.double(0.0)))
    two = bson_of.document(("_id", bson_of.int32(1)), ("p", bson_of.double(-0.0)))
    cases = [
        [Bucket(one)],
        [Bucket(two)],
        [Bucket(one), Bucket(two)],
        [Bucket(one, (two,))],
        [Bucket(one, (one,)), Bucket(one)],
        [Bucket(one), Bucket(one, (one,))],
    ]
    assert len({batch_of(case).digest for case in cases}) == len(cases)


_ONE, _TWO = bson_of.document(("a", bson_of.int32(1))), bson_of.document(("a", bson_of.int64(1)))


@pytest.mark.parametrize(
    "broken",
    [
        _ONE[:3],
        _ONE[:-1],
        _ONE + _TWO[:-1],
        _ONE + _TWO[:4],
        _ONE + _ONE + b"\0",
        _ONE + _TWO + b"\0\0\0\0",
        _ONE + bytes(5) + _ONE,
        _ONE + b"\xff\xff\xff\xff\0",
        bytes(len(_ONE)),
    ],
)
def test_bytes_that_are_no_whole_documents_are_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match="documents of a batch"):
        Docs.split(broken)


def test_long_ids_that_begin_alike_are_told_apart() -> None:
    """Quarantine remembers a bucket by what is told of its `_id`."""
    held = [bson_of.text("x" * 20_000 + end) for end in "ab"]
    docs = Docs.of([bson_of.document(("_id", identity)) for identity in held])
    assert docs.decode_id(0) != docs.decode_id(1) and docs.legible_id(0) != docs.legible_id(1)
