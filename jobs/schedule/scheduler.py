"""The service: runs policies by their cron expressions.

A firing only checks what is due, by the ledger. So a single run at the start makes up for all firings that
were missed, and of two services side by side one does the work and the other finds it done.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from bucketwise.buckets import heap
from bucketwise.config.cron import Cron
from bucketwise.config.errors import LeaseHeldError
from bucketwise.config.policies import Policy
from bucketwise.config.tables import Notify
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.core.ledger import SCHEDULED, Ledger
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.notify import Notifier
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import Report, Result

#: Policies whose run failed, whose lease another run had, or that are paused, are tried again after this
#: long, if no firing comes before.
AGAIN = timedelta(minutes=5)
#: Runs at a time, since each takes memory of its own; the others wait. At the start, all that was missed is
#: due at once.
_AT_ONCE = 2
BEAT_SECONDS, _SILENCE_SECONDS = 15, 60.0


class CronTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Fires when `cron` does.

    APScheduler's own trigger counts weekdays from Monday and wants both day and weekday to fit; cron counts
    from Sunday and takes either.
    """

    def __init__(self, cron: Cron) -> None:
        self.cron = cron

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Returns the first firing after the previous one, or after now."""
        # One run at the start, which asks the ledger what is due, makes up for what was missed.
        return self.cron.first_after(previous_fire_time or now)


@dataclass(frozen=True)
class Task:
    """The work on one policy when `cron` fires. `runner_at(now)` makes the runner of one turn; `on_result`
    takes each result."""

    policy: Policy
    cron: Cron
    runner_at: Callable[[datetime], Runner]
    on_result: Callable[[Result], None]
    verb: str = SCHEDULED

    @property
    def name(self) -> str:
        """Returns the verb and the policy, as logs name the task."""
        return f"{self.verb} {self.policy.name}"


@dataclass(frozen=True)
class TaskRun:
    """A run of a task that is under way."""

    task: Task
    since: datetime
    progress: ProgressDisplay


@dataclass
class Service:
    """Runs tasks when they are due."""

    tasks: Sequence[Task]
    ledger: Ledger
    stop: Stop
    hosts: str
    notifier: Notifier = field(default_factory=lambda: Notifier(Notify(), log.warning))
    running: dict[str, TaskRun] = field(default_factory=dict)  # by policy
    ended: dict[str, tuple[datetime, Result]] = field(default_factory=dict)  # the last run of each, by policy
    _scheduler: Any = None  # once it serves
    _beat: float = field(default_factory=clock.steady)
    #: One for each policy: its tasks would find its lease held.
    _turns: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def serve(self) -> None:
        """Runs tasks until asked to stop, then finishes the current steps."""
        # A run waits here, however long, and asks what is due when its turn comes.
        runs = ThreadPoolExecutor(_AT_ONCE)
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": runs, "beat": ThreadPoolExecutor(1)},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        for task in self.tasks:
            self._scheduler.add_job(
                self._run_if_due,
                CronTrigger(task.cron),
                args=[task],
                id=task.name,
                next_run_time=clock.current(),  # what was missed
            )
        self._scheduler.add_job(self._beat_now, IntervalTrigger(seconds=BEAT_SECONDS), executor="beat")
        self._scheduler.start()
        log.info("schedule started", tasks=",".join(task.name for task in self.tasks))
        self.stop.wait()
        log.info("schedule is asked to stop; it finishes the current steps")
        self._scheduler.shutdown(wait=False)  # it would wait with a lock held that `_try_again_later` takes
        runs.shutdown(wait=True)
        self.notifier.wait()
        log.info("schedule ended")

    def is_alive(self) -> bool:
        """Returns whether the scheduler still starts jobs."""
        return clock.steady() - self._beat < _SILENCE_SECONDS

    def next_of(self, policy: str) -> datetime | None:
        """Returns when a policy is checked next."""
        if self._scheduler is None:
            return None
        jobs = (self._scheduler.get_job(it.name) for it in self.tasks if it.policy.name == policy)
        return min((it.next_run_time for it in jobs if it and it.next_run_time), default=None)

    def _beat_now(self) -> None:
        self._beat = clock.steady()

    def _run_if_due(self, task: Task) -> None:
        with self._turns[task.policy.name]:
            if not self.stop.is_requested:
                self._do(task)

    def _do(self, task: Task) -> None:
        now = clock.current()

        def is_due() -> bool:
            fired = task.cron.last_until(now)
            completed = self.ledger.last_completed(task.policy.identity, task.verb)
            return fired is not None and (completed is None or completed < fired)

        try:
            # Asked again while holding the lease: another service may have done it meanwhile.
            result = None
            if is_due():
                self.notifier.started()
                runner = task.runner_at(now)
                self.running[task.policy.name] = TaskRun(task, now, runner.progress)
                result = runner.run_if(task.policy, is_due)
        except Exception as error:  # noqa: BLE001  # the service outlives whatever one turn meets
            failure = failure_of(error, self.hosts)
            result = Result(task.policy.name, failure.exit_code, error=failure.message)
        finally:
            self.running.pop(task.policy.name, None)
        if result is None:
            log.info("nothing is due", policy=task.policy.name, verb=task.verb)
            return
        heap.release_memory()
        if task.verb == SCHEDULED:
            self.ended[task.policy.name] = clock.current(), result
        task.on_result(result)  # before it is reported: who reads of its end finds it in the metrics
        self.notifier.ended(Report(task.verb, now, [result]))
        self._report_result(task, result)
        if result.exit_code in (1, LeaseHeldError.exit_code) or result.paused:
            self._try_again_later(task, clock.current() + AGAIN)
        elif result.next_window is not None:
            self._try_again_later(task, result.next_window)

    def _report_result(self, task: Task, result: Result) -> None:
        outcome = {"outcome": result.outcome, "exit_code": result.exit_code}
        said = {"policy": result.policy, "verb": task.verb, **outcome}
        if result.outcome == "paused" and (paused := result.paused):
            log.info("policy is paused", policy=result.policy, by=paused["by"], reason=paused["reason"])
        elif result.stopped and (opens := result.next_window):
            log.info("run stopped", **said, reason=result.stopped, next_window=clock.iso(opens))
        elif result.exit_code in (0, 3, 11, 130):
            log.info("run ended", **said, **({} if result.error is None else {"reason": result.error}))
        else:
            log.error("run failed", **said, reason=result.error)

    def _try_again_later(self, task: Task, at: datetime) -> None:
        job = self._scheduler.get_job(task.name)
        if job is not None and (job.next_run_time is None or job.next_run_time > at):
            job.modify(next_run_time=at)
