"""The demo from its first line to its last."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from config.errors import BucketwiseError, UsageError
from config.loading.environment import OVERRIDES
from config.loading.load import PATH_VARIABLE
from jobs.call import Call
from jobs.clock import iso
from jobs.demo.answers import query, summaries
from jobs.demo.back import back
from jobs.demo.cycle import audited, first_run, load, second_run, space
from jobs.demo.evidence import evidence
from jobs.demo.invent import invent
from jobs.demo.show import Show
from jobs.demo.stage import DemoCall, Place, Stage, place
from jobs.output.report import Report

#: Where no --now is given, every demo is the same.
PRESENT = datetime(2026, 11, 2, 6, tzinfo=UTC)
ACTS = (load, first_run, space, summaries, query, back, second_run, evidence, audited)


def play(call: Call, *, keep: bool) -> Report:
    """Plays the demo. `call.now` is its present: its readings end there. Ends with 1 where a check failed."""
    if call.config is not None or call.names:
        raise UsageError("demo takes neither --config nor --policy: it brings its own policy file")
    if importlib.util.find_spec("duckdb") is None:
        message = "the demo queries with DuckDB, which is missing. Run: pip install 'bucketwise[demo]'"
        raise BucketwiseError(message)
    show = Show(silent=call.json)
    with place(keep=keep) as it:
        given = {field.name: getattr(call, field.name) for field in fields(Call)}
        # The acts themselves are progress enough where there is no bar to move.
        own = DemoCall(**given | {"config": it.config, "quiet": call.quiet or not sys.stderr.isatty()})
        with own.database() as database:
            version, clock = database.client.server_info()["version"], iso(call.now)
            about = f"An embedded MongoDB {version}, a folder as store, and the clock set to {clock}."
            show.opening([about, str(it.folder)])
            made = {part.name: part for part in invent(call.now)}
            report = _perform(Stage(own, it, database, made, show))
        show.closing(_kept(own, it) if keep else [_gone()])
    if keep:
        report.extra |= {"uri": it.mongod.uri, "config": str(it.config), "pid": it.mongod.pid}
    return report


def _perform(stage: Stage) -> Report:
    """Performs all acts, or those up to the first that finds a fault: those after it would only fail in
    turn."""
    for act in ACTS:
        act(stage)
        if stage.show.failed:
            break
    made, failed = stage.show.made, stage.show.failed
    error = f"the demo does not add up: {failed[0]}" if failed else None
    extra = {"sizes": stage.sizes, "checks": made, "failed": failed}
    return Report("demo", stage.now, stage.results, error=error, error_code=1 if error else 0, extra=extra)


def _gone() -> str:
    return f"MongoDB is stopped and the folder is gone. To look around yourself: {_program()} demo --keep"


def _program() -> str:
    """Returns what to type: the path of the environment's own program, where it is not on PATH."""
    return "bucketwise" if shutil.which("bucketwise") else str(Path(sys.prefix, "bin", "bucketwise"))


def _kept(call: Call, place: Place) -> list[str]:
    now = f"--now {iso(call.now)}"
    in_the_way = [name for name in (PATH_VARIABLE, *OVERRIDES.values()) if os.environ.get(name)]
    return [
        "",
        f"MongoDB   {place.mongod.uri}, database demo",
        f"Policies  {place.config}",
        f"Archive   {place.store}",
        f"Audit     {place.page}",
        "",
        "To look around:",
        f"  cd {place.folder}",
        *([f"  unset {' '.join(in_the_way)}"] if in_the_way else []),
        f"  {_program()} status {now}",
        f"  {_program()} plan   # by today's clock more has expired",
        f"  {_program()} restore {now} -p sales --to sales_back",
        "",
        "To end it:",
        f"  kill {place.mongod.pid}; rm -r {place.folder}",
    ]
