"""The collections of the soak, one of each way to keep readings, and the application that writes them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, ClassVar

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument, WriteConcern
from pymongo.database import Database

from tests.soak.register import Reading, Register

Document = dict[str, Any]
OPTIONS: bson.CodecOptions[Document] = bson.CodecOptions(tz_aware=True)
RAW = bson.CodecOptions(document_class=RawBSONDocument, tz_aware=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SERIES = ("A", "B", "C")
#: All sources count on.
_serial = count(1)


def milliseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(milliseconds=1)


@dataclass
class Source(ABC):
    """A collection, its policy, and what the application does to it. `end`: how long its archive stays."""

    database: Database[Document]
    random: random.Random
    register: Register = field(default_factory=Register)
    #: `_id`s of buckets that may be live.
    recent: list[Any] = field(default_factory=list)
    #: Series that are being erased: nobody writes them.
    closed: set[str] = field(default_factory=set)
    #: What the policy says of the archive, and which percentiles it keeps, as last edited.
    archived: str = ""
    percentiles: str = "50, 99"

    name: ClassVar[str]
    policy: ClassVar[str]
    archive: ClassVar[str]
    end: ClassVar[timedelta | None] = None
    #: How late a reading may come.
    latest: ClassVar[timedelta] = timedelta(days=40)
    is_online: ClassVar[bool] = False
    #: Whether originals are.
    is_deleted: ClassVar[bool] = True
    series_field: ClassVar[str]
    value_field: ClassVar[str]
    overflow: ClassVar[str | None] = None
    indexed: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        self.archived = self.archive
        self.create()

    def edit(self) -> None:
        """Has the policy archive sooner or later, wait longer or not at all, or keep other percentiles."""
        after, grace = self.random.choice((7, 8, 10, 12, 14)), self.random.choice((0, 0, 3, 6, 48))
        self.archived = f'after = "{after}d"\n' + (
            f'grace = "{grace}h"\n' if grace and self.is_deleted else ""
        )
        if self.random.random() < 0.25:
            self.percentiles = self.random.choice(("50, 99", "5, 50, 95", "50"))

    def create(self) -> None:
        """Creates what an application would."""
        for field_name in self.indexed:
            self.database[self.name].create_index(field_name)
        if self.overflow:
            self.database[self.overflow].create_index("of")

    @property
    def text(self) -> str:
        """The policy, as it stands in the file."""
        name = self.name
        target = f'to = "online"\ncollection = "{name}_archive"' if self.is_online else 'to = "offline"'
        retain = f'archive = "{self.end.days}d"\narchive_grace = "2d"\n' if self.end else ""
        rollup = f'hourly = "{name}_hourly"\ndaily = "{name}_daily"\npercentiles = [{self.percentiles}]'
        return (
            f'[policies.{name}]\ncollection = "{name}"\n{self.policy}'
            f"[policies.{name}.rollup]\n{rollup}\n"
            f"[policies.{name}.archive]\n{target}\n{self.archived}"
            f'[policies.{name}.retain]\nhourly = "200d"\n{retain}'
        )

    @abstractmethod
    def document(self, series: str, at: datetime) -> Document:
        """A new bucket of about this time."""

    @abstractmethod
    def readings(self, document: Document) -> Iterator[Reading]:
        """Yields what a document of the collection, or of its archive, holds."""

    def changes(self) -> Sequence[Callable[[], None]]:
        """What may be done to buckets that are there."""
        return ()

    def extras(self, document: Document) -> list[Document]:  # noqa: ARG002
        """Overflow of a new bucket."""
        return []

    # Writing

    def write_hours(self, since: datetime, until: datetime) -> None:
        """The buckets of a span, a few for each of its hours; one in twelve belongs much earlier."""
        made = []
        for number in range((until - since) // HOUR):
            for series in self.open_series():
                at = since + number * HOUR + timedelta(seconds=self.random.randrange(3000))
                if self.random.random() < 1 / 12:
                    at -= self.latest * self.random.random()
                made.append(self.document(series, at))
        self.insert(made)
        self.recent = self.recent[-600:]

    def open_series(self) -> list[str]:
        return [it for it in SERIES if it not in self.closed]

    def insert(self, documents: Iterable[Document]) -> None:
        documents = list(documents)
        if not documents:
            return
        extras = {it["_id"]: self.extras(it) for it in documents}
        if self.overflow and (more := [it for some in extras.values() for it in some]):
            self.collection(self.overflow).insert_many(more)
        self.collection(self.name).insert_many(documents)
        for it in documents:
            readings = [
                *self.readings(it),
                *(one for more in extras[it["_id"]] for one in self.readings(more)),
            ]
            self.register.inserted(it["_id"], bson.encode(it), readings)
            self.recent.append(it["_id"])

    def change(self) -> None:
        """Does one thing to one bucket."""
        if self.recent and (changes := self.changes()):
            self.random.choice(changes)()

    def delete(self) -> None:
        identity = self.some()
        if (found := self.collection(self.name).find_one_and_delete({"_id": identity})) is not None:
            extras: list[Document] = []
            if self.overflow:
                extras = list(self.collection(self.overflow).find({"of": identity}))
                self.collection(self.overflow).delete_many({"of": identity})
            gone = [*self.readings(found), *(one for more in extras for one in self.readings(more))]
            self.register.deleted(identity, gone)

    def some(self) -> Any:
        """The `_id` of a bucket; nobody changes one of a series that is being erased."""
        while True:
            identity = self.random.choice(self.recent)
            if not {it.series for it in self.register.units[identity].readings.values()} & self.closed:
                return identity

    def update(self, identity: Any, update: Document, *, upsert: bool = False) -> None:
        """Changes a bucket where it is live, or by `upsert` else makes another one of its `_id`."""
        if (found := self.updated(identity, update, upsert=upsert)) is not None:
            self.register.changed(identity, self.readings(found))

    def updated(self, identity: Any, update: Document, *, upsert: bool = False) -> Document | None:
        found: Document | None = self.collection(self.name).find_one_and_update(
            {"_id": identity}, update, upsert=upsert, return_document=ReturnDocument.AFTER
        )
        return found

    def collection(self, name: str) -> Any:
        return self.database.get_collection(name, OPTIONS, write_concern=WriteConcern("majority"))

    # Reading

    def live(self) -> Iterator[Reading]:
        return self._read(self.name, self.overflow)

    def online(self) -> Iterator[Reading]:
        """What the online archive holds."""
        return self._read(f"{self.name}_archive", f"{self.name}_archive_overflow" if self.overflow else None)

    def _read(self, *names: str | None) -> Iterator[Reading]:
        for name in filter(None, names):
            for document in self.database.get_collection(name, OPTIONS).find():
                yield from self.readings(document)

    def value(self) -> float:
        return next(_serial) / 8

    def identity(self) -> int:
        return next(_serial)


class Ticks(Source):
    """A document a reading; some are corrected, moved, deleted, and their `_id`s taken again."""

    name, series_field, value_field = "ticks", "symbol", "p"
    policy = 'model = "reading"\ntime_field = "d"\nseries_fields = ["symbol"]\nvalue_fields = ["p"]\n'
    archive, indexed = 'after = "10d"\n', ("d",)

    def document(self, series: str, at: datetime) -> Document:
        return {"_id": self.identity(), "symbol": series, "d": at, "p": self.value()}

    def readings(self, document: Document) -> Iterator[Reading]:
        yield Reading(document["symbol"], milliseconds(document["d"]), document["p"])

    def changes(self) -> Sequence[Callable[[], None]]:
        return self.correct, self.correct, self.move, self.delete, self.write_anew

    def correct(self) -> None:
        self._set({"p": self.value()})

    def move(self) -> None:
        hours = self.random.choice((-30, -2, 2)) * HOUR
        identity = self.some()
        if (found := self.collection(self.name).find_one({"_id": identity})) is not None:
            self._set({"d": found["d"] + hours, "p": self.value()}, identity)

    def write_anew(self) -> None:
        """Under the `_id` of one that was deleted just before."""
        identity = self.some()
        found = self.collection(self.name).find_one_and_delete({"_id": identity})
        if found is not None:
            self.register.deleted(identity, self.readings(found))
            self.insert([found | {"p": self.value()}])

    def _set(self, fields: Document, identity: Any = None) -> None:
        identity = self.some() if identity is None else identity
        if (found := self.updated(identity, {"$set": fields})) is not None:
            self.register.replaced(identity, self.readings(found))


class Desks(Ticks):
    """The same, archived online after a while, until the archive ends."""

    name, is_online, end = "desks", True, timedelta(days=150)
    archive = 'after = "12d"\ngrace = "3h"\n'


class Minutes(Source):
    """A document a minute, its seconds as keys; one `_id` a minute and series: late seconds are upserted."""

    name, series_field, value_field = "minutes", "symbol", "p"
    policy = (
        'model = "slots"\nslot = "second"\nsparse_ok = true\ntime_field = "d"\n'
        'series_fields = ["symbol"]\nvalue_fields = ["p"]\n'
    )
    archive, indexed = 'after = "7d"\ngrace = "6h"\n', ("d",)

    def document(self, series: str, at: datetime) -> Document:
        minute = at.replace(second=0, microsecond=0)
        while (identity := f"{series}_{minute:%Y%m%d%H%M}") in self.register.units or identity in self._made:
            minute += timedelta(minutes=1)
        self._made.add(identity)
        slots = {str(self.random.randrange(60)): self.value() for _ in range(4)}
        return {"_id": identity, "symbol": series, "d": minute, "p": slots}

    def create(self) -> None:
        super().create()
        self._made: set[str] = set()

    def readings(self, document: Document) -> Iterator[Reading]:
        start = milliseconds(document["d"])
        for second, value in document["p"].items():
            yield Reading(document["symbol"], start + int(second) * 1000, value)

    def changes(self) -> Sequence[Callable[[], None]]:
        return self.set_slot, self.set_slot, self.upsert_late, self.upsert_late, self.delete

    def set_slot(self) -> None:
        """Where the bucket is live."""
        self._set(self.some(), self.random.randrange(60), upsert=False)

    def upsert_late(self) -> None:
        """A second that was not there, of a bucket that may be archived."""
        identity = self.some()
        taken = {it.time // 1000 % 60 for it in self.register.units[identity].readings.values()}
        if free := [it for it in range(60) if it not in taken]:
            self._set(identity, self.random.choice(free), upsert=True)

    def _set(self, identity: str, slot: int, *, upsert: bool) -> None:
        symbol, _, minute = identity.partition("_")
        start = datetime.strptime(minute, "%Y%m%d%H%M").replace(tzinfo=UTC)
        update = {"$set": {f"p.{slot}": self.value()}, "$setOnInsert": {"symbol": symbol, "d": start}}
        self.update(identity, update, upsert=upsert)


class Iot(Source):
    """Arrays of samples with overflow, in an archive that ends."""

    name, series_field, value_field, overflow = "iot", "device", "val", "iot_more"
    end = timedelta(days=120)
    policy = (
        'model = "samples"\nseries_fields = ["device"]\nvalue_fields = ["val"]\nsamples_field = "held"\n'
        'sample_time_field = "time"\nstart_field = "first"\nend_field = "last"\ncount_field = "n"\n'
        '[policies.iot.overflow]\nflag_field = "more"\ncollection = "iot_more"\nref_field = "of"\n'
        'samples_field = "held"\n'
    )
    archive, indexed = 'after = "10d"\nbatch = "6h"\n', ("first", "last")

    def document(self, series: str, at: datetime) -> Document:
        first = round(at.timestamp())
        held = [{"val": self.value(), "time": first + 10 * i} for i in range(3)]
        own: Document = {"_id": self.identity(), "device": series, "n": 3, "first": first, "last": first + 90}
        return own | ({"more": True} if self.random.random() < 0.2 else {}) | {"held": held}

    def extras(self, document: Document) -> list[Document]:
        if "more" not in document:
            return []
        held = [{"val": self.value(), "time": document["first"] + 50 + i} for i in range(2)]
        return [{"_id": self.identity(), "of": document["_id"], "device": document["device"], "held": held}]

    def readings(self, document: Document) -> Iterator[Reading]:
        for sample in document["held"]:
            yield Reading(document["device"], sample["time"] * 1000, sample["val"])

    def changes(self) -> Sequence[Callable[[], None]]:
        return self.push, self.push, self.correct, self.delete

    def push(self) -> None:
        identity = self.some()
        known = self.register.units[identity].readings.values()
        if not known:
            return
        at = max(it.time for it in known) // 1000 + 1
        update = {
            "$push": {"held": {"val": self.value(), "time": at}},
            "$inc": {"n": 1},
            "$max": {"last": at},
        }
        self.update(identity, update)

    def correct(self) -> None:
        self.update(self.some(), {"$set": {"held.0.val": self.value()}})


class Rooms(Source):
    """Arrays of samples whose times are dates, archived online; late samples are upserted."""

    name, series_field, value_field, is_online = "rooms", "room", "v", True
    policy = (
        'model = "samples"\nseries_fields = ["room"]\nvalue_fields = ["v"]\nsamples_field = "held"\n'
        'sample_time_field = "at"\nstart_field = "start"\nend_field = "end"\n'
    )
    archive, indexed = 'after = "10d"\n', ("start", "end")

    def document(self, series: str, at: datetime) -> Document:
        at = at.replace(microsecond=0)
        held = [{"at": at + timedelta(seconds=20 * i), "v": self.value()} for i in range(3)]
        end = at + timedelta(seconds=40)
        return {"_id": self.identity(), "room": series, "start": at, "end": end, "held": held}

    def readings(self, document: Document) -> Iterator[Reading]:
        for sample in document["held"]:
            yield Reading(document["room"], milliseconds(sample["at"]), sample["v"])

    def changes(self) -> Sequence[Callable[[], None]]:
        return self.push, self.upsert_late, self.upsert_late, self.delete

    def push(self) -> None:
        self._push(upsert=False)

    def upsert_late(self) -> None:
        self._push(upsert=True)

    def _push(self, *, upsert: bool) -> None:
        identity = self.some()
        known = self.register.units[identity].readings.values()
        if not known:
            return
        at = EPOCH + timedelta(milliseconds=max(it.time for it in known) + 1000)
        update: Document = {"$push": {"held": {"at": at, "v": self.value()}}, "$max": {"end": at}}
        update["$setOnInsert"] = {"room": next(iter(known)).series, "start": at}
        self.update(identity, update, upsert=upsert)


class Native(Source):
    """A native time-series collection: written once. Without change streams, roll-ups look back `recheck`."""

    latest = timedelta(hours=40)
    name, series_field, value_field = "native", "meta.s", "v"
    policy = 'model = "timeseries"\ntime_field = "t"\nseries_fields = ["meta.s"]\nvalue_fields = ["v"]\n'
    archive, is_deleted = 'after = "10d"\n', False

    def create(self) -> None:
        self.database.create_collection(self.name, timeseries={"timeField": "t", "metaField": "meta"})

    def document(self, series: str, at: datetime) -> Document:
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        return {"_id": self.identity(), "t": at, "meta": {"s": series}, "v": self.value()}

    def readings(self, document: Document) -> Iterator[Reading]:
        yield Reading(document["meta"]["s"], milliseconds(document["t"]), document["v"])


SOURCES: tuple[type[Source], ...] = (Ticks, Minutes, Iot, Rooms, Desks, Native)
