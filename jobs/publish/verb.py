"""`bucketwise publish`, and its step. In a run it comes last, and what Redis does changes no exit
code."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import RenderableType

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Code, Job
from bucketwise.jobs.core.turn import Finding, Follower, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.archivers.erasing.kind import Remaining
    from bucketwise.buckets.fields.selectors import Selector
    from bucketwise.config.policies import Policy, Settings
    from bucketwise.config.tables import Redis
    from bucketwise.jobs.publish.newest import ChangedSummaries
    from bucketwise.jobs.publish.publisher import LinkError, Publisher
    from bucketwise.rollups.context import SummaryListener

Body = dict[str, Any]
T = TypeVar("T")

All = Annotated[bool, typer.Option("--all", help="Rewrite every key, and remove stale ones.")]


def publish(call: Call, *, everything: All = False) -> Report:
    """Publish the newest summaries in Redis.

    `run`, `rollup` and `archive` do this as well, for what they have changed. This makes up for what they
    could not publish, because Redis was down or full.
    """
    found = publishing(call.settings)
    if found is None:
        raise UsageError(
            f"{call.settings.path} has no [publish.redis]: nothing is published. Add it with a `url`"
        )
    results = perform(call, [found.step(everything=everything)])
    return Report(call.command, call.now, results, published_tables(results))


def published_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `publish` prints: how many keys of each policy were written."""
    (keys,) = sums(results, "keys")
    what = f"{counted(keys, 'key')} published" if keys else "Redis has the newest summaries"
    return [job_table(JOB, results), *closing(results, what)]


#: Seconds that all requests of one policy may take in a run, and for which one that failed stands for others.
_PATIENCE, _MEMORY = 30.0, 60.0


class Publishing:
    """Publishes the policies that the settings say."""

    name = "publish"

    def __init__(self, settings: Settings) -> None:
        self.redis_of = settings.redis_of
        self._failed: tuple[float, LinkError] | None = None
        self._forgotten = 0  # keys of the series that was erased

    def follower(self) -> Follower:
        """Returns the follower that publishes the summaries which a run's steps have changed."""
        from bucketwise.jobs.publish.newest import ChangedSummaries
        from bucketwise.rollups.context import no_listener

        def listen(database: Database[Body], policy: Policy) -> SummaryListener:
            return no_listener if self.redis_of(policy) is None else ChangedSummaries(database, policy)

        def do(turn: Turn) -> Body | None:
            if self.redis_of(turn.policy) is None:
                return None
            keys = self._with_publisher(turn, lambda it: it.publish(_changed(turn)), _PATIENCE)
            return {"keys": self._forgotten + keys}

        return Follower(self.name, do, listen, always=True)

    def step(self, *, everything: bool) -> Step:
        """Returns the step of the verb."""

        def do(turn: Turn) -> StepResult:
            if self.redis_of(turn.policy) is None:
                return StepResult({"keys": 0})
            return StepResult(
                {"keys": self._with_publisher(turn, lambda it: it.publish(everything=everything))}
            )

        return Step(self.name, do)

    def forget(self, turn: Turn, selector: Selector) -> list[Remaining]:
        """Removes an erased series. Returns what remains, if Redis can't be reached."""
        from bucketwise.archivers.erasing.kind import Remaining
        from bucketwise.jobs.publish.publisher import PublishError

        redis = self.redis_of(turn.policy)
        if redis is None:
            return remaining_in_redis(turn)
        try:
            self._forgotten = self._with_publisher(turn, lambda it: it.forget(selector), _PATIENCE)
        except PublishError as error:
            if (changed := _changed(turn)) is not None:
                changed.is_all = True
            why = f"the series may still be there: {error}. Erase it again, or run `bucketwise publish --all`"
            return [Remaining(_place(redis, turn.policy.identity), why, True)]
        return []

    def findings(self, turn: Turn) -> list[Finding]:
        """Returns a finding if Redis is not up to date."""
        from bucketwise.jobs.publish.publisher import PublishError

        redis = self.redis_of(turn.policy)
        if redis is None:
            return []
        try:
            if (why := self._with_publisher(turn, lambda it: it.backlog_reason(), _PATIENCE)) is None:
                return []
            message = f"{why}: run `bucketwise publish`"
        except PublishError as error:
            message = str(error)
        name = turn.policy.name
        return [Finding("publish-behind", name, _place(redis, turn.policy.identity), "warning", message)]

    def _with_publisher(self, turn: Turn, act: Callable[[Publisher], T], patience: float | None = None) -> T:
        from bucketwise.jobs.publish.publisher import Link, LinkError, Publisher

        redis = self.redis_of(turn.policy)
        assert redis is not None
        if patience is not None and self._failed and clock.steady() - self._failed[0] < _MEMORY:
            raise self._failed[1]
        try:
            with Link(redis.url.get_secret_value(), patience) as link:
                return act(Publisher(turn.context, redis, link.ask, clock.current()))
        except LinkError as error:
            self._failed = clock.steady(), error
            raise


def publishing(settings: Settings) -> Publishing | None:
    """Returns the publishing that is configured; None where there is none."""
    return None if settings.publish.redis is None else Publishing(settings)


def published(settings: Settings) -> tuple[Follower, ...]:
    """Returns the follower that publishes after the steps of a run, or none."""
    return () if (found := publishing(settings)) is None else (found.follower(),)


def remaining_in_redis(turn: Turn) -> list[Remaining]:
    """Returns what may be left in Redis of a policy that is no longer published."""
    from bucketwise.archivers.erasing.kind import Remaining
    from bucketwise.jobs.publish.newest import PublishStates

    state = PublishStates(turn.context.database, turn.policy).load()
    if state.expires is None or state.expires <= clock.current():
        return []
    keys = f"{json.loads(state.settings)[0]}:*"
    why = (
        "the policy is no longer published there. What is left expires by "
        f"{clock.iso(state.expires)}; to remove it now: redis-cli --scan --pattern '{keys}' | "
        "xargs -d '\\n' redis-cli unlink"
    )
    return [Remaining(f"Redis, keys {keys}", why, False)]


def _place(redis: Redis, policy: str) -> str:
    from bucketwise.jobs.publish.publisher import shown

    return f"{shown(redis.url.get_secret_value())}, keys under {redis.prefix}:{policy}:"


def _changed(turn: Turn) -> ChangedSummaries | None:
    from bucketwise.jobs.publish.newest import ChangedSummaries

    return turn.context.listener if isinstance(turn.context.listener, ChangedSummaries) else None


JOB = Job(
    publish,
    body=running.Publish,
    audited=(Code("publish-behind", "Once Redis works: `bucketwise publish`.", severities=("warning",)),),
    examples=(
        "bucketwise publish",
        "bucketwise publish -p ticks --all",
    ),
    title="Published",
    columns=("keys",),
)
