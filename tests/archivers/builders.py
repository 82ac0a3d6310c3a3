"""Collections of every bucket model, with the readings they hold told in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import bson
from bson.binary import UUID_SUBTYPE, Binary
from bson.codec_options import CodecOptions
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Archive, Overflow, Policy

Document = dict[str, Any]
CODEC: CodecOptions[Document] = CodecOptions(tz_aware=True, uuid_representation=4)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, tz_aware=True, uuid_representation=4
)
DAY0 = datetime(2018, 6, 30, tzinfo=UTC)
#: Everything that the builders make has expired by then.
LATER = datetime(2018, 12, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)

#: series, time, value of the first value field (None: no number)
Reading = tuple[tuple[Any, ...], datetime, float | None]


@dataclass(frozen=True)
class Case:
    """A policy, the documents of its collections, and what readings lie in them."""

    name: str
    policy: Policy
    documents: list[bytes]
    readings: list[Reading]
    overflow: list[bytes] = field(default_factory=list)

    def with_archive(self, **changes: Any) -> Case:
        """The same with another archive table."""
        assert self.policy.archive is not None
        archive = self.policy.archive.model_copy(update=changes)
        policy = self.policy.model_copy(update={"archive": archive})
        return Case(self.name, policy, self.documents, self.readings, self.overflow)

    def of_any_time(self) -> Case:
        """Returns the case with a policy for which all times are plausible."""
        policy = self.policy.model_copy(update={"earliest": "0001-01-01"})
        return Case(self.name, policy, self.documents, self.readings, self.overflow)

    def online(self) -> Case:
        return self.with_archive(to="online", collection=f"{self.policy.collection}_archive")

    def load(self, database: Database[Document]) -> None:
        """Insert everything as it is."""
        if self.policy.model == "timeseries":
            options = {"timeField": "d", "metaField": "symbol", "granularity": "seconds"}
            database.create_collection(self.policy.collection, timeseries=options)
        insert(database, self.policy.collection, self.documents)
        if self.policy.overflow is not None:
            insert(database, self.policy.overflow.collection, self.overflow)


def insert(database: Database[Document], collection: str, documents: Sequence[bytes]) -> None:
    if documents:
        raw = [RawBSONDocument(document, RAW) for document in documents]
        database.get_collection(collection, codec_options=RAW).insert_many(raw)


def raw_documents(database: Database[Document], collection: str) -> list[bytes]:
    """All documents as they lie there, sorted by their bytes."""
    found: Any = database.get_collection(collection, codec_options=RAW).find()
    return sorted(bytes(document.raw) for document in found)


def encode(document: Document) -> bytes:
    return bson.encode(document, codec_options=CODEC)


def offline() -> Archive:
    return Archive(after=timedelta(days=30), to="offline")


def reading() -> Case:
    """Documents of one reading, with everything in them that columns can't carry."""
    policy = make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("symbol",),
        value_fields=("p", "q"),
        archive=offline(),
    )
    odd: list[Any] = [
        Int64(2**60 + 1), Decimal128("1.10"), float("nan"), float("inf"), -0.0, None, "a word", 7, Int64(7),
        True,
    ]  # fmt: skip
    documents: list[bytes] = []
    readings: list[Reading] = []
    for i in range(300):
        at = DAY0 + i * timedelta(minutes=11)  # two days and a bit
        symbol = ("MDB", "ORCL", "Ä")[i % 3]
        value: Any = odd[i % 10] if i % 7 == 0 else round(50 + i / 8, 3)
        document: Document = {"_id": _identity(i), "symbol": symbol, "d": at, "p": value}
        if i % 2:
            document["q"] = Int64(i)
        if i % 5 == 0:
            document["note"] = {"by": "hand", "tags": ["x", i], "none": None}
        documents.append(encode(document))
        readings.append(((symbol,), at, _number(value)))
    return Case("reading", policy, documents, readings)


def _identity(i: int) -> Any:
    """`_id`s of many types."""
    return (
        ObjectId(bytes([0] * 8 + list(i.to_bytes(4, "big")))),
        i,
        f"id-{i}",
        {"s": i % 3, "n": Int64(i)},
        Binary(i.to_bytes(16, "big"), UUID_SUBTYPE),
        DAY0 + i * MINUTE,
        i + 0.5,
    )[i % 7]


def _number(value: Any) -> float | None:
    if isinstance(value, Decimal128):
        return float(value.to_decimal())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def slots(slot: Literal["second", "minute"] = "second") -> Case:
    """A document a minute (an hour) of slots; some are missing, some null."""
    step, length = (SECOND, MINUTE) if slot == "second" else (MINUTE, HOUR)
    policy = make_policy(
        name="slots",
        collection="slots",
        model="slots",
        time_field="d",
        series_fields=("meta.symbol",),
        value_fields=("p",),
        slot=slot,
        archive=offline(),
    )
    documents: list[bytes] = []
    readings: list[Reading] = []
    for i in range(40):
        start = DAY0 + timedelta(hours=23, minutes=50) * (slot == "second") + (i // 2) * length
        symbol = ("MDB", "ORCL")[i % 2]
        held: Document = {str(n): 50 + (i * n % 40) / 4 for n in range(60) if (n * i) % 11 != 3}
        if i % 4 == 0:
            held["59"] = None
        documents.append(encode({"_id": i, "p": held, "meta": {"symbol": symbol}, "d": start}))
        readings += [
            ((symbol,), start + int(n) * step, _number(value))
            for n, value in held.items()
            if value is not None
        ]
    return Case(f"slots-{slot}", policy, documents, readings)


def samples(times: str = "epoch") -> Case:
    """Arrays of samples, with the fields that the writer keeps; one of them is empty."""
    by_date = times == "dates"
    policy = make_policy(
        name="iot",
        collection="iot",
        model="samples",
        series_fields=("deviceid", "sensorid"),
        value_fields=("val",),
        samples_field="samples",
        sample_time_field="time",
        start_field="first",
        end_field="last",
        count_field="nsamples",
        sum_fields={"val": "sum"},
        archive=offline(),
    )
    documents: list[bytes] = []
    readings: list[Reading] = []
    for i in range(60):
        first = DAY0 - timedelta(hours=1) + i * timedelta(minutes=37)
        moments = [first + n * timedelta(seconds=100) for n in range(i % 9)]
        values = [i + n / 4 for n in range(len(moments))]
        last = moments[-1] if moments else first

        def told(at: datetime) -> Any:
            return at if by_date else int(at.timestamp())

        inner = [{"val": value, "time": told(at)} for at, value in zip(moments, values, strict=True)]
        document = {
            "_id": f"{i:03d}",
            "deviceid": 1000 + i % 2,
            "sensorid": Int64(3) if i % 4 else 3,
            "nsamples": len(inner),
            "sum": sum(values),
            "first": told(first),
            "last": told(last),
            "samples": inner,
        }
        documents.append(encode(document))
        readings += [((1000 + i % 2, 3), at, value) for at, value in zip(moments, values, strict=True)]
    return Case(f"samples-{times}", policy, documents, readings)


def before_1970() -> Case:
    """Epoch seconds below zero, and across it."""
    policy = samples().policy
    documents: list[bytes] = []
    readings: list[Reading] = []
    for i in range(6):
        start = -200_000 + i * 40_000
        inner = [{"val": float(n), "time": start + n * 10_000} for n in range(4)]
        document = {
            "_id": i, "deviceid": 1, "sensorid": 2, "nsamples": 4, "sum": 6.0, "first": start,
            "last": start + 30_000, "samples": inner,
        }  # fmt: skip
        documents.append(encode(document))
        readings += [
            ((1, 2), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=s["time"]), s["val"]) for s in inner
        ]
    return Case("before-1970", policy, documents, readings).of_any_time()


def samples_overflow() -> Case:
    """Every third bucket has more samples elsewhere; some have several documents of them."""
    base = samples("dates")
    overflow = Overflow(
        flag_field="has_extras", collection="iot_extra", ref_field="bucket_id", samples_field="more"
    )
    policy = base.policy.model_copy(update={"overflow": overflow, "sum_fields": {}})
    documents, extra = [], []
    readings = list(base.readings)
    for i, raw in enumerate(base.documents):
        document = bson.decode(raw, CODEC)
        if i % 3 == 0:
            document["has_extras"] = True
            for part in range(1 + i % 2):
                at = document["first"] + timedelta(milliseconds=part)
                document["last"] = max(document["last"], at)
                more = [{"val": 1000.0 + i + part, "time": at}]
                extra.append(
                    encode({"_id": ObjectId(), "bucket_id": document["_id"], "more": more, "p": part})
                )
                readings.append(((document["deviceid"], 3), at, 1000.0 + i + part))
        documents.append(encode(document))
    return Case("samples-overflow", policy, documents, readings, extra)


def slots_overflow() -> Case:
    """Slots that did not fit lie in a second document."""
    base = slots("second")
    overflow = Overflow(
        flag_field="meta.more", collection="slots_extra", ref_field="of", samples_field="extra"
    )
    policy = base.policy.model_copy(update={"overflow": overflow})
    documents, extra = [], []
    readings = list(base.readings)
    for i, raw in enumerate(base.documents):
        document = bson.decode(raw, CODEC)
        if i % 5 == 1:
            document["meta"]["more"] = True
            extra.append(encode({"of": document["_id"], "_id": i + 0.5, "extra": {"3": 99.5, "4": 98.5}}))
            at, series = document["d"], (document["meta"]["symbol"],)
            readings += [(series, at + 3 * SECOND, 99.5), (series, at + 4 * SECOND, 98.5)]
        documents.append(encode(document))
    return Case("slots-overflow", policy, documents, readings, [_id_first(raw) for raw in extra])


def _id_first(raw: bytes) -> bytes:
    """As the server puts it."""
    document = bson.decode(raw, CODEC)
    return encode({"_id": document.pop("_id"), **document})


def timeseries() -> Case:
    policy = make_policy(
        name="weather",
        collection="weather",
        model="timeseries",
        time_field="d",
        series_fields=("symbol",),
        value_fields=("p",),
        archive=offline(),
    )
    documents: list[bytes] = []
    readings: list[Reading] = []
    for i in range(200):
        at, symbol = DAY0 + i * timedelta(minutes=9), ("here", "there")[i % 2]
        documents.append(encode({"_id": ObjectId(), "d": at, "symbol": symbol, "p": i / 4}))
        readings.append(((symbol,), at, i / 4))
    return Case("timeseries", policy, documents, readings)


def deletable() -> list[Case]:
    """Every model whose buckets a run may delete."""
    return [
        reading(),
        slots("second"),
        slots("minute"),
        samples("epoch"),
        samples("dates"),
        before_1970(),
        samples_overflow(),
        slots_overflow(),
    ]
