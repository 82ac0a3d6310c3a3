"""`bucketwise schedule`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketwise.config.cron import parse_cron
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, MetricsFile
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.turn import RunOptions, Step
from bucketwise.jobs.drill import drill_step
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.run.verb import followers_of, steps_of
from bucketwise.jobs.status import PLACE

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.config.policies import Policy
    from bucketwise.jobs.core.metrics import Metrics
    from bucketwise.jobs.core.runner import Runner
    from bucketwise.jobs.schedule.scheduler import Task

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
        help="Address to listen on.",
    ),
]

AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        envvar="BUCKETWISE_ALLOW_HOST",
        metavar="NAME",
        help="Answer requests under this host name as well. Can be repeated.",
    ),
]

AuditPage = Annotated[
    Path | None,
    typer.Option(
        "--audit-page",
        envvar="BUCKETWISE_AUDIT_PAGE",
        metavar="FILE",
        help="The page that `audit --html FILE` writes: served as /audit, and linked.",
    ),
]

_DRILL = "drill"


def schedule(
    call: Call,
    metrics_port: Port = None,
    metrics_host: Host = "127.0.0.1",
    allow_host: AllowedHosts = None,
    metrics_file: MetricsFile = None,
    audit_page: AuditPage = None,
) -> Report:
    """Stay up and run policies on schedule.

    A policy's `schedule` is a cron expression in UTC. At the start each policy whose last firing was
    missed runs once. `drill.schedule` says when archives are drilled. Being asked to stop (SIGTERM, SIGINT,
    SIGHUP) ends it with exit code 0 after the step in hand.
    """
    from bucketwise.jobs.core.ledger import Ledger
    from bucketwise.jobs.core.metrics import Metrics
    from bucketwise.jobs.core.notify import Notifier
    from bucketwise.jobs.schedule.board import Board, pages
    from bucketwise.jobs.schedule.scheduler import Service
    from bucketwise.jobs.schedule.server import Hosts, in_url, served

    if call.is_now_given:
        raise UsageError("--now: schedule follows the clock; use `bucketwise run --now` for another instant")
    hosts = Hosts.of(metrics_host, allow_host or ())
    runs, drills = _scheduled(call)
    file = metrics_file or call.settings.metrics_file
    counted = _TurnCounter(
        Metrics(), file, {it.name: Counter() for it in call.policies if it in (*runs, *drills)}
    )
    options = RunOptions(
        open_executor=call.open_executor(),
        followers=followers_of(call.settings),
    )
    with call.database() as database:
        runners = _Runners(call, database, options, is_measured=metrics_port is not None or file is not None)
        notifier = Notifier(call.settings.notify, lambda it: log.warning("not told", reason=it))
        service = Service(
            list(_tasks(runs, drills, runners, counted)), Ledger(database), call.stop, call.hosts, notifier
        )
        board = Board(service, database, call.policies, runners.place, call.config, file, audit_page)
        serving = (
            nullcontext(None)
            if metrics_port is None
            else served(pages(board, counted.metrics), metrics_host, metrics_port, hosts)
        )
        with serving as port:
            if port is not None:
                log.info("metrics are served", address=f"http://{in_url(metrics_host)}:{port}/metrics")
            service.serve()
    return Report(call.command, call.now, counted.results())


def _tasks(
    runs: Sequence[Policy], drills: Sequence[Policy], runners: _Runners, counted: _TurnCounter
) -> Iterator[Task]:
    from bucketwise.jobs.core.ledger import SCHEDULED
    from bucketwise.jobs.schedule.scheduler import Task

    for it in runs:
        yield Task(it, parse_cron(it.schedule or ""), runners.run, partial(counted.add, SCHEDULED))
    cron = runners.call.settings.drill.schedule or ""
    for it in drills:
        yield Task(it, parse_cron(cron), runners.drill, partial(counted.add, _DRILL), _DRILL)


@dataclass(frozen=True)
class _TurnCounter:
    """Counts the turns of a schedule by policy, and adds them to the metrics and their file."""

    metrics: Metrics
    file: Path | None
    turns: dict[str, Counter[str]]

    def add(self, verb: str, result: Result) -> None:
        """Adds a turn of a policy."""
        from bucketwise.jobs.core.metrics import add

        self.metrics.record(verb, result)
        if self.file is not None and (complaint := add(self.file, verb, [result])):
            log.warning(complaint)
        self.turns[result.policy][f"{verb}s"] += not result.is_idle

    def results(self) -> list[Result]:
        """Returns a result a policy, with the number of its runs and drills."""
        return [
            Result(name, 0, {key: it[key] for key in ("runs", "drills")}) for name, it in self.turns.items()
        ]


@dataclass(frozen=True)
class _Runners:
    """Creates the runners of `run`, `drill` and `status` for an instant. `options` are those of runs."""

    call: Call
    database: Database[dict[str, Any]]
    options: RunOptions
    is_measured: bool

    def run(self, now: datetime) -> Runner:
        from bucketwise.jobs.core.ledger import SCHEDULED

        return self._runner(now, SCHEDULED, steps_of(self.call.settings), self.options)

    def drill(self, now: datetime) -> Runner:
        step = drill_step(self.call.settings.drill.days, now.toordinal())
        return self._runner(now, _DRILL, [step], replace(self.options, followers=()))

    def place(self, policy: Policy) -> Result:
        """Returns where a policy stands now."""
        looker = self._runner(clock.current(), "status", [PLACE], RunOptions(dry_run=True))
        return replace(looker, is_measured=False).run_one(policy)

    def _runner(self, now: datetime, verb: str, steps: Sequence[Step], options: RunOptions) -> Runner:
        from bucketwise.jobs.core.ledger import SCHEDULED
        from bucketwise.jobs.core.runner import Runner

        return replace(
            Runner.of(self.call, self.database, steps, options),
            verb=verb,
            is_pausable=verb == SCHEDULED,
            now=now,
            progress=ProgressDisplay(quiet=True),  # log lines tell of runs here
            arguments=(),  # those of `schedule` are no run's
            notifies_late=verb == SCHEDULED and self.call.settings.notify.notifies_late,
            is_measured=self.is_measured,
        )


def _scheduled(call: Call) -> tuple[list[Policy], list[Policy]]:
    """The policies that have a schedule, and those that are drilled by one. Raises UsageError where there are
    none."""
    for policy in call.policies:
        if policy.schedule is None:
            log.warning("policy has no schedule and is not run", policy=policy.name)
    scheduled = [policy for policy in call.policies if policy.schedule is not None]
    archives = [policy for policy in call.policies if policy.archiving]
    drilled = archives if call.settings.drill.schedule is not None else []
    if not scheduled and not drilled:
        raise UsageError(
            f'no policy in {call.settings.path} has a schedule. Add one, such as schedule = "*/10 * * * *"'
        )
    return scheduled, drilled


JOB = Job(
    schedule,
    examples=(
        "bucketwise schedule",
        "bucketwise schedule --metrics-port 9464 --metrics-host 0.0.0.0",
        'schedule = "*/10 * * * *"   # in a policy: when it runs, UTC',
    ),
    has_workers=True,
)
