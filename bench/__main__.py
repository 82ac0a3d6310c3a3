"""Measures on the demo's readings, and prints two tables. Speeds are this machine's; ratios travel."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from bench.speeds import deletes, reading, work
from jobs.demo.checks import Checks
from jobs.demo.invent import invent
from jobs.demo.load import load
from jobs.demo.place import DemoCall, place
from jobs.demo.play import PRESENT
from jobs.demo.show import Show
from jobs.demo.stage import Stage
from jobs.stopping import Stop


def main() -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    with place(keep=False) as it:
        call = DemoCall("bench", it.config, (), PRESENT, True, True, True, True, Stop())
        with call.database() as database:
            made = {part.name: part for part in invent(PRESENT)}
            checks = Checks()
            stage = Stage(call, it, database, made, Show(checks, silent=True), checks)
            load(stage)
            console.print(_readings(stage))
            console.print(_deletes(stage))
            console.print(_work(stage))


def _readings(stage: Stage) -> Table:
    table = _table(
        "Reading a source: million readings a second", "policy", "model", "raw batches", "decoding"
    )
    for head in ("to columns", "to dicts", "columns : dicts", "columns : raw"):
        table.add_column(head, justify="right")
    for policy in stage.policies:
        count, took = len(stage.made[policy.name].time), reading(stage, policy)
        speeds = [f"{count / seconds / 1e6:.2f}" for seconds in took]
        ratios = [f"{took.dicts / took.columns:.1f}", f"{took.drained / took.columns:.2f}"]
        table.add_row(policy.name, policy.model, *speeds, *ratios)
    return table


def _deletes(stage: Stage) -> Table:
    table = _table("Deleting: thousand documents a second", "policy", "", "guarded", "bare", "guarded : bare")
    policy = stage.call.settings.policies["temperature"]
    guarded, bare, count = deletes(stage, policy)
    speeds = [f"{count / seconds / 1e3:.1f}" for seconds in (guarded, bare)]
    table.add_row(policy.name, policy.model, *speeds, f"{bare / guarded:.2f}")
    return table


def _work(stage: Stage) -> Table:
    table = _table("The commands: million readings a second", "policy", "to", "rollup", "archive", "restore")
    table.add_column("archived bytes each", justify="right")
    for policy in stage.policies:
        did = work(stage, policy)
        counts = (did.readings, did.archived_readings, did.archived_readings)
        speeds = [f"{count / seconds / 1e6:.3f}" for count, seconds in zip(counts, did, strict=False)]
        to = policy.archive.to if policy.archive else ""
        table.add_row(policy.name, to, *speeds, f"{did.archive_bytes / did.archived_readings:.2f}")
    return table


def _table(title: str, *heads: str) -> Table:
    """Two columns of words, then figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at < 2 else "right")
    return table


if __name__ == "__main__":
    main()
