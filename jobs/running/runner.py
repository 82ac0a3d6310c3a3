"""Runs policies one after another: the lease, the ledger, then the steps of the verb."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import structlog
from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.format.keys import UNSIGNED, Keys
from archivers.stores import ObjectStore
from archivers.tasks import Connections, Executor
from config.policies import Policy
from jobs import clock
from jobs.call import Call
from jobs.execution.executors import local
from jobs.failures import OUTCOMES, Failure, explain
from jobs.output.progress import Progress
from jobs.output.report import Result, worst
from jobs.running.lease import Lease
from jobs.running.ledger import Ledger
from jobs.stopping import Stop
from rollups.guarded import dry

Document = dict[str, Any]
#: Who does the tasks, for one policy's turn.
Staff = Callable[[Connections], AbstractContextManager[Executor]]
log = structlog.get_logger()


@dataclass(frozen=True)
class Work:
    """One policy's turn. `check` raises where it must stop; `guard` does so inside a transaction."""

    database: Database[Document]
    store: ObjectStore | None
    keys: Keys
    policy: Policy
    readers: tuple[Policy, ...]  # others that roll up the same collection
    is_archived_by_another: bool  # the same collection, by another policy
    steps: tuple[str, ...]  # all of this turn, by name
    now: datetime
    since: datetime | None
    until: datetime | None
    dry_run: bool
    fence: int
    taken_at: datetime  # the lease, by the server's clock; `now` where there is none
    guard: Callable[[ClientSession], None]
    check: Callable[[], None]
    progress: Progress
    executor: Executor


@dataclass(frozen=True)
class Done:
    """What a step did: its part of the JSON, and its exit code, 0 or that of what it found."""

    body: Document
    exit_code: int = 0


@dataclass(frozen=True)
class Step:
    """`by_present`: what it does depends on what time it is."""

    name: str
    do: Callable[[Work], Done]
    by_present: bool = False


@dataclass
class Runner:
    """Runs `steps` for policies. With one step its body is the policy's; with more each goes by its name."""

    verb: str
    steps: Sequence[Step]
    database: Database[Document]
    store: ObjectStore | None
    now: datetime
    stop: Stop
    progress: Progress
    is_now_given: bool = False  # by a person, who may mean another instant than the present
    since: datetime | None = None
    until: datetime | None = None
    dry_run: bool = False
    hosts: str = ""
    keys: Keys = UNSIGNED
    known: Sequence[Policy] = ()  # all policies of the file
    staff: Staff = local
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(
        cls,
        call: Call,
        database: Database[Document],
        steps: Sequence[Step],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        dry_run: bool = False,
        staff: Staff = local,
    ) -> Runner:
        """A runner for what the command line asks for."""
        return cls(
            verb=call.command,
            steps=steps,
            database=database,
            store=call.store,
            now=call.now,
            stop=call.stop,
            progress=call.progress,
            is_now_given=call.is_now_given,
            since=since,
            until=until,
            dry_run=dry_run,
            hosts=call.hosts,
            keys=call.keys,
            known=tuple(call.settings.policies.values()),
            staff=staff,
        )

    def run_all(self, policies: Sequence[Policy]) -> list[Result]:
        """A policy that fails keeps none of the others from running; an interruption does."""
        results = []
        for policy in policies:
            results.append(self.run_one(policy))
            if self.stop.asked:
                break
        return results

    def run_one(self, policy: Policy) -> Result:
        """Raises nothing: what went wrong is in the result."""
        result = self.run_if(policy, lambda: True)
        assert result is not None
        return result

    def run_if(self, policy: Policy, is_wanted: Callable[[], bool]) -> Result | None:
        """`is_wanted` is asked once the lease is held; None where it says no, and nothing was done."""
        result = Result(policy.name)
        try:
            self.stop.check()
            if not self.is_now_given and any(step.by_present for step in self.steps):
                clock.check_skew(self.now, self._server_now)
            with self.staff(Connections(self.database, self.store)) as workers:
                if self.dry_run:
                    self._do(result, self._work(policy, 0, self.now, dry, workers, self.stop.check))
                    return result
                with Lease(self.database, policy.name) as lease:
                    if not is_wanted():
                        return None
                    self._do_recorded(result, policy, lease, workers)
        except Exception as error:  # noqa: BLE001  # the next policy is to have its turn
            self._fail(result, error)
        return result

    @cached_property
    def _server_now(self) -> datetime:
        """Asked once, at the start: `now` is that of the first policy for all of them."""
        return clock.of_server(self.database)

    def _do_recorded(self, result: Result, policy: Policy, lease: Lease, workers: Executor) -> None:
        ledger = Ledger(self.database)
        entry = ledger.start(self.run, self.verb, policy.name, self.now, lease)

        try:
            work = self._work(policy, lease.fence, lease.taken_at, lease.guard, workers, lease.check)
            self._do(result, work)
        except Exception as error:  # noqa: BLE001  # whatever it is, the ledger says it
            # Once another run has the lease, what was found changed or missing is its doing.
            self._fail(result, lease.taken() or error)
        counts = _counts(result.body)
        ledger.finish(entry, result.exit_code, OUTCOMES[result.exit_code], counts, result.error)

    def _do(self, result: Result, work: Work) -> None:
        for step in self.steps:
            work.check()
            with self.progress.step(f"{work.policy.name}: {step.name}"):
                done = step.do(work)
            result.body.update(done.body if len(self.steps) == 1 else {step.name: done.body})
            result.exit_code = worst([result.exit_code, done.exit_code])

    def _work(
        self,
        policy: Policy,
        fence: int,
        taken_at: datetime,
        guard: Callable[[ClientSession], None],
        workers: Executor,
        is_ours: Callable[[], None],
    ) -> Work:
        def check() -> None:
            is_ours()
            self.stop.check()
            workers.check()

        others = [it for it in self.known if it.collection == policy.collection and it.name != policy.name]
        return Work(
            database=self.database,
            store=self.store,
            keys=self.keys,
            policy=policy,
            readers=tuple(it for it in others if it.rollup is not None),
            is_archived_by_another=any(it.archive is not None and it.archive.to != "none" for it in others),
            steps=tuple(step.name for step in self.steps),
            now=self.now,
            since=self.since,
            until=self.until,
            dry_run=self.dry_run,
            fence=fence,
            taken_at=taken_at,
            guard=guard,
            check=check,
            progress=self.progress,
            executor=workers,
        )

    def _fail(self, result: Result, error: BaseException) -> None:
        """The first failure is the cause; what follows from it must not hide it."""
        failure: Failure = explain(error, self.hosts)
        result.exit_code = worst([result.exit_code, failure.exit_code])
        result.error = result.error or failure.message


def _counts(body: Document) -> Document:
    """The numbers of a body: lists belong into the report, and the ledger stays small."""
    return {
        key: _counts(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if not isinstance(value, list)
    }
