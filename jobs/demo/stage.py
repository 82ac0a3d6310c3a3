"""What all acts of the demo share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple, cast

import bson
from pymongo.database import Database

from buckets.bson.raw import Docs
from config.loading.load import load
from config.policies import Policy, Settings
from jobs import connect
from jobs.call import Call
from jobs.demo.invent import SECOND, Flags, Invented, invent
from jobs.demo.show import Show
from jobs.embedded import Mongod, start_mongod
from jobs.output.report import Report, Result

Document = dict[str, Any]


class DemoCall(Call):
    """A call that takes nothing from the environment: BUCKETWISE_MONGODB_URI must not lead the demo to a
    database of somebody's own."""

    @cached_property
    def settings(self) -> Settings:
        """Returns the settings of the demo's policy file."""
        settings = load(self.config, {})
        self.hosts = connect.hosts(settings.mongodb)
        return settings


class Size(NamedTuple):
    """Documents, and bytes. `disk` and `indexes` are of blocks in use: what a delete frees stays with the
    file, for MongoDB to fill again."""

    documents: int = 0
    data: int = 0
    disk: int = 0
    indexes: int = 0


@dataclass
class Stage:
    """What the acts share: the call, the server, the readings invented, and what was found so far."""

    call: DemoCall
    folder: Path
    mongod: Mongod
    database: Database[Document]
    made: dict[str, Invented]  # by policy
    show: Show
    before: dict[str, Size] = field(default_factory=dict)  # by policy: sizes after the load
    results: list[Result] = field(default_factory=list)  # of the first run, by policy
    sizes: list[Document] = field(default_factory=list)  # for --json, by policy

    def ago(self, span: timedelta | None) -> int:
        """Returns the instant so long before the present of the demo, in milliseconds."""
        assert span is not None
        return int((self.call.now - span).timestamp()) * SECOND

    def command(self, name: str, *policies: str) -> DemoCall:
        """Returns the call that `bucketwise NAME --policy …` would be."""
        return replace(self.call, command=name, names=policies)

    def succeeded(self, report: Report) -> Report:
        """Checks that a command went well for every policy. Returns its report."""
        for it in report.results:
            claim = f"{report.command}, policy {it.policy}: exit code {it.exit_code}, {it.error}"
            self.show.holds(claim, it.exit_code == 0)
        self.call.stop.check()
        return report

    def expired(self, policy: Policy) -> Flags:
        """Returns which of the policy's buckets must be in the archive now."""
        assert policy.archive is not None
        expired: Flags = self.made[policy.name].last < self.ago(policy.archive.after)
        return expired

    def documents(self, collection: str) -> list[bytes]:
        """Returns every document of a collection, as the server holds it, in order. Measurements of a native
        time-series collection come as `measurement` gives them."""
        batches = self.database[collection].find_raw_batches({})
        found = [document for batch in batches for document in Docs.split(cast(bytes, batch))]
        native = {"name": collection, "type": "timeseries"}
        return sorted(
            map(measurement, found) if any(self.database.list_collections(filter=native)) else found
        )

    def size_of(self, collections: Iterable[str]) -> Size:
        """Returns the size of all these collections together. An absent one counts nothing."""
        self.database.client.admin.command("fsync")  # sizes on disk are those of the last checkpoint
        kinds = {it["name"]: it["type"] for it in self.database.list_collections()}
        sizes = [self._size(name, kinds[name]) for name in collections if name in kinds]
        return Size(*map(sum, zip(*sizes, strict=True)))

    def _size(self, name: str, kind: str) -> Size:
        held = f"system.buckets.{name}" if kind == "timeseries" else name
        stats = self.database.command("collStats", held, indexDetails=True)
        managers = [index["block-manager"] for index in stats["indexDetails"].values()]
        indexes = stats["totalIndexSize"] - sum(it["file bytes available for reuse"] for it in managers)
        disk = stats["storageSize"] - stats["freeStorageSize"]
        return Size(self.database[name].count_documents({}), stats["size"], disk, indexes)

    def files(self) -> dict[str, tuple[int, int]]:
        """Returns every file of the store: its size, and when it was written last, in nanoseconds."""
        root = self.folder / "store"
        stats = {str(it.relative_to(root)): it.stat() for it in root.rglob("*") if it.is_file()}
        return {name: (it.st_size, it.st_mtime_ns) for name, it in stats.items()}


@contextmanager
def stage(call: Call, show: Show, *, keep: bool, quiet: bool) -> Iterator[Stage]:
    """Yields a stage in a folder of its own, with an embedded mongod, a policy file and a place for the
    store. All of it exists inside the block; with `keep` also after it, unless the block raised."""
    with ExitStack() as leaving:
        folder = Path(mkdtemp(prefix="bucketwise-demo-"))
        leaving.callback(rmtree, folder, ignore_errors=True)
        mongod = start_mongod(folder / "mongod")
        leaving.callback(mongod.stop)
        written = files("jobs.demo").joinpath("bucketwise.toml").read_text(encoding="utf-8")
        config = folder / "bucketwise.toml"
        written = written.replace("<uri>", mongod.uri).replace("<store>", (folder / "store").as_uri())
        config.write_text(written)
        own = DemoCall("demo", config, (), call.now, True, call.json, quiet, call.yes, call.stop)
        with own.database() as database:
            yield Stage(own, folder, mongod, database, invent(call.now), show)
        if keep:
            leaving.pop_all()


def measurement(document: bytes) -> bytes:
    """Returns a measurement with its fields by name. MongoDB gives them in any order, and in another one next
    time."""
    return bson.encode(dict(sorted(bson.decode(document).items())))
