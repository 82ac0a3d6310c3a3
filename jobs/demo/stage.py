"""What the acts of the demo share: the server, the policies with their readings, and the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from io import StringIO
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, NamedTuple, cast

import bson
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
from bucketwise.jobs.demo.invent import Flags, Invented, invent
from bucketwise.jobs.output.report import Report, Result

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
    """What the acts share."""

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
        counted = "1 check" if made == 1 else f"{made:,} checks"
        took = f"{counted}, {clock.steady() - self._act_began:.1f} s"
        self._console.print()
        self.line(f"✓ {claim} ({took})", style="green")

    def line(self, text: str, style: str = "") -> None:
        """Prints an indented line."""
        self._print(Text(text, style=style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> None:
        """Prints a table. The first `left` columns hold words, the others figures. An empty row separates
        what follows."""
        table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
        for at, head in enumerate(heads):
            table.add_column(head, justify="left" if at < left else "right", no_wrap=True)
        for row in rows:
            cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
            table.add_row(*map(Text, cells)) if row else table.add_section()
        self._console.print()
        self._print(table)

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
