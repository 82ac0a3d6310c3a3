"""`bucketwise demo`: plays the acts on a stage of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bucketwise.config import PATH_VARIABLE
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report

if TYPE_CHECKING:
    from bucketwise.jobs.demo.stage import Stage

Keep = Annotated[
    bool, typer.Option("--keep", help="Leave MongoDB running, and keep the archive and the policy file.")
]


def demo(call: Call, keep: Keep = False) -> Report:
    """Show the whole cycle on invented readings.

    Starts an embedded MongoDB and a store in a folder of its own, loads sample readings of every bucket
    model, rolls them up, archives, queries, restores, runs again and audits; and checks every number that it
    shows. Ends with exit code 1 where one is wrong.
    """
    return play(call if call.is_now_given else replace(call, now=PRESENT, is_now_given=True), keep=keep)


#: Where no --now is given, every demo is the same.
PRESENT = datetime(2026, 11, 2, 6, tzinfo=UTC)


def play(call: Call, *, keep: bool) -> Report:
    """Plays the demo. `call.now` is its present: its readings end there. Ends with 1 where a check failed."""
    from bucketwise.jobs.demo.stage import Show, stage

    if call.config is not None or call.names:
        raise UsageError("demo takes neither --config nor --policy: it brings its own policy file")
    if importlib.util.find_spec("duckdb") is None:
        message = "the demo queries with DuckDB, which is missing. Run: pip install 'bucketwise[demo]'"
        raise BucketwiseError(message)
    show = Show(silent=call.json)
    # The acts themselves are progress enough where there is no bar to move.
    quiet = call.quiet or not sys.stderr.isatty()
    with stage(call, show, keep=keep, quiet=quiet) as it:
        version = it.database.client.server_info()["version"]
        show.opening(f"MongoDB {version} and a store in {it.folder}, and the clock set to {iso(call.now)}.")
        report = _perform(it)
    program = "bucketwise" if shutil.which("bucketwise") else str(Path(sys.prefix, "bin", "bucketwise"))
    if keep:
        report.extra |= {"uri": it.mongod.uri, "config": str(it.call.config), "pid": it.mongod.pid}
        show.closing(report.error, _kept(it, program))
    else:
        gone = "MongoDB is stopped and the folder is gone. To look around yourself:"
        show.closing(report.error, [f"{gone} {program} demo --keep"])
    return report


def _perform(stage: Stage) -> Report:
    """Performs all acts, or those up to the first that finds a fault: those after it would only fail in
    turn."""
    from bucketwise.jobs.demo import acts
    from bucketwise.jobs.demo.stage import FaultError

    failed: list[str] = []
    try:
        for act in acts.ACTS:
            act(stage)
    except FaultError as fault:
        failed.append(str(fault))
    played = [it for it in stage.cases.values() if it.result.policy]
    sizes = [{"policy": it.policy.name, **it.sizes} for it in played]
    return Report(
        "demo",
        stage.call.now,
        [it.result for it in played],
        error=f"the demo does not add up: {failed[0]}" if failed else None,
        error_code=len(failed),
        extra={"sizes": sizes, "checks": stage.show.made, "failed": failed},
    )


def _kept(stage: Stage, program: str) -> list[str]:
    from bucketwise.config.load import OVERRIDES

    now = f"--now {iso(stage.call.now)}"
    in_the_way = [name for name in (PATH_VARIABLE, *OVERRIDES.values()) if os.environ.get(name)]
    return [
        "",
        f"MongoDB   {stage.mongod.uri.replace('/?', '/demo?')}",
        f"Policies  {stage.call.config}",
        f"Archive   {stage.folder}/store",
        f"Audit     {stage.folder}/audit.html",
        "",
        "To look around:",
        f"  cd {stage.folder}",
        *([f"  unset {' '.join(in_the_way)}"] if in_the_way else []),
        f"  {program} status {now}",
        f"  {program} plan   # by today's clock more has expired",
        f"  {program} restore {now} -p sales --to sales_back",
        "",
        "To end it:",
        f"  kill {stage.mongod.pid}; rm -r {stage.folder}",
    ]


JOB = Job(
    demo,
    beside=keeping.DemoWhole,
    unused=("config", "policy"),
    examples=(
        "bucketwise demo",
        "bucketwise demo --keep",
        "bucketwise demo --json | jq .sizes",
    ),
    answers=True,
)
