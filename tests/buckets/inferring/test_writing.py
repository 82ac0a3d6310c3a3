"""Readings written as documents of every model, and read again: by plain Python, and as columns."""

from __future__ import annotations

import itertools
import random
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
import pytest
from bson.codec_options import CodecOptions
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.writing import (
    TARGETS,
    DocumentWriter,
    ExactReadings,
    Losses,
    Target,
    exact_of,
    in_order,
    misfits,
    target_named,
    target_of,
)
from bucketwise.config.models import make_policy

Document = dict[str, Any]
CODEC: CodecOptions[Document] = CodecOptions(tz_aware=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2018, 6, 30, 13, 30, tzinfo=UTC)
SOURCE = make_policy(
    name="it",
    collection="it",
    model="reading",
    time_field="d",
    series_fields=("symbol", "at.desk"),
    value_fields=("p", "book.size"),
)
#: A reading: symbol, desk, seconds after START, the two values.
Reading = tuple[str, int, int, Any, Any]

doubles = st.one_of(
    st.floats(), st.sampled_from([-0.0, struct.unpack("<d", bytes.fromhex("0100adbeefdef87f"))[0]])
)
numbers = st.one_of(doubles, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1).map(Int64))
readings = st.lists(
    st.tuples(
        st.sampled_from(["MDB", "Ä"]),
        st.sampled_from([1, 2]),
        st.integers(0, 9_000),
        numbers,
        numbers | st.none(),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda it: it[:3],
)


def batch_of(found: list[Reading], **more: Any) -> Batch:
    documents = []
    for number, (symbol, desk, seconds, p, size) in enumerate(found):
        body: Document = {"_id": number, "symbol": symbol, "at": {"desk": desk}, **more}
        body |= {"d": START + timedelta(seconds=seconds), "p": p}
        body |= {} if size is None else {"book": {"size": size}}
        documents.append(bson.encode(body))
    return Batch.of(Docs.of(documents))


def exact(found: list[Reading]) -> tuple[ExactReadings, SeriesTable]:
    table = SeriesTable()
    return in_order(exact_of(batch_of(found), SOURCE, table, Losses())[0]), table


def told(found: list[Reading]) -> Counter[tuple[Any, ...]]:
    """Each reading with the bytes that its values have in BSON."""
    return Counter(
        (symbol, desk, START + timedelta(seconds=seconds), bits(p), bits(size))
        for symbol, desk, seconds, p, size in found
    )


def bits(value: Any) -> bytes | None:
    return None if value is None else bson.encode({"": value})


def read(target: Target, document: Document) -> Iterator[tuple[Any, ...]]:
    """The readings of a document, by plain Python."""
    policy = target.policy
    meta = document.get("meta", document)
    series = meta["symbol"], meta["at"]["desk"]
    if policy.model in ("reading", "timeseries"):
        yield (*series, document["d"], bits(document.get("p")), bits(document.get("book", {}).get("size")))
    elif policy.model == "samples":
        samples = document["samples"]
        assert document["nsamples"] == len(samples) <= target.size
        assert (document["first"], document["last"]) == (samples[0]["d"], samples[-1]["d"])
        for it in samples:
            yield (*series, it["d"], bits(it.get("p")), bits(it.get("book", {}).get("size")))
    else:
        prices, sizes = slots(document.get("p", {})), slots(document.get("book", {}).get("size", {}))
        for offset in prices | sizes:
            when = document["d"] + timedelta(seconds=offset)
            yield (*series, when, bits(prices.get(offset)), bits(sizes.get(offset)))


def slots(held: Document) -> dict[int, Any]:
    """Seconds -> value: of a minute, or of minutes inside an hour."""
    found: dict[int, Any] = {}
    for key, value in held.items():
        if isinstance(value, dict):
            found |= {int(key) * 60 + int(second): it for second, it in value.items()}
        else:
            found[int(key)] = value
    return found


def written(
    target: Target, table: SeriesTable, parts: list[tuple[ExactReadings, int | None]]
) -> list[Document]:
    writer = DocumentWriter(target, table.series)
    made = [it for part, end in parts for it in writer.add(part, end)]
    return [bson.decode(bson.encode(it), CODEC) for it in made]


@given(readings, st.lists(st.integers(0, 9_000), max_size=4), st.sampled_from([*TARGETS, "samples-7"]))
def test_every_reading_is_there_to_the_bit(found: list[Reading], cuts: list[int], model: str) -> None:
    whole, table = exact(found)
    target = target_of(model, SOURCE, "other", is_whole_minutes=False)
    edges = [(START - EPOCH) // timedelta(milliseconds=1) + cut * 1000 for cut in sorted(cuts)]
    bounds = [-(2**62), *edges, 2**62]
    parts: list[tuple[ExactReadings, int | None]] = []
    for low, high in itertools.pairwise(bounds):
        part = whole.take(np.flatnonzero((whole.time >= low) & (whole.time < high)))
        parts.append((part, high if high != bounds[-1] else None))
    documents = written(target, table, parts)
    assert Counter(it for document in documents for it in read(target, document)) == told(found)
    ids = [it["_id"] for it in documents]
    assert len(set(ids)) == len(ids)

    def bodies(them: list[Document]) -> list[bytes]:
        return sorted(bson.encode({key: it for key, it in each.items() if key != "_id"}) for each in them)

    assert bodies(documents) == bodies(written(target, table, [(whole, None)]))  # however it was cut
    again = Batch.of(Docs.of([bson.encode(it) for it in documents]))
    read_again = in_order(exact_of(again, target.policy, table, losses := Losses())[0])
    assert whole.differing(read_again) == 0
    assert losses == Losses()


def test_what_differs_is_counted() -> None:
    whole, _ = exact([("MDB", 1, at, float(at), None) for at in range(5)])
    other, _ = exact([("MDB", 1, at, at if at == 2 else float(at), None) for at in range(5)])
    assert whole.differing(whole) == 0
    assert whole.differing(other) == 1  # 2 is no 2.0
    assert whole.differing(whole.take(slice(0, 3))) == 2


def test_what_no_model_carries_is_told() -> None:
    losses = Losses()
    odd: list[Reading] = [
        ("MDB", 1, at, it, None) for at, it in enumerate([1.5, Decimal128("1.10"), "word", True])
    ]
    exact_of(batch_of(odd, note={"by": "hand"}, tags=[1]), SOURCE, SeriesTable(), losses)
    assert losses.fields == Counter(note=4, tags=4)
    assert losses.by_reason() == {
        "readings whose p is a decimal": 1,
        "readings whose p is a string": 1,
        "readings whose p is a bool": 1,
    }


@pytest.mark.parametrize(
    ("unit", "time", "fine"),
    [
        ("us", Int64(1_530_365_400_000_001), True),
        ("us", Int64(1_530_365_400_001_000), False),
        ("s", 1_530_365_400.0005, True),
        ("s", 1_530_365_400.125, False),
        ("s", 1_530_365_400, False),
        ("ns", Int64(1_530_365_400_000_000_001), True),
        ("iso", "2018-06-30T13:30:00.0001Z", True),
        ("iso", "2018-06-30T13:30:00.100Z", False),
    ],
)
def test_times_finer_than_a_millisecond_are_told(unit: Any, time: Any, fine: bool) -> None:
    policy = SOURCE.model_copy(update={"time_unit": unit, "series_fields": ("symbol",)})
    document = bson.encode({"_id": 1, "symbol": "MDB", "d": time, "p": 1.0})
    losses = Losses()
    exact_of(Batch.of(Docs.of([document])), policy, SeriesTable(), losses)
    assert bool(losses.by_reason()) is fine


@pytest.mark.parametrize("unit", ["us", "iso"])
def test_times_of_several_types_are_as_fine_as_each_is(unit: Any) -> None:
    policy = make_policy(
        name="it", collection="it", model="samples", series_fields=("symbol",), value_fields=("p",),
        samples_field="s", sample_time_field="t", sample_time_unit=unit, start_field="first",
    )  # fmt: skip
    rng = random.Random(7)
    documents, fine = [], 0
    for number in range(300):
        samples: list[Document] = []
        for i in range(rng.randint(1, 8)):
            at, more = START + timedelta(seconds=i), rng.random() < 0.1
            told: Any = f"{at:%Y-%m-%dT%H:%M:%S}{'.0001' if more else ''}Z"
            if unit == "us":
                told = Int64(int(at.timestamp()) * 1_000_000 + more)
            is_date = rng.random() < 0.3
            samples.append({"p": 1.5, "t": at if is_date else told})
            fine += more and not is_date
        documents.append(bson.encode({"_id": number, "symbol": "MDB", "first": START, "s": samples}))
    losses = Losses()
    exact_of(Batch.of(Docs.of(documents)), policy, SeriesTable(), losses)
    assert losses.by_reason() == {"readings whose time is finer than a millisecond": fine}


def test_what_slots_have_no_place_for() -> None:
    target = target_of("slots-hour", SOURCE, "other", is_whole_minutes=True)
    twice: list[Reading] = [
        ("MDB", 1, 1800, 1.0, None),
        ("MDB", 1, 1830, 1.0, None),
        ("Ä", 1, 1800, None, None),
    ]
    assert [count for _, count in misfits(target, exact(twice)[0])] == [1, 0, 1]
    assert list(misfits(target_of("samples-9", SOURCE, "o", is_whole_minutes=True), exact(twice)[0])) == []


def test_names_of_models() -> None:
    assert [target_named(it) for it in ("slots", "native", "samples", "samples-33")] == [
        "slots-minute",
        "timeseries",
        "samples-200",
        "samples-33",
    ]
    assert [target_named(it) for it in ("samples-0", "samples-99999", "slot", "")] == [None] * 4


def test_documents_in_memory_are_fewer_where_they_are_large() -> None:
    models = ("reading", "timeseries", "samples-50", "slots-minute", "slots-hour", "samples-10000")
    sizes = [target_of(it, SOURCE, "other", is_whole_minutes=False).write_batch_size for it in models]
    assert sizes == [2_000, 2_000, 2_000, 1_666, 27, 10]
