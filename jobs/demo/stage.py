"""The stage of the demo: the server, the policies with their readings, and the output.

Each function gives the readings as columns, with which the demo compares every result, and the documents in
which an application would have written them. What summaries must hold is computed from the columns, in plain
Python: no code of the suite takes part.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from importlib.resources import files
from io import StringIO
from itertools import compress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import bson
import numpy as np
from bson import DatetimeMS, ObjectId
from numpy.typing import NDArray
from pymongo.database import Database
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.embedded import Mongod, start_mongod
from bucketwise.jobs.output.grid import Grid, layout
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import counted

DAYS = 28
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
_EXCHANGE = ZoneInfo("America/New_York")

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_NONE = np.zeros(0, np.int64)


@dataclass
class Invented:
    """One collection. Shapes: s series, b buckets, n readings."""

    series: list[dict[str, Any]]  # s: the series fields of each
    documents: list[bytes] = field(default_factory=list)  # b, as BSON
    extra: list[bytes] = field(default_factory=list)  # overflow documents
    of: Integers = field(default_factory=lambda: _NONE)  # n: index into series
    bucket: Integers = field(default_factory=lambda: _NONE)  # n: index into documents
    time: Integers = field(default_factory=lambda: _NONE)  # n: milliseconds
    values: dict[str, Floats] = field(default_factory=dict)  # value field -> n

    @property
    def last(self) -> Integers:
        """Returns when the last reading of each bucket was, (b,)."""
        last = np.zeros(len(self.documents), np.int64)
        np.maximum.at(last, self.bucket, self.time)
        return last

    def select(self, which: Flags) -> list[bytes]:
        """Returns the documents where `which`, one flag for each of all, is true, in order."""
        return sorted(compress(self.documents, which.tolist()))

    def add(self, series: int, buckets: Integers, times: Integers, **values: Floats) -> None:
        """Adds readings of one series. `buckets`: which of the documents still to come each is in, from 0."""
        self.of = np.append(self.of, np.full(len(times), series))
        self.bucket = np.append(self.bucket, len(self.documents) + buckets)
        self.time = np.append(self.time, times)
        for name, column in values.items():
            self.values[name] = np.append(self.values.get(name, []), column)

    def write(self, ms: int, document: dict[str, Any]) -> ObjectId:
        """Adds a document as an application would have written it then. Returns its `_id`."""
        identity = _id(ms, len(self.documents))
        self.documents.append(bson.encode({"_id": identity, **document}))
        return identity


def invent(now: datetime) -> dict[str, Invented]:
    """Invents four weeks of everything, up to `now`, by policy."""
    end = int(now.astimezone(UTC).timestamp()) * SECOND
    return {it.__name__: it(end) for it in (ticks, iot, temperature, metrics, sales)}


def ticks(end: int) -> Invented:
    """Invents `slots`: a price each second of the trading hours, a document a minute, with gaps at times."""
    rng, made = np.random.default_rng(1), Invented([{"symbol": name} for name in ("ACME", "BOLT")])
    keys = [str(second) for second in range(60)]
    for series, price in enumerate((56.0, 131.5)):
        for opening in _openings(end):
            seconds = min(390, (end - opening) // MINUTE) * 60
            walk = price * np.exp(np.cumsum(rng.standard_normal(seconds) * 7e-5))
            price = float(walk[-1]) * float(np.exp(rng.standard_normal() * 0.006))
            prices, there = np.round(walk, 2), rng.random(seconds) > 0.0004
            at = np.flatnonzero(there)
            made.add(series, at // 60, opening + at * SECOND, p=prices[there])
            for first in range(0, seconds, 60):
                minute = slice(first, first + 60)
                slots = zip(keys, prices[minute].tolist(), there[minute].tolist(), strict=True)
                when = opening + first * SECOND
                held = {key: price for key, price, is_there in slots if is_there}
                made.write(when + MINUTE, {"p": held, **made.series[series], "d": DatetimeMS(when)})
    return made


def _openings(end: int) -> Iterator[int]:
    """Yields when the exchange opened, on weekdays: 9:30 in New York."""
    first = datetime.fromtimestamp((end - DAYS * DAY) / SECOND, UTC).date()
    for day in (first + timedelta(days=after) for after in range(1, DAYS + 1)):
        opening = int(datetime.combine(day, time(9, 30), _EXCHANGE).timestamp()) * SECOND
        if day.weekday() < 5 and opening + MINUTE <= end:
            yield opening


def iot(end: int) -> Invented:
    """Invents `samples` closed by size: a vibration sensor's level about every five minutes, in epoch
    seconds."""
    size, count, rng = 200, DAYS * 288, np.random.default_rng(2)
    places = [(device, sensor) for device in (1234, 1240) for sensor in (1, 3)]
    made = Invented([{"deviceid": device, "sensorid": sensor} for device, sensor in places])
    for series, fields in enumerate(made.series):
        at = (end - DAYS * DAY) // SECOND + np.arange(count) * 300 + rng.integers(0, 20, count)
        at = at[at * SECOND < end]
        hum = 55 + 12 * np.sin(at / 86_400 * 2 * np.pi + series) + rng.standard_normal(len(at)) * 3
        levels = np.round(hum).astype(np.int64)
        made.add(series, np.arange(len(at)) // size, at * SECOND, val=levels.astype(np.float64))
        for low in range(0, len(at), size):
            times, values = at[low : low + size].tolist(), levels[low : low + size].tolist()
            samples = [{"val": level, "time": when} for level, when in zip(values, times, strict=True)]
            day = DatetimeMS(times[0] * SECOND // DAY * DAY)
            kept = {"nsamples": len(times), "day": day, "first": times[0], "last": times[-1]}
            made.write(times[0] * SECOND, {**fields, **kept, "samples": samples})
    return made


def temperature(end: int) -> Invented:
    """Invents `reading`: a document a minute and room, with two values."""
    rng = np.random.default_rng(3)
    made = Invented([{"room": room} for room in ("cellar", "kitchen")])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 1440, 0, -1) * MINUTE
    for series, (base, swing) in enumerate(((12.0, 0.4), (20.5, 2.2))):
        daily = np.sin((at % DAY) / DAY * 2 * np.pi - 2.2)
        drift = np.cumsum(rng.standard_normal(len(at)) * 0.004)
        celsius = np.round(base + swing * daily + drift + rng.standard_normal(len(at)) * 0.05, 1)
        humidity = np.round(48 - 4 * daily + rng.standard_normal(len(at)) * 0.4, 1)
        _write_each(made, series, made.series[series], at, celsius=celsius, humidity=humidity)
    return made


def metrics(end: int) -> Invented:
    """Invents `timeseries`: what three machines report every five minutes."""
    rng, hosts = np.random.default_rng(4), ("web-1", "web-2", "db-1")
    made = Invented([{"meta.host": host} for host in hosts])
    at = end // MINUTE * MINUTE - np.arange(DAYS * 288, 0, -1) * 5 * MINUTE
    for series, host in enumerate(hosts):
        busy: Floats = 35 + 25 * np.sin((at % DAY) / DAY * 2 * np.pi - 1.8) + rng.gamma(2.0, 3.0, len(at))
        load = (busy / 22 + rng.random(len(at)) / 4).round(2)
        cpu = busy.clip(0, 100).round(1)
        _write_each(made, series, {"meta": {"host": host}}, at, cpu=cpu, load=load)
    return made


def _write_each(made: Invented, series: int, fields: dict[str, Any], at: Integers, **values: Floats) -> None:
    """Writes a document for each reading."""
    made.add(series, np.arange(len(at)), at, **values)
    for when, *numbers in zip(at.tolist(), *(column.tolist() for column in values.values()), strict=True):
        made.write(when, {**fields, "at": DatetimeMS(when), **dict(zip(values, numbers, strict=True))})


def sales(end: int) -> Invented:
    """Invents `samples` closed by time: a document an hour and shop. In rush hours it overflows into a second
    one."""
    room, rng = 60, np.random.default_rng(5)
    made = Invented([{"shop": shop} for shop in ("harbour", "station")])
    for start in range(end // HOUR * HOUR - DAYS * DAY, end // HOUR * HOUR, HOUR):
        hour = start // HOUR % 24
        for series, fields in enumerate(made.series if 8 <= hour < 19 else ()):
            count = int(rng.poisson((90 if hour in (11, 12, 17) else 25) * (0.7 + 0.5 * series))) + 1
            at = start + np.sort(rng.choice(HOUR, count, replace=False))
            amounts: Floats = np.round(rng.gamma(2.2, 6.5, count) + 0.5, 2)
            made.add(series, np.zeros(count, np.int64), at, amount=amounts)
            pairs = zip(at.tolist(), amounts.tolist(), strict=True)
            sold = [{"timestamp": DatetimeMS(when), "amount": amount} for when, amount in pairs]
            span = {"start_date": DatetimeMS(start), "end_date": DatetimeMS(start + HOUR - 1)}
            kept = {"transaction_count": count, "sum_amount": round(float(amounts.sum()), 2)}
            flag = {"has_extras": True} if count > room else {}
            owner = made.write(start + HOUR, {**fields, **span, **kept, "measurements": sold[:room], **flag})
            if flag:
                more = {"_id": _id(start + HOUR, 900_000 + len(made.extra)), "bucket_id": owner}
                made.extra.append(bson.encode({**more, "measurements": sold[room:]}))
    return made


def _id(ms: int, number: int) -> ObjectId:
    """Returns an ObjectId as a driver would have made it then, but the same in every demo."""
    return ObjectId((ms // SECOND).to_bytes(4, "big") + b"demo\0" + number.to_bytes(3, "big"))


class Expected(NamedTuple):
    """One value field of one series in one window."""

    series: int
    start: int  # milliseconds
    field: str
    values: Floats  # by time


def hours(made: Invented) -> Integers:
    """Returns the edges of all UTC hours that hold a reading, and of those between."""
    return np.arange(made.time.min() // HOUR, made.time.max() // HOUR + 2, dtype=np.int64) * HOUR


def days(made: Invented, zone: str) -> Integers:
    """Returns the edges of all calendar days in a zone that hold a reading, and of those between."""
    tz = ZoneInfo(zone)
    first, last = (
        datetime.fromtimestamp(at / SECOND, tz).date() for at in (made.time.min(), made.time.max())
    )
    dates = (first + timedelta(days=n) for n in range((last - first).days + 2))
    return np.array([int(datetime.combine(it, time(), tz).timestamp()) * SECOND for it in dates])


def windows(made: Invented, edges: Integers, due: int) -> Iterator[Expected]:
    """Yields what the summaries of all windows that end by `due` must stand for."""
    window = np.searchsorted(edges, made.time, side="right") - 1
    order = np.lexsort((made.time, window, made.of))
    order = order[edges[window[order] + 1] <= due]
    cells = made.of[order] * len(edges) + window[order]
    for part in np.split(order, np.flatnonzero(np.diff(cells)) + 1):
        for name, values in made.values.items():
            yield Expected(int(made.of[part[0]]), int(edges[window[part[0]]]), name, values[part])


def difference_of(expected: Expected, summary: dict[str, Any]) -> str | None:
    """Returns how a summary's sub-document differs from its readings; None if it does not."""
    values, ranked, count = expected.values, np.sort(expected.values), len(expected.values)
    exact = {"count": count, "min": ranked[0], "max": ranked[-1], "first": values[0], "last": values[-1]}
    within = {key: (wanted, wanted) for key, wanted in exact.items()}
    total = math.fsum(values)
    for key, wanted in (("sum", total), ("avg", total / count)):
        within[key] = (wanted - abs(wanted) * 1e-12, wanted + abs(wanted) * 1e-12)
    for percent in (50, 95, 99):
        rank = (count - 1) * percent / 100
        if f"p{percent}" in summary:
            within[f"p{percent}"] = (ranked[math.floor(rank)] * 0.99, ranked[math.ceil(rank)] * 1.01)
    for key, (low, high) in within.items():
        if not low <= summary[key] <= high:
            return f"{key} is {summary[key]}, and the readings give {low} to {high}"
    return None


Document = dict[str, Any]


class FaultError(Exception):
    """Something is not as the demo says."""


class Size(NamedTuple):
    """Documents, and bytes. `disk` and `indexes` are of blocks in use: what a delete frees stays with the
    file, for MongoDB to fill again."""

    documents: int = 0
    data: int = 0
    disk: int = 0
    indexes: int = 0


NONE = Size()


@dataclass
class Case:
    """One policy, what was invented for it, and what was found so far. Milliseconds: windows that ended by
    `due` are rolled up, and buckets that ended before `cutoff` archived."""

    policy: Policy
    rollup: Rollup
    archive: Archive
    made: Invented
    due: int
    cutoff: int
    before: Size = NONE  # after the load
    after: Size = NONE  # after the first run
    archived: int = 0  # bytes, in the archive
    result: Result = field(default_factory=lambda: Result(""))  # of the first run

    @property
    def sizes(self) -> Document:
        """Returns its sizes before and after the first run, for --json."""
        sizes = {"before": self.before._asdict(), "after": self.after._asdict()}
        return {**sizes, "archive_bytes": self.archived}

    @cached_property
    def expired(self) -> Flags:
        """Returns which buckets must be in the archive."""
        return self.made.last < self.cutoff


@dataclass
class Stage:
    """The stage that the acts share."""

    call: Call
    folder: Path
    mongod: Mongod
    database: Database[Document]
    cases: dict[str, Case]  # by policy
    show: Show

    def do(self, verb: Callable[..., Report], *policies: str, code: int = 0, **options: Any) -> list[Result]:
        """Runs `bucketwise VERB --policy …`. Checks that it ends with this exit code for every policy."""
        report = verb(replace(self.call, command=verb.__name__, names=policies), **options)
        self.call.stop.check()
        for it in report.results:
            claim = f"{report.command}, policy {it.policy}: exit code {it.exit_code}, {it.error}"
            self.show.holds(claim, it.exit_code == code)
        return report.results

    def documents(self, collection: str) -> list[bytes]:
        """Returns every document of a collection, as the server holds it, in order. Measurements of a native
        time-series collection come as `measurement` gives them."""
        batches = self.database[collection].find_raw_batches({})
        found = [document for batch in batches for document in Docs.split(cast(bytes, batch))]
        return sorted(map(measurement, found) if collection.startswith("metrics") else found)

    def holds(self, collection: str, wanted: Iterable[bytes]) -> None:
        """Checks that a collection holds these documents and no others, to the byte."""
        same = self.documents(collection) == sorted(wanted)
        self.show.holds(f"{collection} does not hold exactly the documents that it should", same)

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


@contextmanager
def stage(call: Call, show: Show, *, keep: bool, quiet: bool) -> Iterator[Stage]:
    """Yields a stage in a folder of its own, with an embedded mongod, a policy file and a place for the
    store. All of it exists inside the block; with `keep` also after it, unless the block raised."""
    with ExitStack() as leaving:
        folder = Path(mkdtemp(prefix="bucketwise-demo-"))
        leaving.callback(rmtree, folder, ignore_errors=True)
        mongod = start_mongod(folder / "mongod")
        leaving.callback(mongod.stop)
        written = files("bucketwise.jobs.demo").joinpath("bucketwise.toml").read_text(encoding="utf-8")
        config = folder / "bucketwise.toml"
        (folder / "store").mkdir()
        written = written.replace("<uri>", mongod.uri).replace("<store>", (folder / "store").as_uri())
        config.write_text(written)
        # Nothing comes from the environment: it may name a database of somebody's own.
        own = replace(call, config=config, is_now_given=True, quiet=quiet, environ={})
        with own.database() as database:
            yield Stage(own, folder, mongod, database, {it.policy.name: it for it in _cases(own)}, show)
        if keep:
            leaving.pop_all()


def _cases(call: Call) -> Iterator[Case]:
    made = invent(call.now)
    for policy in call.policies:
        rollup, archive = policy.rollup, policy.archive
        assert rollup and archive and archive.after  # each has all of them
        due, cutoff = as_ms(call.now - rollup.settle), as_ms(call.now - archive.after)
        yield Case(policy, rollup, archive, made[policy.name], due, cutoff)


def measurement(document: bytes) -> bytes:
    """Returns a measurement with its fields by name. MongoDB gives them in any order, and in another one next
    time."""
    return bson.encode(dict(sorted(bson.decode(document).items())))


_WIDEST, _INDENT = 116, 4


class Show:
    """Writes to stdout: in colour on a terminal, in plain lines elsewhere, and not at all for --json.
    Counts its checks, and raises FaultError at the first that fails."""

    def __init__(self, *, silent: bool) -> None:
        out = StringIO() if silent else sys.stdout
        self._console = Console(file=out, highlight=False, markup=False, emoji=False)
        self._console.width = min(self._console.width, _WIDEST) if self._console.is_terminal else _WIDEST
        self.made = 0
        self._acts = self._made_before = 0
        self._began = self._act_began = clock.steady()

    def equal(self, what: str, got: object, wanted: object) -> None:
        """Checks that two values are equal."""
        self.holds(f"{what}: {got!r:.200}, and it should be {wanted!r:.200}", got == wanted)

    def holds(self, claim: str, held: bool) -> None:
        """Checks a claim. `claim`: what to print where it doesn't hold."""
        self.made += 1
        if not held:
            raise FaultError(claim)

    def act(self, title: str, about: str) -> None:
        """Prints the heading of the next act, and starts its clock."""
        self._acts, self._made_before, self._act_began = self._acts + 1, self.made, clock.steady()
        self._console.print(Text(f"\n{self._acts:>2}  ", style="cyan").append(title, style="bold"))
        self.line(about, style="dim")

    def verdict(self, claim: str) -> None:
        """Closes an act: prints what was checked in it."""
        made = self.made - self._made_before
        took = f"{counted(made, 'check')}, {clock.steady() - self._act_began:.1f} s"
        self._console.print()
        self.line(f"✓ {claim} ({took})", style="green")

    def line(self, text: str, style: str = "") -> None:
        """Prints an indented line."""
        self._print(Text(text, style=style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> None:
        """Prints a table, with the columns that fit the width. The first `left` columns hold words, the
        others figures. An empty row separates what follows."""
        grid = Grid("", heads)
        for row in rows:
            cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row or [""] * len(heads))
            grid.add_row(*map(Text, cells))
        found = layout(grid.columns, self._console.width - _INDENT)
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for it in found.columns:
            is_text = heads.index(it.head) < left
            table.add_column(it.head, justify="left" if is_text else "right", no_wrap=True)
        for shown in zip(*(it.shown for it in found.columns), strict=True):
            table.add_row(*shown) if any(shown) else table.add_section()
        self._console.print()
        self._print(grid if found.is_list else table)
        if found.left_out and not found.is_list:
            self.line(f"Not shown in this width: {', '.join(found.left_out)}", style="dim")

    def _print(self, shown: RenderableType) -> None:
        self._console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))

    def opening(self, about: str) -> None:
        """Prints the heading of the demo."""
        self._console.print(Text("\nbucketwise demo", style="bold cyan"))
        self.line(about)

    def closing(self, fault: str | None, lines: Sequence[str]) -> None:
        """Prints whether all checks held, how long the demo took, and lines below."""
        verdict = f"✗ {fault}" if fault else f"Everything adds up: {self.made:,} checks"
        took, style = f"{clock.steady() - self._began:.0f} seconds", "bold red" if fault else "bold green"
        self._console.print(Text(f"\n{verdict}, {took}.", style=style))
        for line in lines:
            self._console.print(Text(" " * _INDENT + line if line else ""), soft_wrap=True)  # to be copied
        self._console.print()
