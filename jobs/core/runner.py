"""Runs policies one after another: takes the lease, writes the ledger, then runs the steps of the verb."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import pymongo
from pymongo.database import Database
from pymongo.errors import PyMongoError

from bucketwise.archivers.context import ArchiveContext, ArchiveState, Connections, Executor, LocalExecutor
from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.markers import Topology
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.buckets.fields.times import later
from bucketwise.buckets.phases import profiled
from bucketwise.config.cron import missed_since
from bucketwise.config.errors import InterruptedRun, PausedError, WindowOverError
from bucketwise.config.policies import Policy
from bucketwise.config.tables import USUAL_MEMORY
from bucketwise.jobs.core import clock, machine
from bucketwise.jobs.core.call import Call, take_reads_from_copies
from bucketwise.jobs.core.failures import Failure, failure_of
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.ledger import COMPLETED, SCHEDULED, Ledger, Run
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.core.throttle import Members, Throttler
from bucketwise.jobs.core.turn import (
    LEFT_SOMETHING,
    USUAL,
    Document,
    Follower,
    RunOptions,
    Step,
    Turn,
    profile_body,
)
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.output.report import OUTCOMES, Result, worst_exit_code
from bucketwise.rollups.context import dry_run_guard, no_limit, no_listener

if TYPE_CHECKING:
    from bucketwise.rollups.changes.drain import SharedChanges

_FRESH_S = 60  # after which a shared read of the changes of several policies is continued
_LEEWAY_S = 60  # for which a run may go on once its window is over, to publish what it has written
_PATIENCE_S = 5  # that what only looks waits for the ledger
WINDOW_OVER: Final = "window over"  # what the ledger says of a run that ended for it


@dataclass
class Runner:
    """Runs `steps` for policies. With one step its body is the policy's; with more each goes by its name."""

    verb: str
    steps: Sequence[Step]
    database: Database[Document]
    store: ObjectStore | None
    now: datetime
    stop: Stop
    progress: ProgressDisplay
    options: RunOptions = USUAL
    is_pausable: bool = True  # not while the policy is paused, or its window closed
    is_now_given: bool = False  # by a person, who may mean another instant than the present
    hosts: str = ""
    keys: Keys = UNSIGNED
    arguments: Sequence[str] | None = ()  # given with the verb; None: they name series
    known: Sequence[Policy] = ()  # all policies of the file
    memory: int = USUAL_MEMORY  # of this process, where nobody else does the tasks
    keep: timedelta | None = None  # entries of the ledger; None: forever
    notifies_late: bool = False  # whether a firing was missed before
    is_measured: bool = False  # for metrics
    is_throttled: bool = True  # by what policies say
    begun: float = field(default_factory=clock.steady)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _topology: Topology = field(default_factory=Topology)
    _shared: SharedChanges | None = None
    _read_again_at: float = 0.0

    @classmethod
    def of(
        cls,
        call: Call,
        database: Database[Document],
        steps: Sequence[Step],
        options: RunOptions = USUAL,
    ) -> Runner:
        """Returns a runner for what the command line asks for."""
        return cls(
            verb=call.command,
            steps=steps,
            database=database,
            store=call.store,
            now=call.now,
            stop=call.stop,
            progress=call.progress,
            options=options,
            is_pausable=call.is_pausable,
            is_now_given=call.is_now_given,
            hosts=call.hosts,
            keys=call.keys,
            arguments=call.arguments,
            known=tuple(call.settings.policies.values()),
            memory=call.settings.work.memory,
            keep=call.settings.ledger.keep,
            notifies_late=call.command == SCHEDULED and call.settings.notify.notifies_late,
            is_measured=call.metrics_file is not None,
            is_throttled=not call.no_throttle,
        )

    def run_all(self, policies: Sequence[Policy]) -> list[Result]:
        """Runs each policy. One that fails keeps none of the others from running; an interruption does."""
        results = []
        self._shared = self._sharing(policies)
        for number, policy in enumerate(policies, start=1):
            self.progress.among = number, len(policies)
            results.append(self.run_one(policy))
            if self._shared is not None:
                self._shared.leave_out(policy)
            if self.stop.is_requested:
                break
        return results

    def _sharing(self, policies: Sequence[Policy]) -> SharedChanges | None:
        """Returns the reader that reads the changes of several policies at once, if these are rolled up
        one after another. A policy whose window is closed is not among them."""
        rolls_up = any(step.follows_changes for step in self.steps)
        ever = [it for it in policies if not self.options.within(it).is_bounded] if rolls_up else []
        working = [it for it in ever if self._may_work(it)]
        if len(working) < 2:
            return None
        from bucketwise.rollups.changes.drain import SharedChanges

        return SharedChanges(self.database, working, RECEIPTS, leaves_marks=not self.options.dry_run)

    def _read_on(self) -> None:
        """Reads the change stream, under a lease, since it leaves a mark. The result is good for a while:
        what has come in since is for the next run."""
        if self._shared is not None and clock.steady() >= self._read_again_at:
            self._shared.read_on(self.stop.check)
            self._read_again_at = clock.steady() + _FRESH_S

    def run_one(self, policy: Policy) -> Result:
        """Returns the result of one policy. Raises nothing: errors are in the result."""
        result = self.run_if(policy, lambda: True)
        assert result is not None
        return result

    def run_if(self, policy: Policy, is_wanted: Callable[[], bool]) -> Result | None:
        """Runs a policy if it `is_wanted`, which is asked once the lease is held. Returns None, and does
        nothing, where it is not."""
        result, started = Result(policy.name, has_window=self.is_pausable), clock.current()
        self.progress.steps = {it.name: it.weight for it in self.steps}
        try:
            self.stop.check()
            if not self.is_now_given and any(step.by_present for step in self.steps):
                clock.check_skew(self.now, self._server_now)
            result.late_since = self._late_since(policy)
            if (gate := self._gate(policy)) is not None:
                gate.check_window(self._present())
            open_executor = self.options.open_executor or self._local
            with open_executor(Connections(self.database, self.store)) as executor:
                if self.options.dry_run:
                    self._read_on()
                    self._do_dry(result, self._turn(policy, None, executor), started)
                    return result
                with Lease(self.database, policy.identity, pausable=self.is_pausable) as lease:
                    if not is_wanted():
                        if lease.is_clean:
                            lease.leave_clean()
                        return None
                    self._do_recorded(result, lease, self._turn(policy, lease, executor, gate), gate)
        except PausedError as error:  # before its first step: there was nothing to do
            result.paused = error.paused
        except WindowOverError as error:
            result.stopped, result.next_window = "outside window", error.opens_at
        except Exception as error:  # noqa: BLE001  # the next policy is to have its turn
            self._fail(result, error)
        if self.is_measured:
            self._measure(result, policy)
        return result

    def _late_since(self, policy: Policy) -> datetime | None:
        if not self.notifies_late or policy.schedule is None:
            return None
        completed = Ledger(self.database).last_completed(policy.identity, SCHEDULED)
        return missed_since(policy.schedule, completed, self.now, policy.throttle.window)

    def _measure(self, result: Result, policy: Policy) -> None:
        """Measures when it ended, the requests to the store, and how the policy stands now."""
        from bucketwise.jobs.core.gauges import gauges

        result.measures.ended = clock.current()
        if self.store is not None:
            result.measures.requests, result.measures.retries = self.store.requests.take()
        local = LocalExecutor(Connections(self.database, self.store))
        result.measures.gauges = gauges(self._turn(policy, None, local).context)

    @cached_property
    def _server_now(self) -> datetime:
        """Returns the server's clock, asked once at the start: all policies share the `now` of the first."""
        return clock.of_server(self.database)

    def _gate(self, policy: Policy) -> Throttler | None:
        if not self.is_throttled or self.options.dry_run or not self.is_pausable:
            return None
        return Throttler(policy.throttle, Members(self.database).lag, clock.steady())

    def _may_work(self, policy: Policy) -> bool:
        gate = self._gate(policy)
        return gate is None or gate.opens_at(self._present()) is None

    def _present(self) -> datetime:
        return later(self.now, timedelta(seconds=clock.steady() - self.begun))

    def _do_recorded(self, result: Result, lease: Lease, turn: Turn, gate: Throttler | None) -> None:
        ledger = Ledger(self.database)
        run, subject = turn.context.run, turn.policy.identity
        entry = ledger.start(run, self.verb, subject, self.now, lease, self.arguments)
        try:
            self._read_on()
            self._do(result, turn)
            if result.exit_code in COMPLETED:
                ledger.remove_old(self.verb, lease, self.keep)
        except Exception as error:  # noqa: BLE001  # whatever it is, the ledger says it
            # Once another run has the lease, that run has caused what was found changed or missing.
            self._fail(result, lease.loss() or error)
        if gate is not None:
            gate.finish_by = clock.steady() + _LEEWAY_S
        for follower in self.options.followers:
            self._follow(result, turn, lease, follower)
        code = InterruptedRun.exit_code if result.stopped else result.exit_code  # not all that is due is done
        if code in COMPLETED and turn.context.state.is_clean:
            lease.leave_clean()
        ledger.finish(entry, code, OUTCOMES[code], result.body, result.error or result.stopped)

    def _do_dry(self, result: Result, turn: Turn, started: datetime) -> None:
        try:
            self._do(result, turn)
        except Exception as error:  # noqa: BLE001  # what is noted says it
            self._fail(result, error)
        if self.options.noted is not None and result.exit_code != InterruptedRun.exit_code:
            self._note(result, turn, started, self.options.noted(result.body))

    def _note(self, result: Result, turn: Turn, started: datetime, counts: Document) -> None:
        """Enters a dry run into the ledger, where this user may write it."""
        run, code = turn.context.run, result.exit_code
        seen = Run(
            run.run, self.verb, turn.policy.identity, started, clock.current(), code, OUTCOMES[code], counts,
            result.error, run.version, 1, started, self.now, None, run.user, run.now_given,
        )  # fmt: skip
        try:
            with pymongo.timeout(_PATIENCE_S):
                Ledger(self.database).note(seen)
        except PyMongoError as error:  # what was asked is answered all the same
            log.debug("not entered into the ledger", verb=self.verb, reason=failure_of(error).message)

    def _do(self, result: Result, turn: Turn) -> None:
        with profiled() if self.options.is_profiled else nullcontext() as times:
            try:
                self._do_steps(result, turn)
            finally:
                self._tell_reads_from_copies(result)
                if times is not None:
                    result.body["profile"] = profile_body(result.measures.seconds, times.seconds)

    def _tell_reads_from_copies(self, result: Result) -> None:
        """Adds to a result what was read from copies, since the store could not give it."""
        if read := take_reads_from_copies(self.store):
            result.body |= read
            result.exit_code = worst_exit_code([result.exit_code, LEFT_SOMETHING])

    def _do_steps(self, result: Result, turn: Turn) -> None:
        for step in self.steps:
            turn.context.check()
            if step.preconditions is not None:
                from bucketwise.archivers.preconditions import LISTS, require

                require(turn.context, LISTS[step.preconditions])
            body: Document | None = None
            try:
                with self.progress.step(step.name, turn.policy.name), result.measures.timed(step.name):
                    done = step.do(turn)
                body = done.body or None
            except Exception:
                body = step.done_so_far(turn)
                raise
            finally:
                if body:  # else there is nothing to tell
                    result.body.update(body if len(self.steps) == 1 else {step.name: body})
            result.exit_code = worst_exit_code([result.exit_code, done.exit_code])

    def _follow(self, result: Result, turn: Turn, lease: Lease, follower: Follower) -> None:
        if result.error and not follower.always:
            return
        name, policy = follower.name, turn.policy.name
        try:
            turn.context.check()
            with self.progress.step(name, policy), result.measures.timed(name):
                body = follower.do(turn)
        except Exception as error:  # noqa: BLE001  # whatever it is: what the steps did is done
            if (taken := lease.loss()) or isinstance(error, InterruptedRun):
                self._fail(result, taken or error)
                return
            body = {"error": failure_of(error, self.hosts).message}
            log.warning(f"{name} failed", policy=policy, reason=body["error"])
        result.body.update({} if body is None else {name: body})

    def _local(self, connections: Connections) -> AbstractContextManager[Executor]:
        """Returns an executor in this process, for work that has no tasks, or few."""
        return nullcontext(LocalExecutor(connections, memory=self.memory))

    def _turn(
        self, policy: Policy, lease: Lease | None, executor: Executor, gate: Throttler | None = None
    ) -> Turn:
        """Returns a policy's turn; without a lease it can't write."""

        def check_running() -> None:
            if lease is not None:
                lease.check()
            self.stop.check()
            executor.check()

        def check() -> None:
            check_running()
            if gate is not None:
                gate.check(check_running, self._present, self.progress.wait)

        listeners = [it.listener for it in self.options.followers if it.listener and lease]
        context = ArchiveContext(
            self.database,
            policy,
            self.now,
            dry_run_guard if lease is None else lease.guard,
            check,
            self.progress if gate is None else gate.counting_progress(self.progress),
            spend=no_limit if gate is None else gate.spend,
            store=self.store,
            executor=executor,
            keys=self.keys,
            fence=0 if lease is None else lease.fence,
            run=machine.this_run(self.run, self.now if self.is_now_given else None),
            known_fences=partial(Ledger(self.database).runs_under, policy.identity),
            known=self.known,
            state=ArchiveState(is_clean=lease is not None and lease.is_clean, topology=self._topology),
            listener=listeners[0](self.database, policy) if listeners else no_listener,
        )
        others = [it for it in self.known if it.collection == policy.collection and it.name != policy.name]
        return Turn(
            context,
            steps=tuple(step.name for step in self.steps),
            within=self.options.within(policy),
            dry_run=self.options.dry_run,
            allow_large=self.options.allow_large,
            taken_at=self.now if lease is None else lease.taken_at,
            readers=tuple(it for it in others if it.rollup is not None),
            archivers=tuple(it for it in others if it.archiving is not None),
            shared=self._shared,
        )

    def _fail(self, result: Result, error: BaseException) -> None:
        """Records a failure. Only the first one is kept: it is the cause of those that follow."""
        if isinstance(error, WindowOverError):
            result.stopped, result.next_window = WINDOW_OVER, error.opens_at
            return
        failure: Failure = failure_of(error, self.hosts)
        if isinstance(error, PausedError):
            result.paused = error.paused
        result.exit_code = worst_exit_code([result.exit_code, failure.exit_code])
        result.error = result.error or failure.message
