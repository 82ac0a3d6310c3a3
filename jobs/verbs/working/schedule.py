"""`bucketwise schedule`."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime
from typing import Annotated

import structlog
import typer

from config.errors import UsageError
from config.policies import Policy
from jobs.call import Call
from jobs.options import Executor, WorkerCount
from jobs.output.progress import Progress
from jobs.output.report import Report, Result
from jobs.running.ledger import Ledger
from jobs.running.runner import Runner, RunOptions
from jobs.running.steps import RUN
from jobs.service.metrics import Metrics, served
from jobs.service.notify import Notifier
from jobs.service.scheduler import VERB, Service

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
        help="Serve /metrics and /healthz on this port.",
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
    workers: WorkerCount = None,
    executor: Executor = None,
) -> Report:
    """Stay up and run policies on schedule.

    A policy's `schedule` is a cron expression in UTC. At the start each policy whose last firing was
    missed runs once. Being asked to stop (SIGTERM, SIGINT, SIGHUP) ends it with exit code 0 after the step in
    hand.
    """
    if call.is_now_given:
        raise UsageError("--now: schedule goes by the clock; use `bucketwise run --now` for another instant")
    policies, staff = _scheduled(call), call.staff(workers, executor)
    metrics, runs = Metrics(), {policy.name: 0 for policy in policies}

    def count(result: Result) -> None:
        metrics.record(result)
        runs[result.policy] += 1

    with call.database() as database:

        def runner_at(now: datetime) -> Runner:
            return Runner(
                verb=VERB,
                steps=RUN,
                database=database,
                store=call.store,
                now=now,
                stop=call.stop,
                progress=Progress(quiet=True),  # log lines tell of runs here
                options=RunOptions(staff=staff),
                hosts=call.hosts,
                keys=call.keys,
                known=tuple(call.settings.policies.values()),
                keep=call.settings.ledger.keep,
                tells_late=call.settings.notify.tells_late,
            )

        notifier = Notifier(call.settings.notify, lambda it: log.warning("not told", reason=it))
        service = Service(policies, Ledger(database), runner_at, count, call.stop, call.hosts, notifier)
        serving = (
            nullcontext(None)
            if metrics_port is None
            else served(metrics, service.is_alive, metrics_host, metrics_port)
        )
        with serving as port:
            if port is not None:
                log.info("metrics are served", address=f"http://{metrics_host}:{port}/metrics")
            service.serve()
    return Report(call.command, call.now, [Result(name, 0, {"runs": n}) for name, n in runs.items()])


def _scheduled(call: Call) -> list[Policy]:
    """The policies with a schedule. Raises UsageError where there are none."""
    for policy in call.policies:
        if policy.schedule is None:
            log.warning("policy has no schedule and is not run", policy=policy.name)
    scheduled = [policy for policy in call.policies if policy.schedule is not None]
    if not scheduled:
        raise UsageError(
            f'no policy in {call.settings.path} has a schedule. Add one, such as schedule = "*/10 * * * *"'
        )
    return scheduled
