"""A database, a store, the ledger of what was written to them, and the suite at work on them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.reading.formats import Format
from bucketwise.buckets.bson.raw import LOSSLESS
from bucketwise.jobs.core.execution import execute
from bucketwise.jobs.suite import load
from tests.acceptance.expected import Key, assert_summary, windows
from tests.acceptance.written import Bucket, Document, Entry, Id, Model, entries, instant, update

KINDS = ("hourly", "daily")
NAME = "it"


class Mode(NamedTuple):
    """How late readings are found. A scan sees all that lies within `recheck`; what lies beyond it is left to
    the change stream, which tells more where collections keep pre-images."""

    late_data: str
    recheck: str
    pre_images: bool = False


SCAN = Mode("scan", "400d")
MODES = [SCAN, Mode("auto", "1h"), Mode("auto", "1h", pre_images=True)]


class World:
    """A database, a store, the ledger of what was written to them, and the command line."""

    def __init__(self, client: MongoClient[Document], uri: str, model: Model, to: str) -> None:
        self.database: Database[Document] = client[f"test_{uuid.uuid4().hex[:12]}"]
        self.model = model
        self.uri = uri
        self.to = to
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.live: dict[Id, Bucket] = {}
        self.archived: dict[Id, Bucket] = {}  # as they were when they left
        self.again: set[Id] = set()  # archived ones of which a copy was written once more
        self.stood: set[tuple[str, Key]] = set()  # summaries that were right once
        self.documents: dict[Id, list[tuple[str, RawBSONDocument]]] = {}  # of archived buckets
        self.superseded: list[list[bytes]] = []  # archived, and replaced by others that hold less
        self.ids = 0
        if model.name == "timeseries":
            self.database.create_collection(NAME, timeseries={"timeField": "d", "metaField": "dev"})
        else:
            self.source.create_index("d" if "samples" not in model.name else [("last", 1), ("first", 1)])

    @property
    def source(self) -> Any:
        return self.database[NAME]

    @property
    def overflow(self) -> Any:
        return self.database[f"{NAME}_more"]

    def configure(self, zone: str, mode: Mode) -> None:
        self.zone, self.mode = zone, mode
        for name in (NAME, f"{NAME}_more") if mode.pre_images else ():
            if name not in self.database.list_collection_names():
                self.database.create_collection(name)
            self.database.command("collMod", name, changeStreamPreAndPostImages={"enabled": True})
        (self.folder / "store").mkdir(exist_ok=True)
        target = f'collection = "{NAME}_archive"\n' if self.to == "online" else ""
        (self.folder / "bucketwise.toml").write_text(
            f'[mongodb]\nuri = "{self.uri}"\ndatabase = "{self.database.name}"\n'
            f'[store]\nurl = "{(self.folder / "store").as_uri()}"\n'
            f"{self.model.toml(NAME)}[policies.{NAME}.rollup]\n"
            f'hourly = "hourly"\ndaily = "daily"\ntimezone = "{zone}"\npercentiles = [50, 99, 99.9]\n'
            f'late_data = "{mode.late_data}"\nrecheck = "{mode.recheck}"\n'
            f'[policies.{NAME}.archive]\nafter = "36h"\nto = "{self.to}"\n{target}'
        )

    def close(self) -> None:
        self.database.client.drop_database(self.database.name)
        self.home.cleanup()

    # What the application does

    def new_id(self) -> Id:
        """Those that come later do not sort later."""
        self.ids += 1
        number = self.ids * 7919 % 10_007
        return f"b{number}" if self.ids % 3 == 0 else number

    def insert(self, bucket: Bucket) -> None:
        for document in self.model.more(bucket):
            self.overflow.insert_one(document)
        self.source.insert_one(self.model.main(bucket))
        self.live[bucket.id] = bucket

    def edit(self, bucket: Bucket, whole: bool) -> None:
        """Writes a bucket in place of the live one with its `_id`: the difference, or the whole."""
        before = self.live[bucket.id]
        old = {it["_id"]: it for it in self.model.more(before)}
        new = {it["_id"]: it for it in self.model.more(bucket)}
        for name in {**old, **new}:
            self._write(self.overflow, old.get(name), new.get(name), whole)
        bucket.bounds = before.bounds
        self._write(self.source, self.model.main(before), self.model.main(bucket), whole)
        self.live[bucket.id] = bucket

    def _write(self, into: Any, old: Document | None, new: Document | None, whole: bool) -> None:
        if new is None:
            assert old is not None
            into.delete_one({"_id": old["_id"]})
        elif old is None or whole:
            into.replace_one({"_id": new["_id"]}, new, upsert=True)
        elif difference := update(old, new):
            assert into.update_one({"_id": new["_id"]}, difference).matched_count == 1

    def delete(self, identity: Id) -> None:
        bucket = self.live.pop(identity)
        self.source.delete_one({"_id": identity})
        self.overflow.delete_many({"of": identity})
        assert bucket.id == identity

    def write_again(self, identity: Id) -> None:
        for collection, document in self.documents[identity]:
            self.database.get_collection(collection, codec_options=LOSSLESS).insert_one(document)
        self.again.add(identity)

    # What the suite does

    def __call__(self, verb: str, *, now: datetime, codes: tuple[int, ...] = (0,), **given: Any) -> str:
        """Runs a verb in this process, past the parsing of arguments; what it prints."""
        common = {
            "config": self.folder / "bucketwise.toml",
            "now": now.isoformat(),
            "quiet": True,
            "yes": True,
        }
        common["json"] = given.pop("json", False)
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            job = load(verb)
            code = execute(job, common, job.bind(given))
        out.seek(0)
        text = out.read()
        assert code in codes, (verb, given, code, text, err.getvalue())
        return text

    def work(self, verb: str, *, now: datetime, **given: Any) -> Document:
        """Runs a verb that may archive, and notes in the ledger what has left."""
        before = self._raw()
        report: Document = json.loads(self(verb, json=True, now=now, **given))["policies"][0]
        if self.model.name == "timeseries":
            return report
        here = {document["_id"] for document in self.source.find({}, {"_id": 1})}
        self.again &= here
        for identity in [it for it in self.live if it not in here]:
            if identity in self.archived and self._lacks(self.live[identity], self.archived[identity]):
                self.superseded.append([bytes(it.raw) for _, it in self.documents[identity]])
            self.archived[identity] = self.live.pop(identity)
            self.documents[identity] = before[identity]
        assert here == {*self.live, *self.again}
        return report

    def _lacks(self, bucket: Bucket, older: Bucket) -> bool:
        return bool(self._values(older) - self._values(bucket))

    def _values(self, bucket: Bucket) -> Counter[tuple[int, int, int, bytes]]:
        """Returns the values of a bucket, each with its time, series and place."""
        return Counter(
            (entry.at, entry.series, place, bson.encode({"": value}))
            for entry in entries(self.model, [bucket])
            for place, value in enumerate(entry.values)
            if value is not None
        )

    def _raw(self) -> dict[Id, list[tuple[str, RawBSONDocument]]]:
        found: dict[Id, list[tuple[str, RawBSONDocument]]] = {}
        for name, key in ((NAME, "_id"), (f"{NAME}_more", "of")):
            if name == NAME or self.model.overflow:
                for document in self.database.get_collection(name, codec_options=LOSSLESS).find():
                    found.setdefault(document[key], []).append((name, document))  # type: ignore[arg-type]
        return found

    def restore(self, since: datetime, until: datetime, now: datetime) -> None:
        """Into the source. What was archived and is live again is the application's to change."""
        span = {"since": since.isoformat(), "until": until.isoformat()}
        self("restore", **span, to=NAME, now=now, codes=(0, 1))
        for document in self.source.find({}, {"_id": 1}):
            identity = document["_id"]
            if identity not in self.live and identity not in self.again:
                self.live[identity] = self.archived[identity].copy()

    # What must hold

    def ledger(self) -> list[Entry]:
        """Live counts, and not its copy."""
        return entries(self.model, {**self.archived, **self.live}.values())

    def summaries(self, kind: str) -> dict[Key, Document]:
        return {(it["dev"], it["start"]): it for it in self.database[kind].find()}

    def check(self, now: datetime, only: Callable[[Key, datetime], bool] | None = None) -> None:
        """Every summary is that of the ledger, and there is no other. `only` says of a window whether it was
        looked at; one that lost all its readings before `recheck` may then wait for the stream to tell."""
        found = self.ledger()
        for kind in KINDS:
            zone = self.zone if kind == "daily" else None
            expected = windows(found, kind, self.zone, now)
            standing = self.summaries(kind)
            wanted = {key for key, (end, _) in expected.items() if only is None or only(key, end)}
            there = {key for key, it in standing.items() if only is None or only(key, it["end"])}
            if only is not None and self.mode != SCAN:
                there -= {key for key in there - wanted if (kind, key) in self.stood}
            assert there == wanted, (kind, sorted(there ^ wanted))
            self.stood |= {(kind, key) for key in wanted}
            for key in wanted:
                end, some = expected[key]
                assert_summary(standing[key], key, end, some, self.model.fields, zone)

    def check_readings(self, now: datetime) -> None:
        """Live and archived as one: each reading once, in the order of time."""
        told = [json.loads(line) for line in self("readings", form=Format.json, now=now).splitlines()]
        assert told == [
            {
                "dev": entry.series,
                "time": instant(entry.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                **dict(zip(self.model.fields, map(_as_told, entry.values), strict=True)),
            }
            for entry in self.ledger()
        ]

    def check_superseded(self, now: datetime) -> None:
        """Nothing was lost where a bucket took the place of a copy that held something else."""
        if self.model.name == "timeseries":
            return
        self("restore", to="all", versions="all", versions_to="older", now=now)
        older = {it["_id"]["sha256"] for it in self.database["older"].find() if "of" not in it["_id"]}
        found: Any = self.database.get_collection("all", codec_options=LOSSLESS).find()
        last = {bytes(it.raw) for it in found}
        for main, *extra in self.superseded:
            extra.sort(key=lambda it: bson.decode(it)["_id"])
            assert main in last or hashlib.sha256(main + b"".join(extra)).hexdigest() in older

    def everything(self) -> dict[str, Any]:
        """All but the suite's own books, byte for byte."""
        found: dict[str, Any] = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        for name in self.database.list_collection_names():
            if not name.startswith(("bucketwise_", "system.")) or name == "bucketwise_receipts":
                documents = self.database.get_collection(name, codec_options=LOSSLESS).find()
                found[name] = sorted(bytes(document.raw) for document in documents)  # type: ignore[attr-defined]
        return found

    def check_second_run(self, now: datetime) -> None:
        """It writes, uploads and deletes nothing."""
        before = self.everything()
        report = self.work("run", now=now)
        rolled, archived = report["rollup"], report["archive"]
        assert (rolled["hourly"]["written"], rolled["daily"]["written"], archived["summaries"]) == (0, 0, 0)
        assert [archived[name] for name in ("buckets", "parts", "bytes", "deleted")] == [0, 0, 0, 0]
        assert self.everything() == before


def _as_told(value: Any) -> Any:
    if isinstance(value, str | None):
        return None
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]
    return float(value)
