"""One policy's turn in a run, the steps that it goes through, and how a verb has them done. Each command
imports this module: what it takes to work is imported once there is work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from bucketwise.buckets.fields.times import EVER, FIRST_MS, TimeRange
from bucketwise.jobs.core import clock

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.archivers.context import ArchiveContext, Connections, DeleteLimit, Executor
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.preconditions import Needs
    from bucketwise.buckets.columns import Quarantined
    from bucketwise.buckets.phases import Phase
    from bucketwise.config.policies import Policy
    from bucketwise.jobs.core.call import Call
    from bucketwise.jobs.core.job import Severity
    from bucketwise.jobs.output.report import Result
    from bucketwise.rollups.changes.drain import SharedChanges
    from bucketwise.rollups.context import SummaryListener
    from bucketwise.rollups.holds import Hold
    from bucketwise.rollups.rolling.expiry import ExpiryLimit

Body = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """A problem. `code` is stable and for machines; `place` says where; `message` what is wrong, and how to
    fix it."""

    code: str
    policy: str | None  # None: it concerns all
    place: str
    severity: Severity
    message: str


def findings_result(found: Iterable[Any], code: int) -> StepResult:
    """Returns findings as the result of a step: with the exit code `code` where one is an error."""
    findings = [finding_body(it) for it in found]
    return StepResult(
        {"findings": findings}, code if any(it["severity"] == "error" for it in findings) else 0
    )


def finding_body(found: Any) -> Body:
    """Returns a finding as JSON."""
    return pick(found, "code", "policy", "place", "severity", "message")


Document = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One policy's turn: the context that it works in, and what is asked of it."""

    context: ArchiveContext
    steps: tuple[str, ...]  # all of this turn, by name
    within: TimeRange
    dry_run: bool
    allow_large: bool
    taken_at: datetime  # the lease, by the server's clock; `now` where there is none
    readers: tuple[Policy, ...]  # other policies that roll up the same collection
    archivers: tuple[Policy, ...]  # other policies that archive the same collection
    shared: SharedChanges | None = None  # what is known of the changes of several policies
    noted: dict[str, bool] = field(default_factory=dict)  # what one step has found out for the next

    @property
    def policy(self) -> Policy:
        """Returns the policy whose turn it is."""
        return self.context.policy

    @property
    def is_archived_by_another(self) -> bool:
        """Returns whether another policy archives the same collection."""
        return bool(self.archivers)


@dataclass(frozen=True)
class StepResult:
    """The result of a step: its part of the JSON, and its exit code, which is 0 or that of its findings."""

    body: Document
    exit_code: int = 0


def pick(found: Any, *names: str) -> Document:
    """Returns these attributes as JSON, by their names."""
    return {name: getattr(found, name) for name in names}


@dataclass(frozen=True)
class Step:
    """One step of a verb. `done_so_far`: returns the counts of what it had done when it was stopped, or
    failed; None where that is not known. `by_present`: what it does depends on what time it is.
    `weight`: the share of time that it takes beside the other steps.
    `follows_changes`: it looks for all that has changed since it was done last. `preconditions`: without
    these it is not begun."""

    name: str
    do: Callable[[Turn], StepResult]
    done_so_far: Callable[[Turn], Document | None] = lambda _turn: None
    by_present: bool = False
    follows_changes: bool = False
    preconditions: Needs | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Follower:
    """Something that follows the steps of a run, with what they have changed. If it fails, that is reported
    under its name, and the run has not failed. `do` returns its part of the JSON; None where there is nothing
    to say. `listener` returns what takes the summaries that the steps write. `always`: also where a step
    failed."""

    name: str
    do: Callable[[Turn], Document | None]
    listener: Callable[[Database[Document], Policy], SummaryListener] | None = None
    always: bool = False


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, whatever its steps. `within`: the range of each policy. `dry_run`: it
    changes nothing, and takes no lease. `allow_large`: it may delete more than `max_delete` says.
    `followers`: what follows all steps. `noted`: returns what the ledger keeps of the body of a dry run,
    where it may be written; None: nothing of it. `is_profiled`: it tells how long each phase of its work
    takes. `open_executor`: opens that of one policy's turn; None: in this process."""

    within: Callable[[Policy], TimeRange] = lambda _policy: EVER
    dry_run: bool = False
    open_executor: Callable[[Connections], AbstractContextManager[Executor]] | None = None
    allow_large: bool = False
    followers: Sequence[Follower] = ()
    noted: Callable[[Document], Document] | None = None
    is_profiled: bool = False


USUAL = RunOptions()


def perform(
    call: Call,
    steps: Sequence[Step],
    options: RunOptions = USUAL,
    policies: Sequence[Policy] | None = None,
) -> list[Result]:
    """Runs the steps of a verb for these policies, or those that the command line names."""
    from bucketwise.jobs.core.runner import Runner

    chosen = call.policies if policies is None else policies
    with call.database() as database:
        return Runner.of(call, database, steps, options).run_all(chosen)


LEFT_SOMETHING, NOT_KEPT, FAILED = 3, 4, 1
#: No write takes longer: what was left unfinished before that is of no use.
ABANDONED = timedelta(days=1)


def prepare(turn: Turn, keys: Keys | None = None) -> None:
    """Checks that nothing is left unfinished in the archive, before summaries are made from it."""
    context = turn.context
    if turn.dry_run:
        return
    from bucketwise.archivers.kinds import archive_of

    archive_of(replace(context, keys=keys or context.keys)).recover()
    if context.store is not None:
        # By the clock that is behind: a write under way on another machine must not pass for an old one.
        present = min(clock.current(), turn.taken_at)
        context.store.clean_temporaries(present - ABANDONED)


def note_policy(turn: Turn) -> None:
    """Records what the policy says, where that has changed since the last run."""
    from bucketwise.archivers.records.policies import PolicyRecord

    state, said = turn.context.state, PolicyRecord.of(turn.policy)
    if not turn.dry_run and state.record != said:
        has_deleted = state.record is not None and state.record.has_deleted
        state.record = turn.context.policy_records.note(replace(said, has_deleted=has_deleted))


def archivable_through(turn: Turn) -> int | None:
    """Returns up to where readings may be archived (milliseconds); None: no policy rolls them up."""
    found = [_through_of(turn, policy) for policy in (turn.policy, *turn.readers)]
    return min((through for through in found if through is not None), default=None)


def _through_of(turn: Turn, policy: Policy) -> int | None:
    from bucketwise.rollups.calendar.due import over_before
    from bucketwise.rollups.calendar.levels import levels_of
    from bucketwise.rollups.progress import rolled_up_through

    if not levels_of(policy):
        return None
    if turn.dry_run and "rollup" in turn.steps and policy is turn.policy:
        # A plan of both: as far as the roll-up before would have come.
        return over_before([policy], turn.context.now)
    # As it is stored by now: what lies before it may be deleted.
    through = rolled_up_through(turn.context.database, policy)
    return FIRST_MS if through is None else through


def quarantine_body(found: list[Quarantined], total: int) -> Body:
    """Returns quarantined buckets as JSON: the total, and those found with their reasons."""
    from bucketwise.buckets.fields.selectors import id_as_json

    named = [{"id": id_as_json(it.id), **pick(it, "field", "reason")} for it in found]
    return {"quarantined": total, "quarantine": named}


def hold_body(hold: Hold) -> Body:
    """Returns a hold as JSON."""
    return {
        **pick(hold, "name", "reason", "placed_at", "by", "freeze"),
        **pick(hold.within, "since", "until"),
        "series": dict(hold.series),
    }


def held_body(held: Mapping[str, int]) -> Body:
    """Returns how much stays for each hold as JSON; nothing where no hold keeps anything."""
    return {"held": dict(sorted(held.items()))} if held else {}


def profile_body(steps: Mapping[str, float], phases: Mapping[Phase, float]) -> Body:
    """Returns the seconds of steps, by the clock, and of phases, in all threads, as JSON."""
    told = {"steps": dict(steps), "phases": {str(name): seconds for name, seconds in phases.items()}}
    return {key: {name: round(seconds, 6) for name, seconds in it.items()} for key, it in told.items()}


def limit_body(limit: DeleteLimit | ExpiryLimit) -> Body:
    """Returns a limit on what a run removes as a plan's JSON."""
    stops = f"this run would stop: {limit.message}" if limit.is_exceeded else None
    return {"due": limit.due, "of": limit.total, "most": limit.most, "stops": stops}
