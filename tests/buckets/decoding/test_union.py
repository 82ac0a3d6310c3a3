"""Irregular buckets, which are laid out together: the same as one by one, and as plain Python has it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import bson
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding import decode as decoding
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.layouts import groups, union
from bucketwise.buckets.layouts.groups import group_by_layout
from bucketwise.buckets.layouts.union import ByteLimitedCache, Containers, union_of
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.model import BucketModel
from bucketwise.buckets.models.shape import Breach
from bucketwise.buckets.packing import Packed, pack
from bucketwise.config.policies import Policy
from tests.buckets import handmade as bson_of
from tests.buckets import oracle
from tests.buckets.bad_documents import BAD_DOCUMENTS, BadDocument, sound_of
from tests.buckets.batches import batch_of
from tests.buckets.decoding.test_decode import check_values
from tests.buckets.decoding.test_pack import check_round_trip
from tests.buckets.irregular import NESTED, POLICIES, SAMPLES, SLOTS, Writer, eager
from tests.buckets.oracle import Bucket
from tests.buckets.strategies import Case, cases
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")
quick = settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
#: What comes of bytes that are no document.
NO_BSON = (ValueError, IndexError, struct.error, bson.errors.BSONError)
seeds = st.integers(0, 2**32)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Without unions."""

    def alone(policy: Policy) -> BucketModel[Any]:
        model = type(model_of(policy))(policy)
        rules = model.union_rules if model.attributes else None  # such documents are in none
        vars(model).update(union_rules=rules, overflow_union_rules=None)
        return model

    with patch.object(decoding, "model_of", alone):
        yield


def as_told(decoded: Decoded) -> dict[str, Any]:
    """All that a batch was decoded to, by value: NaNs by their bits."""
    columns = decoded.columns
    numbers = {name: column.tobytes() for name, column in columns.values.items()}
    kinds = {name: column.tolist() for name, column in columns.kinds.items()}
    series = [repr(columns.series[i]) for i in columns.series_of_readings]
    local = None if columns.local is None else columns.local.tolist()
    return {
        "units": decoded.units.tolist(),
        "last": decoded.last.tolist(),
        "quarantined": [(repr(it.id), it.field, it.reason, it.span) for it in decoded.quarantined],
        "bucket": columns.bucket.tolist(),
        "time": columns.time.tolist(),
        **{"numbers": numbers, "kinds": kinds, "series": series, "local": local},
    }


def outcome(work: Callable[[], Any]) -> Any:
    """What came of it; of documents that are no BSON the error's type."""
    try:
        return work()
    except NO_BSON as error:
        return type(error)


def check_as_one_by_one(batch: Batch, policy: Policy) -> None:
    with one_by_one():
        expected = outcome(lambda: as_told(decode(batch, policy)))
    for mode in (eager(), nullcontext()):
        with mode:
            assert outcome(lambda: as_told(decode(batch, policy))) == expected
            assert outcome(lambda: as_told(decode(batch, policy, groups.Unions()))) == expected


@quick
@given(seeds, st.sampled_from(POLICIES))
def test_decodes_what_a_plain_loop_finds(seed: int, policy: Policy) -> None:
    found = Writer(Random(seed), policy).buckets(40)
    decoded = decode(batch_of(found), policy)
    assert decoded.quarantined == []
    expected = [(i, reading) for i, b in enumerate(found) for reading in oracle.readings(policy, b)]
    assert decoded.columns.bucket.tolist() == [i for i, _ in expected]
    for row, (_, reading) in enumerate(expected):
        check_values(decoded.columns, policy, row, reading)
    assert decoded.last.tolist() == [oracle.last(policy, bucket) for bucket in found]


@quick
@given(seeds, st.sampled_from(POLICIES))
def test_gives_the_same_bytes_back(seed: int, policy: Policy) -> None:
    found = Writer(Random(seed), policy).buckets(40)
    check_round_trip(policy, found)


@quick
@given(cases())
def test_any_buckets_are_decoded_as_one_by_one(case: Case) -> None:
    check_as_one_by_one(batch_of(case.buckets), case.policy)
    with eager():
        check_round_trip(case.policy, case.buckets)


@quick
@given(seeds, st.sampled_from(POLICIES), st.data())
def test_what_was_decoded_before_makes_no_difference(seed: int, policy: Policy, data: st.DataObject) -> None:
    """Three batches again and again, by one memory: the third is of another policy."""
    chance = Random(seed)
    other = data.draw(st.sampled_from(POLICIES))
    batches = [(batch_of(Writer(chance, it).buckets(20)), it) for it in (policy, policy, other)]
    with one_by_one():
        expected = [as_told(decode(batch, of)) for batch, of in batches]
    unions = groups.Unions()
    order = data.draw(st.lists(st.integers(0, 2), min_size=3, max_size=8))
    with eager() if data.draw(st.booleans()) else nullcontext():
        for i in order:
            batch, of = batches[i]
            assert as_told(decode(batch, of, unions)) == expected[i]


@pytest.mark.proof
def test_threads_may_share_what_was_decoded_before() -> None:
    chance, unions = Random(5), groups.Unions()
    policies = [policy for policy in POLICIES for _ in range(4)]
    batches = [batch_of(Writer(chance, policy).buckets(30)) for policy in policies]
    with one_by_one():
        expected = [as_told(decode(*it)) for it in zip(batches, policies, strict=True)]
    with eager(), ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = pool.map(lambda batch, policy: as_told(decode(batch, policy, unions)), batches, policies)
            assert list(found) == expected


def in_bytes(packed: Packed) -> list[list[bytes]]:
    """What of the groups is written."""
    return [
        [part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode() for part in astuple(group)]
        for group in packed.groups
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
def test_what_is_packed_does_not_come_of_what_was_decoded_before(policy: Policy) -> None:
    """A copy that is made twice has to be the same: one lies over the other."""
    writer = Writer(Random(9), policy)
    writer.missing, writer.odd = 0.1, 0.05
    batches = [batch_of(writer.buckets(40)) for _ in range(4)]
    for batch in batches:
        pack(BucketSet(batch, policy))
    for batch in batches:
        anew = BucketSet(batch, policy)
        anew.__dict__["decoded"] = decode(batch, policy, groups.Unions())
        assert in_bytes(pack(BucketSet(batch, policy))) == in_bytes(pack(anew))


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
@settings(quick, max_examples=examples(1))
@given(seeds)
def test_what_is_packed_does_not_come_of_unions_that_were_made_before(policy: Policy, seed: int) -> None:
    writer = Writer(Random(seed), policy)
    writer.missing = 0.1
    batches = [batch_of(writer.buckets(20)) for _ in range(3)]
    alone = []
    for batch in batches:
        with eager(), patch.object(union, "known_merges", ByteLimitedCache(0)):
            alone.append(in_bytes(pack(BucketSet(batch, policy))))
    with eager(), patch.object(union, "known_merges", ByteLimitedCache(1 << 20)):
        for _ in range(2):
            assert [in_bytes(pack(BucketSet(batch, policy))) for batch in batches] == alone


def test_a_union_of_the_same_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, documents = in_samples(sampled(100, _SOUND))
    made: ByteLimitedCache[union._KnownUnion] = ByteLimitedCache(1 << 16)
    monkeypatch.setattr(union, "known_merges", made)
    containers = Containers(frozenset([("in", "samples")]))
    first = union_of(Docs.of(documents), containers, lambda _: True, 2**30)
    assert first is not None and [it.union for it in made] == [first]
    later = [document.replace(struct.pack("<d", 1.5), struct.pack("<d", 2.5)) for document in documents]
    assert later != documents
    assert union_of(Docs.of(later), containers, lambda _: True, 2**30) is first
    assert union_of(Docs.of(later), containers, lambda _: True, first.size * len(later) - 1) is None


def gapped(number: int, held: dict[int, bool], *, is_each: bool = False, symbol: str = "MDB") -> bytes:
    """A bucket with these slots, of doubles or of ints; or with so many samples."""
    if is_each:
        samples = (bson_of.sub(("v", bson_of.double(slot))) for slot in held)
        return slotted(number, symbol=symbol, held=bson_of.array(*samples))
    values = [(str(slot), bson_of.double(slot) if it else bson_of.int32(slot)) for slot, it in held.items()]
    return slotted(number, *sorted(values, key=lambda it: int(it[0])), symbol=symbol)


gaps = st.lists(st.dictionaries(st.integers(0, 12), st.booleans(), min_size=1), min_size=8, max_size=20)
FULL = [{0: True, 1: False}, {0: False, 1: True}] * 4


@settings(quick, max_examples=examples(60))
@given(gaps, gaps, st.booleans(), st.sampled_from([1, 1, 3]))
@example([*FULL, {1: True}], FULL, False, 1)
@example(FULL, [{0: True}, {1: True}, {0: True, 1: True}] * 3, False, 1)
@example([{0: False}, *FULL], [{0: True}, {0: True, 1: True}] * 4, False, 1)
@example(
    *([dict.fromkeys(range(size), True) for size in range(least, least + 8)] for least in (3, 4)), True, 1
)
def test_a_union_that_was_made_before_is_taken_where_it_would_be_made_anew(
    before: list[dict[int, bool]], after: list[dict[int, bool]], is_each: bool, symbols: int
) -> None:
    containers = Containers(frozenset([("p",)]))

    def made(held: list[dict[int, bool]]) -> union.Union | None:
        documents = [
            gapped(number, it, is_each=is_each, symbol="X" * (1 + number % symbols))
            for number, it in enumerate(held)
        ]
        return union_of(Docs.of(documents), containers, lambda _: True, 2**30)

    with patch.object(union, "known_merges", ByteLimitedCache(0)):
        anew = made(after)
    with patch.object(union, "known_merges", ByteLimitedCache(1 << 20)):
        for held in (after[::-1], before):  # the same union as of all, and often another
            made(held)
        found = made(after)
    with patch.object(union, "known_merges", ByteLimitedCache(1 << 20)):
        made(before)
        again = made(after)
    for it in (found, again):
        assert (it is None) == (anew is None)
        if it and anew and it.layout.variants and anew.layout.variants:
            assert it.layout.skeleton.tolist() == anew.layout.skeleton.tolist()
            assert it.layout.variants.flag.tolist() == anew.layout.variants.flag.tolist()
            assert it.layout.variants.optional == anew.layout.variants.optional


def test_of_slots_a_union_is_taken_again_without_a_look_at_each_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: ByteLimitedCache[union._KnownUnion] = ByteLimitedCache(1 << 16)
    monkeypatch.setattr(union, "known_merges", made)
    containers = Containers(frozenset([("p",)]))
    first = Docs.of([gapped(n, {slot: True for slot in range(12) if (n + slot) % 5}) for n in range(40)])
    later = Docs.of([gapped(n, {slot: True for slot in range(12) if (n * slot) % 7 != 3}) for n in range(40)])
    found = union_of(first, containers, lambda _: True, 2**30)
    with monkeypatch.context() as without:
        without.delattr(union, "Layout")
        assert found is not None
        assert union_of(later, containers, lambda _: True, 2**30) is found
    others = Containers(frozenset([("q",)]))  # of another policy, which has no slots there
    assert union_of(later, others, lambda _: True, 2**30) is None


def test_a_union_that_fits_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, documents = in_samples(sampled(100, _SOUND))
    batch, unions = batch_of([Bucket(document) for document in documents]), groups.Unions()
    decode(batch, policy, unions)
    monkeypatch.setattr(groups, "union_of", None)
    decode(batch, policy, unions)


def test_a_union_is_of_one_policy() -> None:
    """To another the same samples have their times elsewhere, and not all have one."""
    documents = [sampled(n, _SOUND, _SOUND) if n % 4 else sampled(n, _SOUND, _TIMELESS) for n in range(40)]
    documents += [sampled(n, *[_SOUND] * 3) for n in range(40, 44)]
    batch, unions = batch_of([Bucket(document) for document in documents]), groups.Unions()
    other = SAMPLES.model_copy(update={"sample_time_field": "val", "value_fields": ("time",)})
    for policy in (SAMPLES, other, SAMPLES):
        with one_by_one():
            expected = as_told(decode(batch, policy))
        with eager():
            assert as_told(decode(batch, policy, unions)) == expected


def test_a_layout_that_was_met_is_known_again_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [bson_of.double(1.5), bson_of.int64(7)]
    batches = [
        Docs.of([slotted(n, *((str(slot), kind) for slot in range(9))) for n in range(9)]) for kind in kinds
    ]
    where = model_of(SLOTS).union_rules
    for docs in batches:
        assert [len(it.members) for it in group_by_layout(docs, where) if it.present is None] == [9]
    monkeypatch.setattr(groups, "Layout", None)
    for docs in batches:
        assert [len(it.members) for it in group_by_layout(docs, where)] == [9]


def test_so_many_bytes_are_remembered_and_no_more() -> None:
    class Thing(NamedTuple):
        size: int

    recent: ByteLimitedCache[Thing] = ByteLimitedCache(10)
    small, large, huge = Thing(3), Thing(6), Thing(11)
    recent.put(small)
    recent.put(large)
    assert list(recent) == [large, small]
    recent.put(small)
    assert list(recent) == [small, large]
    recent.put(Thing(2))
    assert list(recent) == [Thing(2), small]
    recent.put(huge)
    assert list(recent) == [Thing(2), small]


def long_samples(number: int, count: int, odd: int) -> bytes:
    """The names of the last have four digits. One sample of so many has a value."""
    time, value = ("time", bson_of.int32(7)), ("val", bson_of.double(1.5))
    with_value, without = bson_of.sub(time, value), bson_of.sub(time)
    return sampled(number, *(without if i % odd else with_value for i in range(count)))


def test_arrays_of_a_thousand_samples_are_laid_out_together() -> None:
    documents = [long_samples(n, 995 + n, 3 + n % 5) for n in range(9)]
    assert in_unions(documents, SAMPLES) == 9
    union = union_of(Docs.of(documents), Containers(frozenset([("in", "samples")])), lambda _: True, 2**30)
    assert union is not None
    odd = documents[8]
    place = odd.index(b"\x031001\0") + 6
    for at, bit in [
        (place, 0),
        (place + 2, 7),
        (place + 3, 7),
        (place - 2, 0),
        (place - 6, 1),
        (place + 5, 0),
    ]:
        rows, _, _ = union.take(Docs.of([odd, flipped(odd, at, bit), odd]))
        assert rows.tolist() == [0, 2]


def nested(number: int) -> bytes:
    """Samples that hold arrays of documents themselves, of different lengths."""
    kinds = [bson_of.double(1.5), bson_of.int32(7), bson_of.int64(7)]

    def level(i: int) -> bson_of.Value:
        return bson_of.sub(("a", kinds[i % 3]), *[("note", bson_of.text("x"))][: i % 2])

    def sample(i: int) -> bson_of.Value:
        levels = bson_of.array(*(level(number + i + at) for at in range((number + i) % 4)))
        return bson_of.sub(("time", bson_of.int32(7)), ("val", kinds[(number + i) % 2]), ("levels", levels))

    return sampled(number, *(sample(i) for i in range(3 + number % 3)))


def test_arrays_in_arrays_are_laid_out_together() -> None:
    documents = [nested(n) for n in range(12)]
    assert in_unions(documents, SAMPLES) == 12
    union = union_of(Docs.of(documents), Containers(frozenset([("in", "samples")])), lambda _: True, 2**30)
    assert union is not None
    odd = documents[5]
    lengths = [at + 3 for at in range(len(odd)) if odd[at : at + 3] in (b"\x030\0", b"\x031\0")]
    assert len(lengths) > 5
    for byte, bit in ((0, 1), (1, 4), (3, 6)):
        for outer, inner in itertools.pairwise(lengths[:6]):
            one = flipped(odd, outer + byte, bit)
            for changed in (one, flipped(one, inner + byte, bit)):
                rows, _, _ = union.take(Docs.of([odd, changed, odd]))
                assert rows.tolist() == [0, 2]


def check_writer(seed: int, policy: Policy, count: int) -> None:
    """Sound buckets and broken ones, as they come."""
    writer = Writer(Random(seed), policy)
    writer.bad = writer.chance.choice([0, 0.002, 0.02])
    found = writer.buckets(count)
    batch = batch_of(found)
    check_as_one_by_one(batch, policy)
    decoded = decode(batch, policy)
    check_round_trip(policy, [found[unit] for unit in decoded.units.tolist()])


@pytest.mark.proof
@quick
@given(seeds, st.sampled_from(POLICIES), st.sampled_from([3, 10**6]))
def test_irregular_buckets_are_decoded_as_one_by_one(seed: int, policy: Policy, at_once: int) -> None:
    with patch.object(union, "AT_ONCE", at_once):
        check_writer(seed, policy, 40)


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
def test_many_irregular_buckets_are_decoded_as_one_by_one(policy: Policy) -> None:
    for seed in range(200):
        check_writer(seed, policy, 150)


@pytest.mark.parametrize("bad", BAD_DOCUMENTS, ids=lambda bad: bad.id)
def test_what_breaks_its_model_is_told_as_one_by_one(bad: BadDocument) -> None:
    sound = sound_of(bad)
    check_as_one_by_one(batch_of([sound[0], bad.bucket, *sound[1:]]), bad.policy)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
def test_irregular_buckets_are_laid_out_together(policy: Policy) -> None:
    """What their speed rests on."""
    writer = Writer(Random(1), policy)
    writer.missing, writer.odd, writer.size, writer.named, writer.shuffled = 0.1, 0.01, 12, True, 0.0
    batch = batch_of(writer.buckets(64))
    assert (
        sum(
            len(it.members)
            for it in group_by_layout(batch.main, model_of(policy).union_rules)
            if it.present is not None
        )
        >= 50
    )
    packed = pack(BucketSet(batch, policy))
    assert len(packed.groups) <= 24


@pytest.mark.parametrize("policy", [SLOTS, NESTED], ids=["slots", "slots in slots"])
def test_slots_in_any_order_are_laid_out_together_where_they_are_not_packed(policy: Policy) -> None:
    writer = Writer(Random(2), policy)
    writer.missing, writer.odd, writer.size, writer.named, writer.shuffled = 0.1, 0.0, 12, True, 1.0
    buckets = writer.buckets(100)
    docs = batch_of(buckets).main
    rules = model_of(policy).union_rules
    found = list(group_by_layout(docs, rules, groups.Unions()))
    assert sum(len(it.members) for it in found if it.present is not None) >= 60
    assert sorted(row for it in found for row in it.members.tolist()) == list(range(100))
    check_round_trip(policy, buckets)


def test_a_name_of_thousands_of_digits_is_no_slot_and_stops_no_other() -> None:
    writer = Writer(Random(3), SLOTS)
    writer.missing, writer.odd, writer.shuffled = 0.1, 0.0, 1.0
    huge = slotted(999, ("9" * 5000, bson_of.double(1.0)), ("8", bson_of.double(1.0)))
    batch = batch_of([*writer.buckets(80), Bucket(huge, ())])
    (broken,) = decode(batch, SLOTS).quarantined
    assert broken.id == 999
    check_as_one_by_one(batch, SLOTS)


def flipped(document: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(document)
    changed[at] ^= 1 << bit
    return bytes(changed)


def slotted(
    number: int, *slots: bson_of.Field, symbol: str = "MDB", held: bson_of.Value | None = None
) -> bytes:
    return bson_of.document(
        ("_id", bson_of.int32(number)),
        ("symbol", bson_of.text(symbol)),
        ("d", bson_of.date(60_000 * number)),
        ("p", held or bson_of.sub(*slots)),
    )


def sampled(number: int, *samples: bson_of.Value) -> bytes:
    return bson_of.document(
        ("_id", bson_of.int32(number)),
        ("symbol", bson_of.text("MDB")),
        ("first", bson_of.int32(0)),
        ("last", bson_of.int32(99)),
        ("n", bson_of.int32(len(samples))),
        ("in", bson_of.sub(("samples", bson_of.array(*samples)))),
    )


def in_slots(odd: bytes) -> tuple[Policy, list[bytes]]:
    """One among buckets that have slots 8 to 19, some missing, of two types."""
    kinds = [bson_of.double(1.5), bson_of.int32(7)]
    return SLOTS, [
        *(
            slotted(
                n,
                *((str(8 + slot), kinds[(n + slot) % 2]) for slot in range(12) if (n + slot) % 5),
                symbol="x" * (n % 4),
            )
            for n in range(100)
        ),
        odd,
    ]


def in_samples(odd: bytes) -> tuple[Policy, list[bytes]]:
    """One among buckets whose samples have times of two types, some of them no value."""
    times = [bson_of.int32(7), bson_of.int64(7)]
    held = [("val", bson_of.double(1.5))]
    return SAMPLES, [
        *(
            sampled(n, *(bson_of.sub(("time", times[(n * i) % 2]), *held[: (n + i) % 3]) for i in range(5)))
            for n in range(100)
        ),
        odd,
    ]


_ONE, _TWO, _FIVE = ("8", bson_of.double(1.0)), ("8", bson_of.int32(2)), ("13", bson_of.double(1.0))
_SEVEN = bson_of.int32(7)
_SOUND = bson_of.sub(("time", _SEVEN), ("val", bson_of.double(1.5)))
_TIMELESS = bson_of.sub(("time", _SEVEN))
_NOTES = [("note", bson_of.sub((name, bson_of.text("a" * 9)))) for name in "ab"]
_MORE = [(str(slot), bson_of.double(slot)) for slot in range(16, 50)]
_MANY = [(str(slot), bson_of.int32(slot)) for slot in range(8, 16)]  # not the longest, not the shortest
_LENGTH = slotted(100, *_MANY).index(b"\3p\0") + 3
_EMPTY = slotted(100, *_MANY, symbol="")
ALIKE = {
    "nothing": in_slots(slotted(100, _ONE, _FIVE)),
    "a slot twice": in_slots(slotted(100, _ONE, _TWO, _FIVE)),
    "a slot twice, the other way": in_slots(slotted(100, _TWO, _ONE, _FIVE)),
    "slots out of order": in_slots(slotted(100, _FIVE, _ONE)),
    "no sub-document ends so soon": in_slots(flipped(slotted(100, *_MANY), _LENGTH, 0)),
    "no sub-document ends so late": in_slots(flipped(slotted(100, *_MANY), _LENGTH, 1)),
    "a text that does not end": in_slots(flipped(_EMPTY, _EMPTY.index(b"symbol\0") + 7, 0)),
    "no slots": in_slots(slotted(100)),
    "no time": in_samples(sampled(100, _SOUND, bson_of.sub(("val", bson_of.double(1.5))), _SOUND)),
    "two times": in_samples(sampled(100, bson_of.sub(("time", _SEVEN), ("time", bson_of.int64(7))))),
    "a field twice, not read": in_samples(sampled(100, *[bson_of.sub(("time", _SEVEN), *_NOTES)] * 9)),
    "a slot too many, in the longest": in_slots(slotted(100, *_MANY, *_MORE, ("60", bson_of.int32(1)))),
    "null as time": in_samples(sampled(100, _SOUND, bson_of.sub(("time", bson_of.null)))),
    "no sample": in_samples(sampled(100, _SOUND, bson_of.null)),
    "no samples": in_samples(sampled(100)),
}


def in_unions(documents: list[bytes], policy: Policy) -> int:
    with eager():
        found = list(group_by_layout(Docs.of(documents), model_of(policy).union_rules))
    return sum(len(it.members) for it in found if it.present is not None)


@pytest.mark.parametrize("name", ["a slot too many, in the longest", "a field twice, not read"])
def test_what_fits_into_none_keeps_no_other_from_a_union(name: str) -> None:
    policy, documents = ALIKE[name]
    assert in_unions(documents, policy) >= 90


@pytest.mark.parametrize("name", ALIKE)
def test_what_looks_alike_is_told_as_one_by_one(name: str) -> None:
    policy, documents = ALIKE[name]
    batch = batch_of([Bucket(document) for document in documents])
    assert in_unions(documents[:-1], policy) >= 90
    where = model_of(policy).union_rules
    assert where is not None
    union = union_of(Docs.of(documents[:-1]), where.containers, where.is_sound, 2**30)
    assert union is not None
    rows, _, _ = union.take(Docs.of(documents[-1:] + documents[:1]))
    assert len(rows) == 1 + (name in ("nothing", "no slots"))
    check_as_one_by_one(batch, policy)


def test_a_union_of_samples_that_may_lack_their_time_is_not_sound() -> None:
    _, documents = in_samples(sampled(100, _SOUND))
    containers = Containers(frozenset([("in", "samples")]))
    union = union_of(Docs.of(documents), containers, lambda _: True, 2**30)
    assert union is not None and model_of(SAMPLES).shape(union.layout).times
    documents[50:] = [sampled(n, bson_of.sub(("val", bson_of.double(1.5)))) for n in range(50, 101)]
    union = union_of(Docs.of(documents), containers, lambda _: True, 2**30)
    assert union is not None
    assert union_of(Docs.of(documents), containers, lambda it: it.variants is None, 2**30) is None
    with pytest.raises(Breach, match="no time"):
        model_of(SAMPLES).shape(union.layout)


def check_flips(policy: Policy, found: list[Bucket], places: list[tuple[int, int]]) -> None:
    """One document with one bit changed: told and packed as one by one, whatever it is by then."""
    for at, bit in places:
        changed = [*found[:-1], found[-1]._replace(main=flipped(found[-1].main, at, bit))]
        batch = batch_of(changed)
        check_as_one_by_one(batch, policy)
        with suppress(*NO_BSON):
            decoded = decode(batch, policy)
            check_round_trip(policy, [changed[unit] for unit in sorted(decoded.units.tolist())])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
def test_a_flipped_bit_is_told_as_one_by_one(policy: Policy) -> None:
    chance = Random(3)
    writer = Writer(chance, policy)
    writer.missing, writer.odd, writer.size = 0.1, 0.05, 3
    found = writer.buckets(12)
    bits = [(at, bit) for at in range(len(found[-1].main)) for bit in range(8)]
    check_flips(policy, found, chance.sample(bits, examples(20)))


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES, ids=lambda it: f"{it.model} {it.value_fields[0]}")
@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_bit_is_told_as_one_by_one(policy: Policy, seed: int) -> None:
    found = Writer(Random(seed), policy).buckets(12)
    check_flips(policy, found, [(at, bit) for at in range(len(found[-1].main)) for bit in range(8)])
