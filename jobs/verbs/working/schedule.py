"""`bucketwise schedule`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated

import structlog
import typer

from config.cron import parse_cron
from config.errors import UsageError
from config.policies import Policy
from jobs import clock
from jobs.call import Call
from jobs.options import Executor, MetricsFile, WorkerCount
from jobs.output.progress import Progress
from jobs.output.report import Report, Result
from jobs.running.ledger import SCHEDULED, Ledger
from jobs.running.runner import Runner, RunOptions
from jobs.running.turn import Step
from jobs.service.board import Board, pages
from jobs.service.metrics import Metrics
from jobs.service.metrics_file import add
from jobs.service.notify import Notifier
from jobs.service.scheduler import Service, Task
from jobs.service.server import served
from jobs.steps.evidence import drill_step
from jobs.steps.lake import registering
from jobs.steps.publish import published
from jobs.steps.status import PLACE
from jobs.steps.working import RUN

EXAMPLES = [
    "bucketwise schedule",
    "bucketwise schedule --metrics-port 9464 --metrics-host 0.0.0.0",
    'schedule = "*/10 * * * *"   # in a policy: when it runs, UTC',
]
Port = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        envvar="BUCKETWISE_METRICS_PORT",
        min=0,
        max=65535,
        metavar="N",
        help="Serve a page for people, /metrics and /healthz on this port.",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--metrics-host",
        envvar="BUCKETWISE_METRICS_HOST",
        metavar="ADDRESS",
        help="The address to serve them on.",
    ),
]
log = structlog.get_logger()


def schedule(
    call: Call,
    metrics_port: Port = None,
    metrics_host: Host = "127.0.0.1",
    metrics_file: MetricsFile = None,
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Stay up and run policies on schedule.

    A policy's `schedule` is a cron expression in UTC. At the start each policy whose last firing was
    missed runs once. `drill.schedule` says when archives are drilled. Being asked to stop (SIGTERM, SIGINT,
    SIGHUP) ends it with exit code 0 after the step in hand.
    """
    if call.is_now_given:
        raise UsageError("--now: schedule goes by the clock; use `bucketwise run --now` for another instant")
    runs, drills = _scheduled(call)
    staff, metrics = call.staff(workers, executor), Metrics()
    followers = (*registering(call.settings.lake), *published(call.settings))
    file = metrics_file or call.settings.metrics_file
    counts = {policy.name: Counter[str]() for policy in call.policies if policy in (*runs, *drills)}

    def count(verb: str, result: Result) -> None:
        metrics.record(verb, result)
        if file is not None and (complaint := add(file, verb, [result])):
            log.warning(complaint)
        counts[result.policy][f"{verb}s"] += not result.is_idle

    with call.database() as database:

        def runner_at(now: datetime, verb: str, steps: Sequence[Step]) -> Runner:
            return Runner(
                verb=verb,
                steps=steps,
                database=database,
                store=call.store,
                now=now,
                stop=call.stop,
                progress=Progress(quiet=True),  # log lines tell of runs here
                options=RunOptions(staff=staff, followers=followers if verb == SCHEDULED else ()),
                hosts=call.hosts,
                keys=call.keys,
                known=tuple(call.settings.policies.values()),
                keep=call.settings.ledger.keep,
                tells_late=verb == SCHEDULED and call.settings.notify.tells_late,
                is_measured=metrics_port is not None or file is not None,
            )

        def place_at(now: datetime, policy: Policy) -> Result:
            looker = runner_at(now, "status", [PLACE])
            return replace(looker, options=RunOptions(dry_run=True), is_measured=False).run_one(policy)

        def run_at(now: datetime) -> Runner:
            return runner_at(now, SCHEDULED, RUN)

        def drill_at(now: datetime) -> Runner:
            return runner_at(now, "drill", [drill_step(call.settings.drill.days, now.toordinal())])

        tasks = [Task(it, parse_cron(it.schedule or ""), run_at, partial(count, SCHEDULED)) for it in runs]
        cron = call.settings.drill.schedule or ""
        tasks += [Task(it, parse_cron(cron), drill_at, partial(count, "drill"), "drill") for it in drills]
        notifier = Notifier(call.settings.notify, lambda it: log.warning("not told", reason=it))
        service = Service(tasks, Ledger(database), call.stop, call.hosts, notifier)
        board = Board(
            service, database, call.policies, lambda it: place_at(clock.current(), it), call.config, file
        )
        serving = (
            nullcontext(None)
            if metrics_port is None
            else served(pages(board, metrics), metrics_host, metrics_port)
        )
        with serving as port:
            if port is not None:
                log.info("metrics are served", address=f"http://{metrics_host}:{port}/metrics")
            service.serve()
    done = {name: {"runs": it["runs"], "drills": it["drills"]} for name, it in counts.items()}
    return Report(call.command, call.now, [Result(name, 0, body) for name, body in done.items()])


def _scheduled(call: Call) -> tuple[list[Policy], list[Policy]]:
    """The policies that have a schedule, and those that are drilled by one. Raises UsageError where there are
    none."""
    for policy in call.policies:
        if policy.schedule is None:
            log.warning("policy has no schedule and is not run", policy=policy.name)
    scheduled = [policy for policy in call.policies if policy.schedule is not None]
    archives = [policy for policy in call.policies if policy.archive and policy.archive.to == "offline"]
    drilled = archives if call.settings.drill.schedule is not None else []
    if not scheduled and not drilled:
        raise UsageError(
            f'no policy in {call.settings.path} has a schedule. Add one, such as schedule = "*/10 * * * *"'
        )
    return scheduled, drilled
