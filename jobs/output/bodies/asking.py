"""The JSON of commands that only tell: where things stand, what ran, and what readings say."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from bucketwise.jobs.output.bodies.common import (
    ByLevel,
    CopyStanding,
    Day,
    Instant,
    Quarantined,
    Series,
    Worth,
)
from bucketwise.jobs.output.bodies.running import Paused, Resumed


class LastRun(TypedDict):
    """An entry of the ledger: a run, or `runs` alike since `since`."""

    run: str
    verb: str
    policy: str
    started: Instant
    ended: Instant | None
    exit_code: int | None
    outcome: str
    counts: dict[str, Any]
    error: str | None
    version: str
    host: str
    user: str
    now: Instant
    now_given: Instant | None
    taken_at: Instant | None
    runs: int
    since: Instant


class Failed(TypedDict):
    """A run that failed. `command`: how to repeat it; null where it named series."""

    verb: str
    started: Instant
    outcome: str
    error: str | None
    command: str | None


class Status(TypedDict):
    """Tells where a policy stands; with `--failed`, the last runs that failed."""

    rolled_up_through: NotRequired[Instant | None]
    levels: NotRequired[dict[str, Instant | None]]
    archived_through: NotRequired[Instant | None]
    waiting: NotRequired[int | None]
    pinned: NotRequired[int]
    pinned_until: NotRequired[Instant | None]
    quarantined: NotRequired[int]
    worth: NotRequired[Worth | None]
    paused: NotRequired[Paused | None]
    resumed: NotRequired[Resumed | None]
    copies: NotRequired[list[CopyStanding]]
    last_runs: NotRequired[list[LastRun]]
    failed: NotRequired[list[Failed]]


class PastRun(TypedDict):
    """A run, or `runs` alike since `since`."""

    run: str
    verb: str
    started_at: Instant
    ended_at: Instant | None
    exit_code: int | None
    outcome: str
    error: str | None
    steps: list[str]
    buckets: int | None
    bytes: int | None
    runs: int
    since: Instant
    host: str
    user: str
    version: str
    now_given: Instant | None


class History(TypedDict):
    """The runs of a policy, the newest first."""

    runs: list[PastRun]


class Commit(TypedDict):
    """A commit of an offline archive."""

    commit: str
    since: Instant
    until: Instant
    buckets: int
    readings: int
    bytes: int
    created_at: Instant
    verified_at: Instant | None
    drilled_at: Instant | None
    compacted: bool
    storage_class: str | None
    copies: list[str]


class Commits(TypedDict):
    """Tells what an archive holds. `totals`: with more commits than are listed, of all."""

    commits: list[Commit]


class SeriesValues(TypedDict):
    """Statistics of one series, or its points on a grid. `values`: statistics by value field."""

    series: Series
    count: NotRequired[int]
    values: NotRequired[dict[str, dict[str, Any]]]
    points: NotRequired[list[dict[str, Any]]]


class Summarize(TypedDict):
    """Statistics of a range; with `every`, on a grid."""

    since: Instant
    until: Instant
    every: NotRequired[str]
    fill: NotRequired[str | None]
    rolled_up_through: Instant | None
    windows: ByLevel
    summaries: int
    complete: bool
    missing: list[Any]
    percentiles: list[float]
    series: list[SeriesValues]


class Readings(TypedDict):
    """Tells what `readings` wrote, and left out."""

    format: str
    output: str | None
    readings: int
    quarantined: int
    quarantine: list[Quarantined]


class Query(TypedDict):
    """Tells what a query left out of a policy."""

    quarantined: NotRequired[int]
    quarantine: NotRequired[list[Quarantined]]


class QueryWhole(TypedDict):
    """Rows of a query, each a list in the order of `columns`; with `--output`, the file and how many rows it
    has; with `--explain`, what it would read."""

    columns: NotRequired[list[str]]
    types: NotRequired[list[str]]
    rows: NotRequired[list[list[Any]]]
    format: NotRequired[str]
    output: NotRequired[str]
    count: NotRequired[int]
    explain: NotRequired[dict[str, Any]]


State = Literal["live", "archived", "both", "online", "summarised", "expired", "gap"]


class CoveredBy(TypedDict):
    """A commit that holds readings of a day."""

    commit: str
    committed_at: Instant
    buckets: int
    readings: int | None
    verified_at: Instant | None
    drilled_at: Instant | None
    expires_at: Instant | None
    rule: str | None


class CoveredDay(TypedDict):
    """Tells where the readings of a day, or of an hour of it, are."""

    day: Day
    hour: NotRequired[int]
    state: State
    readings: int
    live: int
    archived: int
    online: int
    summarised: int | None
    live_buckets: int
    pinned: int
    held: int
    quarantined: int
    expires_at: Instant | None
    commits: list[CoveredBy]


class Coverage(TypedDict):
    """Tells where the readings of each day, or hour, are. `states`: how many there are of each. `rules`:
    those of the policy."""

    by: Literal["day", "hour"]
    days: list[CoveredDay]
    states: dict[str, int]
    rules: list[str]


class Event(TypedDict):
    """Tells what happened to a bucket."""

    at: Instant | None
    event: str
    commit: str | None
    receipt: int | None
    run: str | None
    verb: str | None
    detail: str | None


class Next(TypedDict):
    """Tells what happens to a bucket next, and when; null: nothing, or it is not known."""

    action: str | None
    at: Instant | None


class ExplainedBucket(TypedDict):
    """One bucket, and what became of it."""

    id: Any
    series: Series | None
    first: Instant | None
    last: Instant | None
    readings: int | None
    versions: int
    state: str
    rule: str
    history: list[Event]
    next: Next
    holds: list[Any]


class Explain(TypedDict):
    """Tells what became of the buckets asked for, and what will. `searched`: where none was found."""

    state: str | None
    rule: str | None
    history: list[Event]
    next: Next
    holds: list[Any]
    buckets: list[ExplainedBucket]
    searched: Any
