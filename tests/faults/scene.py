"""A place where faults happen: a policy, its readings in MongoDB, a store, the command line, the checker."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import WriteConcern
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.load import load
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Store
from tests import clouds
from tests.conftest import ACCESS_KEY, SECRET_KEY
from tests.faults.truth import Opened, Toll, Truth, files_of
from tests.jobs.command import CommandLine, Meddle, Ran

Document = dict[str, Any]
START = datetime(2018, 6, 30, 22, tzinfo=UTC)
#: Long past all readings.
NOW = datetime(2018, 9, 1, tzinfo=UTC)
RAW = bson.CodecOptions(document_class=RawBSONDocument, tz_aware=True)
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
    **clouds.CREDENTIALS,
}

SLOTS = """
[policies.it]
collection = "it"
model = "slots"
slot = "second"
sparse_ok = true
time_field = "d"
series_fields = ["dev"]
value_fields = ["p"]
"""
SAMPLES = """
[policies.it]
collection = "it"
model = "samples"
series_fields = ["dev"]
value_fields = ["p"]
samples_field = "held"
sample_time_field = "time"
start_field = "first"
end_field = "last"
count_field = "n"
[policies.it.overflow]
flag_field = "more"
collection = "it_more"
ref_field = "of"
samples_field = "held"
"""
READING = """
[policies.it]
collection = "it"
model = "reading"
time_field = "d"
series_fields = ["dev"]
value_fields = ["p"]
"""
ROLLUP = """
[policies.it.rollup]
hourly = "it_hourly"
daily = "it_daily"
percentiles = [50, 99]
"""
OFFLINE = '[policies.it.archive]\nafter = "30d"\nto = "offline"\n'
ONLINE = '[policies.it.archive]\nafter = "30d"\nto = "online"\ncollection = "it_archive"\n'


@dataclass
class Scene:
    """One policy, `it`, in a database and a store of its own."""

    folder: Path
    database: Database[Document]
    uri: str
    store: Store
    command: CommandLine
    text: str = SLOTS + ROLLUP + OFFLINE

    def __post_init__(self) -> None:
        self.write_config()
        files = files_of(self.store)
        if (settings := load(self.config, environ={}).store) and settings.encryption_key:
            files = Opened(files, open_store(settings))
        self.truth = Truth(self.database, self.policy, files)

    def write_config(self, uri: str | None = None, endpoint_url: str | None = None) -> None:
        """Other addresses: those of proxies."""
        endpoint_url = endpoint_url or self.store.endpoint_url
        endpoint = f'endpoint_url = "{endpoint_url}"\n' if endpoint_url else ""
        endpoint += f'region = "{self.store.region}"\n' if self.store.region else ""
        self.config.write_text(
            f'[mongodb]\nuri = "{uri or self.uri}"\ndatabase = "{self.database.name}"\n'
            f'[store]\nurl = "{self.store.url}"\n{endpoint}{self.text.replace("FOLDER", str(self.folder))}'
        )

    @property
    def config(self) -> Path:
        return self.folder / "bucketwise.toml"

    @property
    def policy(self) -> Policy:
        return load(self.config, environ={}).policies["it"]

    def fill(self, buckets: int = 24, readings: int = 5) -> Scene:
        """Buckets of two series over the four hours around midnight; every third with overflow, where the
        policy has it."""
        for number in range(buckets):
            self.insert(number, self.when(number, buckets), readings)
        return self

    def when(self, number: int, buckets: int = 24) -> datetime:
        """Where `fill` puts a bucket."""
        return START + (number // 2) * timedelta(hours=4) / (buckets / 2)

    def insert(self, number: int, at: datetime, readings: int, value: float = 50.0) -> None:
        self.write(*self.unit(number, at, readings, value))

    def unit(self, number: int, at: datetime, readings: int, value: float) -> list[bytes]:
        """A bucket of minute `at`, and its overflow. Other numbers give other readings."""
        at = at.replace(second=0, microsecond=0)
        values = [value + number + i / 8 for i in range(readings)]
        if self.policy.model == "reading":
            return [bson.encode({"_id": number, "dev": number % 2, "p": values[0], "d": at})]
        if self.policy.model == "slots":
            slots = {str(i * 7 % 60): it for i, it in enumerate(values)}
            return [bson.encode({"_id": number, "p": slots, "dev": number % 2, "d": at})]
        first = round(at.timestamp())
        more = number % 3 == 0
        count = readings - 2 if more else readings
        samples = [{"p": it, "time": first + i} for i, it in enumerate(values)]
        main: Document = {
            "_id": number,
            "dev": number % 2,
            "n": count,
            "first": first,
            "last": first + readings - 1,
            "held": samples[:count],
        }
        if not more:
            return [bson.encode(main)]
        extra = {"_id": number * 100, "of": number, "held": samples[count:]}
        return [bson.encode(main | {"more": True}), bson.encode(extra)]

    def write(self, *unit: bytes) -> None:
        """As an application does; overflow first."""
        for raw in reversed(unit):
            collection = "it" if raw is unit[0] else "it_more"
            document = RawBSONDocument(raw, RAW)
            self.database.get_collection(
                collection, codec_options=RAW, write_concern=WriteConcern("majority")
            ).replace_one({"_id": document["_id"]}, document, upsert=True)
        self.truth.wrote(*unit)

    # The command line

    def run(
        self,
        verb: str = "run",
        *arguments: str,
        now: datetime | None = NOW,
        meddle: Meddle | None = None,
        by: CommandLine | None = None,
        **environment: str,
    ) -> Ran:
        return self.begin(verb, *arguments, now=now, meddle=meddle, by=by, **environment).end()

    def begin(
        self,
        verb: str = "run",
        *arguments: str,
        now: datetime | None = NOW,
        meddle: Meddle | None = None,
        by: CommandLine | None = None,
        **environment: str,
    ) -> CommandLine:
        """Start it and don't wait. `by`: another command line, since each does one thing at a time. `now`:
        None for the clock's."""
        command = by or self.command
        present = ["--now", now.isoformat()] if now else []
        given = [verb, "--json", *present, *arguments]
        command.begin(meddle, *given, cwd=self.folder, **{**CREDENTIALS, **environment})
        return command

    def well(self, verb: str = "run", *arguments: str, code: int = 0, **given: Any) -> Document:
        """A run that has to succeed, or to end with a code; the policy's part of its report."""
        ran = self.run(verb, *arguments, **given)
        assert ran.code == code, ran
        (body,) = json.loads(ran.out)["policies"]
        assert isinstance(body, dict)
        return body

    # What must hold

    def toll(self) -> Toll:
        return self.truth.toll()

    def everything(self) -> dict[str, Any]:
        """All that lies in the database and the store, but for what each run notes of itself."""
        notes = ("bucketwise_runs", "bucketwise_lease", "bucketwise_progress", "system.")
        found: dict[str, Any] = {
            name: sorted(self.truth.raw(name))
            for name in self.database.list_collection_names()
            if not name.startswith(notes)
        }
        return found | {name: self.truth.files.read(name) for name in self.truth.files.names()}

    def finish(self, now: datetime = NOW, summaries: bool = True, meddle: Meddle | None = None) -> int:
        """Two clean runs finish the work, a third changes nothing. Returns how many runs it took.

        `summaries`: whether they must be those of what was written; they outlive a dropped collection.
        `meddle`: with the first of them."""
        self.well(now=now, meddle=meddle)
        assert self.toll()[1:] == (0, 0)
        self.well(now=now)
        self.truth.check_finished(now)
        if summaries:
            self.truth.check_summaries()
        before = self.everything()
        third = self.well(now=now)
        assert [third["archive"][key] for key in ("buckets", "parts", "deleted", "left")] == [0, 0, 0, 0]
        assert [third["rollup"][key]["written"] for key in ("hourly", "daily")] == [0, 0]
        assert self.everything() == before
        return 3

    def restored(self, now: datetime = NOW) -> list[bytes]:
        """What a restore brings back, raw."""
        self.database.drop_collection("back")
        self.well("restore", "--policy", "it", "--to", "back", now=now)
        return self.truth.raw("back")

    def check_restores(self) -> None:
        """To the byte, the buckets and their overflow."""
        mains = sorted(unit[0] for unit in self.truth.units.values())
        assert sorted(self.restored()) == mains
        if self.policy.overflow:
            extras = sorted(itertools.chain(*(unit[1:] for unit in self.truth.units.values())))
            assert sorted(self.truth.raw("it_more")) == extras

    def audited(self, now: datetime = NOW) -> None:
        self.well("verify", now=now)
        self.well("audit", now=now)


#: Gives a scene with buckets in it.
MakeScene = Callable[..., Scene]
