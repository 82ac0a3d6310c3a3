"""A folder with a policy file, and readings in a database: where the tests of verbs happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bson import encode
from pymongo.database import Database

from bucketwise.jobs.suite import load
from tests.jobs.command import CommandLine, Ran

Db = Database[dict[str, Any]]
START = datetime(2018, 6, 30, tzinfo=UTC)
#: Long past all readings.
NOW = "2018-09-01T00:00:00Z"
MINUTES = 180

POLICIES = """
[policies.ticks]
collection = "ticks"
model = "slots"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
slot = "second"
sparse_ok = true
schedule = "0 0 1 1 *"
[policies.ticks.rollup]
hourly = "ticks_hourly"
daily = "ticks_daily"
[policies.ticks.archive]
after = "30d"
to = "offline"
[policies.ticks.retain]
hourly = "365d"

[policies.iot]
collection = "iot"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t"]
[policies.iot.rollup]
hourly = "iot_hourly"
[policies.iot.archive]
after = "30d"
to = "online"
collection = "iot_archive"
"""


#: Summaries go as soon as they are past their time.
AT_ONCE = POLICIES.replace('hourly = "365d"', 'hourly = "365d"\ngrace = "0s"')


@dataclass(frozen=True)
class Place:
    folder: Path
    database: Db
    uri: str
    command: CommandLine

    def __call__(self, verb: str, *arguments: str, now: str | None = NOW) -> Ran:
        is_told = "--json" in arguments or load(verb).answers  # with --quiet as well
        quiet = ["--quiet"] if is_told else []
        given = [verb, *quiet, *arguments, *(["--now", now] if now else [])]
        return self.command(*given, cwd=self.folder, MONGODB_URI=self.uri)

    @property
    def config(self) -> Path:
        return self.folder / "bucketwise.toml"

    def write_config(self, policies: str = POLICIES) -> None:
        head = f'[mongodb]\nuri = "${{MONGODB_URI}}"\ndatabase = "{self.database.name}"\n'
        (self.folder / "store").mkdir(exist_ok=True)
        store = f'[store]\nurl = "{(self.folder / "store").as_uri()}"\n'
        self.config.write_text(head + store + policies)

    def load(self) -> None:
        """Three hours of ticks, a price a second, and a temperature every ten minutes."""
        minutes = [START + timedelta(minutes=count) for count in range(MINUTES)]
        prices = {str(second): 50 + second / 8 for second in range(60)}
        self.database.ticks.create_index("d")  # first: an index of readings takes five times as long
        self.database.ticks.insert_many({"symbol": "MDB", "d": at, "p": prices} for at in minutes)
        self.database.iot.create_index("at")
        self.database.iot.insert_many({"sensor": 7, "at": at, "t": 20.5} for at in minutes[::10])

    def everything(self) -> dict[str, Any]:
        """All that is in the database and the store, byte for byte."""
        documents = {
            name: sorted(encode(document) for document in self.database[name].find())
            for name in self.database.list_collection_names()
        }
        files = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        return documents | files
