"""An application, its servers, and runs, as time passes; with all that is asked of an archive meanwhile."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
from pymongo import MongoClient

from tests.conftest import REGION, S3Server
from tests.faults.mongods import IMPATIENT
from tests.faults.mongods import Servers as Mongods
from tests.faults.s3_proxy import S3Proxy
from tests.faults.scene import CREDENTIALS
from tests.faults.stopping import expire_the_lease
from tests.jobs.command import CommandLine, Ran
from tests.soak.faults import Fault, Servers, befallen, some_fault
from tests.soak.seen import Broken, Files, Seen, check_files, check_readings, check_summaries
from tests.soak.sources import DAY, HOUR, RAW, SOURCES, Native, Source, milliseconds

Document = dict[str, Any]
START = datetime(2018, 1, 1, tzinfo=UTC)
KEY = "soak-key-0123456789abcdef0123456789abcdef"
#: How a command may end where something failed; below 0: killed.
_FAILED = (0, 1, 3, 5, 11, 130)
#: How far apart runs are, and how often: a host that was down for a day, or a week.
_PAUSES = ((HOUR, 80), (6 * HOUR, 12), (DAY, 6), (7 * DAY, 2))


@dataclass
class Hold:
    """A hold that stands, and what it covered when it was placed."""

    name: str
    policy: str
    span: tuple[int, int]
    ends: datetime
    values: set[float]


@dataclass
class World:
    """`chance` decides all but when things happen."""

    folder: Path
    mongods: Mongods
    s3: S3Server
    files: Path
    proxy: S3Proxy
    command: CommandLine
    chance: random.Random
    now: datetime = START
    done: Counter[str] = field(default_factory=Counter)
    journal: list[str] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)

    def __post_init__(self) -> None:
        uri = self.mongods.uri.replace(f"&{IMPATIENT}", "")
        self.client: MongoClient[Document] = MongoClient(uri, tz_aware=True)
        self.database = self.client["soak"]
        bucket = self.s3.new_bucket()
        self.archive = Files(self.files / bucket / "archive")
        self.sources: list[Source] = [kind(self.database, self.chance) for kind in SOURCES]
        (self.folder / "copy").mkdir()
        self.settings = (
            f'[mongodb]\nuri = "{uri}"\ndatabase = "soak"\n'
            f'[store]\nurl = "s3://{bucket}/archive"\nendpoint_url = "{self.proxy.endpoint_url}"\n'
            f'region = "{REGION}"\nsigning_key = "{KEY}"\n'
            f'[[store.copies]]\nname = "second"\nurl = "{(self.folder / "copy").as_uri()}"\n'
        )
        self.write_policies()

    def write_policies(self) -> None:
        text = self.settings + "".join(it.text for it in self.sources)
        (self.folder / "bucketwise.toml").write_text(text)

    # Time

    def hour(self) -> None:
        """Lets an hour pass, or more: the application writes, and a run follows, or something else first."""
        (pause,) = self.chance.choices([it for it, _ in _PAUSES], [number for _, number in _PAUSES])
        since, self.now = self.now, self.now + pause
        for source in self.sources:
            source.write_hours(since, self.now)
        self.change(12)
        if self.chance.random() < 0.25:
            self.chance.choice(_DEEDS)(self)
        if self.chance.random() < 0.35:
            self.disturbed("run")
        else:
            self.with_writers("run")
        for hold in [it for it in self.holds if it.ends <= self.now]:
            self.release(hold)

    def change(self, times: int) -> None:
        for source in self.sources:
            for _ in range(times):
                source.change()

    # Commands

    def run(self, verb: str, *arguments: str, fault: Fault | None = None) -> Ran:
        given = (verb, "--json", "--now", self.now.isoformat(), *arguments)
        ran = self.command.meddled(fault.meddle if fault else None, *given, cwd=self.folder, **CREDENTIALS)
        self.note(f"{' '.join((verb, *arguments))}{f' ({fault.name})' if fault else ''}: {ran.code}")
        self.done["commands"] += 1
        if "Traceback" in ran.err + ran.out or "defect of bucketwise" in ran.err + ran.out:
            raise Broken(f"{verb}: {ran}")
        return ran

    def well(self, verb: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> Ran:
        """A command that has to succeed; what it has read from a copy, an operator repairs first."""
        ran = self.run(verb, *arguments)
        if ran.code == 3 and any("from_copies" in it for it in ran.json["policies"]):
            self.well("repair")
            ran = self.run(verb, *arguments)
        if ran.code not in codes:
            raise Broken(f"{verb} {arguments}: {ran}")
        return ran

    def with_writers(self, verb: str, *arguments: str, fault: Fault | None = None) -> Ran:
        """While the application changes what is there."""
        with self.writing() if fault is None or fault.spares_writers else nullcontext():
            ran = self.run(verb, *arguments, fault=fault)
        if ran.code not in (_FAILED if fault else (0, 3)) and (ran.code > 0 or fault is None):
            raise Broken(f"{verb}: {ran}")
        return ran

    def disturbed(self, verb: str, *arguments: str) -> Ran:
        """While something fails. What failed is over then, and so is the lease of a run that was killed."""
        servers = Servers(self.mongods.nodes[0], self.proxy)
        fault = some_fault(self.chance, servers)
        self.done["faults"] += 1
        with befallen(servers, fault):
            ran = self.with_writers(verb, *arguments, fault=fault)
        expire_the_lease(self.database)
        return ran

    @contextmanager
    def writing(self) -> Iterator[None]:
        stop, failed = threading.Event(), list[BaseException]()

        def write() -> None:
            try:
                while not stop.wait(0.1):
                    self.chance.choice(self.sources).change()
            except BaseException as error:  # noqa: BLE001  # told by who waits
                failed.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join()
        for error in failed:
            raise error

    def note(self, what: str) -> None:
        self.journal.append(f"{self.now:%Y-%m-%d %H:%M} {what}")

    # What is asked of an archive

    def compact(self) -> None:
        self.repeated("compact")

    def verify(self) -> None:
        self.well("verify")

    def audit(self) -> None:
        """Readings that were deleted or moved under a hold are the only thing that it may find."""
        self.settle()
        found = self.well("audit", codes=(0, 4)).json["policies"]
        held = {it.policy for it in self.holds}
        for policy in found:
            codes = {it["code"] for it in policy["findings"]}
            if policy["exit_code"] and not (policy["policy"] in held and codes == {"readings-gone"}):
                raise Broken(f"audit of {policy['policy']}: {policy['findings']}")

    def drill(self) -> None:
        self.settle()  # what came late is not in the summaries before
        self.well("drill", "--seed", str(self.chance.randrange(1000)))

    def edit(self) -> None:
        source = self.source()
        source.edit()
        self.write_policies()
        self.note(f"{source.name} is edited: {source.archived!r}, percentiles {source.percentiles}")
        self.done["edits"] += 1

    def repeated(self, verb: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> Ran:
        """Twice in three times something fails; then it is called again."""
        if self.chance.random() < 2 / 3:
            self.disturbed(verb, *arguments)
        return self.well(verb, *arguments, codes=codes)

    def source(self) -> Source:
        return self.chance.choice(self.sources)

    def day(self) -> datetime:
        """A day of the last hundred, as far as there was one."""
        age = (self.now - START) // DAY
        return (self.now - self.chance.randrange(max(1, min(100, age))) * DAY).replace(hour=0, minute=0)

    def hold(self) -> None:
        source, since = self.source(), self.day()
        until = since + self.chance.randrange(1, 8) * DAY
        name = f"hold-{len(self.journal)}"
        told = "--since", since.isoformat(), "--until", until.isoformat(), "--reason", "soak"
        if self.run("hold", "add", name, "-p", source.name, *told).code != 0:
            return  # nothing is there that it would cover
        covered = Seen.of(source, self.archive).all.values()
        span = milliseconds(since), milliseconds(until)
        values = {it.value for it in covered if span[0] <= it.time < span[1]}
        ends = self.now + self.chance.randrange(1, 60) * DAY
        self.holds.append(Hold(name, source.name, span, ends, values))
        self.done["holds"] += 1

    def release(self, hold: Hold) -> None:
        self.well("hold", "release", hold.name, "-p", hold.policy)
        self.holds.remove(hold)

    def kept(self, source: Source) -> set[float]:
        return {value for it in self.holds if it.policy == source.name for value in it.values}

    def erase(self) -> None:
        """A series of a policy goes for good, and comes anew afterwards."""
        source = self.source()
        if isinstance(source, Native) or any(it.policy == source.name for it in self.holds):
            return
        series = self.chance.choice(source.open_series())
        told = "-p", source.name, "--series", f"{source.series_field}={series}", "--reason", "soak"
        source.closed.add(series)
        self.repeated("erase", *told, "--confirm", source.name)
        source.register.erase(series)
        source.recent = [it for it in source.recent if source.register.units[it].readings]
        source.closed.clear()
        check_readings(source, Seen.of(source, self.archive), self.now, self.kept(source))
        check_files(source, self.archive)
        self.done["erasures"] += 1

    def restore(self) -> None:
        """A day into a collection of its own: each bucket that nobody changed, to the byte."""
        source, since = self.source(), self.day()
        until = since + DAY
        self.database.drop_collection("back")
        self.repeated(
            "restore",
            "-p",
            source.name,
            "--since",
            since.isoformat(),
            "--until",
            until.isoformat(),
            "--to",
            "back",
        )
        found: Any = self.database.get_collection("back", codec_options=RAW).find()
        documents: list[bytes] = [bytes(it.raw) for it in found]
        values = set()
        for raw in documents:
            document: Document = bson.decode(raw, bson.CodecOptions(tz_aware=True))
            values |= {it.value for it in source.readings(document)}
            unit = source.register.units[document["_id"]]
            if unit.document is not None and unit.document != raw:
                raise Broken(f"{source.name}: restored {raw!r}, not {unit.document!r}")
        archived = Seen.of(source, self.archive).archived
        wanted = {
            it.value
            for it in archived
            if milliseconds(since) <= it.time < milliseconds(until) and it.value in source.register.standing
        }
        if source.overflow is None and (missing := wanted - values):
            raise Broken(f"{source.name}: not restored: {sorted(missing)[:5]}")
        self.done["restores"] += 1

    def put_back(self) -> None:
        """A day into the collection itself, where the application goes on with it."""
        source, since = self.source(), self.day()
        if isinstance(source, Native):
            return
        told = "--since", since.isoformat(), "--until", (since + DAY).isoformat()
        self.repeated(
            "restore",
            "-p",
            source.name,
            *told,
            "--to",
            source.name,
            "--keep-for",
            "2d",
            "--yes",
            codes=(0, 3),
        )
        ids = [it["_id"] for it in source.collection(source.name).find({}, {"_id": 1})]
        source.recent += self.chance.sample(ids, min(50, len(ids)))
        self.change(5)
        if self.chance.random() < 0.5:
            self.with_writers("run")
            self.well("unpin", "-p", source.name)
        self.done["put back"] += 1

    def print_readings(self) -> None:
        """What `readings` prints of a day is what is there."""
        source, since = self.source(), self.day()
        self.settle()
        told = "--since", since.isoformat(), "--until", (since + DAY).isoformat(), "--format", "json"
        out = self.folder / f"readings-{len(self.journal)}.json"
        self.well("readings", "-p", source.name, *told, "--output", str(out))
        printed = Counter(json.loads(line)[source.value_field] for line in out.read_text().splitlines())
        out.unlink()
        seen = Seen.of(source, self.archive).all.values()
        expected = Counter(
            it.value for it in seen if milliseconds(since) <= it.time < milliseconds(since + DAY)
        )
        if printed != expected:
            more, less = printed - expected, expected - printed
            raise Broken(f"{source.name}: readings of {since} has {list(more)[:5]}, not {list(less)[:5]}")
        self.done["readings printed"] += printed.total()

    # What must hold

    def settle(self) -> None:
        """Two clean runs finish all work, a third changes nothing."""
        self.well("run", codes=(0, 3))
        self.well("run")
        before = self.everything()
        third = self.well("run")
        for policy in third.json["policies"]:
            if policy["archive"]["buckets"] or policy["archive"]["deleted"]:
                raise Broken(f"a third run still archives: {policy}")
        if (after := self.everything()) != before:
            changed = [it for it in before.keys() | after.keys() if before.get(it) != after.get(it)]
            raise Broken(f"a third run changes {changed[:8]}")

    def everything(self) -> Document:
        """Names and sizes of files, counts of collections."""
        files: Document = {
            str(it.relative_to(self.archive.root)): it.stat().st_size
            for it in self.archive.root.rglob("*")
            if it.is_file()
        }
        notes = ("bucketwise_runs", "bucketwise_lease", "bucketwise_progress", "system.")
        names = [it for it in self.database.list_collection_names() if not it.startswith(notes)]
        return files | {it: self.database[it].count_documents({}) for it in names}

    def check(self) -> None:
        """All promises, of all policies."""
        self.settle()
        for source in self.sources:
            self.check_source(source)
        self.done["checks"] += 1
        self.journal = self.journal[-400:]

    def check_source(self, source: Source) -> None:
        seen = Seen.of(source, self.archive)
        check_readings(source, seen, self.now, self.kept(source))
        held = [it.span for it in self.holds if it.policy == source.name]
        self.done["summaries"] += check_summaries(source, seen, self.now, held)

    def figures(self) -> dict[str, int]:
        """What was done, and came of it."""
        days = (self.now - START) // DAY
        readings = sum(it.register.written for it in self.sources)
        return {"days": days, "written": readings, **{it: n for it, n in self.done.items() if n}}


_DEEDS = (
    World.compact,
    World.verify,
    World.audit,
    World.drill,
    World.hold,
    World.edit,
    World.edit,
    World.erase,
    World.restore,
    World.restore,
    World.put_back,
    World.print_readings,
    World.print_readings,
)
