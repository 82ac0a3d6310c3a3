"""Where it is measured: the embedded mongod, a collection a workload, and a policy file."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from bench.workloads import FIRST_DAY, Workload
from bucketwise.config.policies import Policy
from bucketwise.jobs.archive import archive
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.embedded import embedded_mongod
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.query.verb import query
from bucketwise.jobs.restore.verb import restore
from bucketwise.jobs.rollup import rollup

Document = dict[str, Any]
_DATABASE = "bench"
_BATCH_SIZE = 5_000
_COPY = "_copy"
#: Reads each reading of an archive.
_ASKED = "SELECT symbol, count(*) AS readings, avg(p), max(p) FROM {} GROUP BY symbol"
#: What the jobs write.
_WRITTEN = ("hourly", "daily", "restored", "inserted", "bucketwise_")


@dataclass(frozen=True)
class Testbed:
    """One workload in a database. Goes to other processes, so that it holds no connection before it is
    asked for one."""

    uri: str
    server: int  # process id of mongod
    folder: Path
    workload: Workload
    days: int = 0
    readings: int = 0
    buckets: int = 0

    def __getstate__(self) -> Document:
        return {key: value for key, value in self.__dict__.items() if key != "database"}

    @cached_property
    def database(self) -> Database[Document]:
        """Returns the database, connected when first asked for."""
        client: MongoClient[Document] = MongoClient(self.uri, tz_aware=True, w="majority")
        return client[_DATABASE]

    @property
    def source(self) -> Collection[Document]:
        """Returns the workload's collection as it was loaded. Nothing is deleted from it."""
        return self.database[self.workload.collection]

    @property
    def copy(self) -> Collection[Document]:
        """Returns a copy of that collection, for jobs that delete."""
        return self.database[f"{self.workload.collection}{_COPY}"]

    @property
    def end(self) -> datetime:
        """Returns the end of the last day with readings."""
        return FIRST_DAY + timedelta(days=self.days)

    @property
    def file(self) -> Path:
        """Returns the path of what a script writes."""
        return self.folder / "script.parquet"

    @property
    def store(self) -> Path:
        """Returns the folder of the store."""
        return self.folder / "store"

    @property
    def second_store(self) -> Path:
        """Returns the folder of its copy."""
        return self.folder / "second"

    def _call(self, name: str, policy: str) -> Call:
        now = self.end + timedelta(days=2)
        return Call(name, self._config(policy), (), now, True, True, True, True, Stop(), environ={})

    def _config(self, name: str) -> Path:
        """Writes a policy for each kind of job: `roll` rolls up, `stream` and `scan` look for late readings,
        `copy` archives and deletes nothing, `move` does both; `doubled` does so into two stores, `sealed`
        into one that is encrypted."""
        keys = {"collection": self.workload.collection, **self.workload.policy}
        roll = {"hourly": "hourly", "daily": "daily", "percentiles": [50, 95, 99]}
        recheck = f"{self.days + 9}d"
        policy = {
            "roll": {**keys, "rollup": roll},
            "stream": {**keys, "rollup": {**roll, "late_data": "stream"}},
            "scan": {**keys, "rollup": {**roll, "late_data": "scan", "recheck": recheck}},
            "copy": {**keys, "archive": {"after": "1d", "to": "offline", "delete": False}},
        }.get(name, {**keys, "collection": self.copy.name, "archive": {"after": "1d", "to": "offline"}})
        store: Document = {"url": self.store.as_uri()}
        if name == "doubled":
            store["copies"] = [{"name": "second", "url": self.second_store.as_uri()}]
        if name == "sealed":
            store["encryption_key"] = "a secret of the bench, long enough"
        path = self.folder / f"{self.workload.collection}-{name}.toml"
        for folder in (self.store, self.second_store):
            folder.mkdir(exist_ok=True)
        lines = [
            f"mongodb = {_toml({'uri': self.uri, 'database': _DATABASE})}",
            f"store = {_toml(store)}",
            f"policies.{name} = {_toml(policy)}",
        ]
        path.write_text("\n".join(lines))
        return path

    def run(self, name: str, policy: str) -> Document:
        """Runs a command as a user gives it. Returns what it says it did."""
        verbs: dict[str, Callable[[Call], Report]] = {
            "rollup": rollup,
            "archive": archive,
            "restore": lambda call: restore(call, to="restored"),
        }
        (result,) = verbs[name](self._call(name, policy)).results
        if result.exit_code:
            raise RuntimeError(f"{name} -p {policy}: {result.error}")
        return result.body

    def ask(self, policy: str) -> int:
        """Queries all readings of a policy, by SQL. Returns how many there were."""
        report = query(self._call("query", policy), sql=_ASKED.format(policy), output=self.file)
        if report.exit_code:
            raise RuntimeError(f"query -p {policy}: {report.error}")
        return sum(pq.read_table(self.file)["readings"].to_pylist())

    def policy(self, name: str) -> Policy:
        """Returns the policy of that name."""
        return self._call("bench", name).settings.policies[name]

    def load(self, readings: int) -> Testbed:
        """Loads as many whole days as come nearest to so many readings."""
        days = self.workload.days(readings)
        documents = self.workload.documents(days)
        loaded = replace(self, days=days)
        self._index(self.source)
        while part := [RawBSONDocument(it) for it in itertools.islice(documents, _BATCH_SIZE)]:
            self.source.insert_many(part, ordered=False)
        done = loaded.run("rollup", "roll")
        loaded.clear()
        return replace(loaded, readings=done["readings"], buckets=self.source.estimated_document_count())

    def _index(self, collection: Collection[Document]) -> None:
        for keys in self.workload.indexes:
            collection.create_index([(key, 1) for key in keys])

    def clear(self) -> None:
        """Removes summaries, archives, records, and whatever a script has written. The workloads stay."""
        for name in self.database.list_collection_names():
            if name.startswith(_WRITTEN):
                self.database.drop_collection(name)
        for folder in (self.store, self.second_store):
            shutil.rmtree(folder, ignore_errors=True)
        self.file.unlink(missing_ok=True)

    def fill_copy(self) -> None:
        """Fills the copy with all of the workload, with its indexes, and begins without records."""
        self.clear()
        self.copy.drop()
        self.source.aggregate([{"$out": self.copy.name}])
        self._index(self.copy)


#: What is measured. It is given a client's database that has answered already.
Action = Callable[[Testbed], None]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(it)}" for key, it in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@contextmanager
def testbeds(folder: Path) -> Iterator[Callable[[Workload, int], Testbed]]:
    """Gives a place for a workload with so many readings, as long as the block lasts."""
    with embedded_mongod(folder / "mongod") as mongod:

        def testbed(workload: Workload, readings: int) -> Testbed:
            return Testbed(mongod.uri, mongod.pid, folder, workload).load(readings)

        yield testbed
