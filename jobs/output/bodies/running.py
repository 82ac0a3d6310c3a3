"""The JSON of commands that work: roll up, archive, expire, and what starts and stops them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from bucketwise.jobs.output.bodies.common import ByLevel, Day, Fit, Instant, Quarantined, Series, Worth
from bucketwise.jobs.output.bodies.proving import Repair


class Written(TypedDict):
    """Summaries of one level."""

    written: int
    unchanged: int


class Late(TypedDict):
    """How late readings were found. `reason`: why not by the stream."""

    mode: Literal["stream", "scan"]
    events: int
    reason: str | None


class Missing(TypedDict):
    """A range that could not be rolled up again."""

    since: Instant
    until: Instant
    reason: NotRequired[str]
    commits: NotRequired[Any]


class Slices(TypedDict):
    """How much of a long range was done, and before this run."""

    total: int
    before: int


Levels = TypedDict(
    "Levels",
    {
        "5m": NotRequired[Written],
        "15m": NotRequired[Written],
        "hourly": NotRequired[Written],
        "daily": NotRequired[Written],
        "weekly": NotRequired[Written],
        "monthly": NotRequired[Written],
    },
)


class Unreadable(TypedDict):
    """A span of time whose summaries stay as they are, since archived readings of it can't be read."""

    since: Instant
    until: Instant
    reason: str


class Rollup(Levels):
    """Tells what `rollup` did: summaries by level, and why some were left as they are."""

    readings: int
    kept: int
    missed: int
    outdated: int
    gone: int
    empty_fields: list[str]
    late: NotRequired[Late]
    quarantined: int
    quarantine: list[Quarantined]
    missing: NotRequired[list[Any]]
    unreadable: NotRequired[list[Unreadable]]
    slices: NotRequired[Slices]
    fit: NotRequired[Fit | None]


class Reason(TypedDict):
    """Why buckets stay, and how many."""

    reason: str
    count: int


class Valueless(TypedDict):
    """A day of a series without a number in a value field."""

    field: str
    series: Series
    day: Day


class Limit(TypedDict):
    """A limit on deletes. `stops`: why a run would stop; null: it would not."""

    due: int
    of: int
    most: int | None
    stops: str | None


class Archive(TypedDict):
    """Tells what `archive` did. `bytes`: of the files written; `removed_bytes`: of the documents deleted.
    Where a failure has cut it short, it has the first counts alone."""

    to: Literal["offline", "online", "none"]
    buckets: int
    readings: int
    parts: int
    bytes: int
    deleted: int
    removed_bytes: NotRequired[int]
    left: NotRequired[int]
    reasons: NotRequired[list[Reason]]
    summaries: NotRequired[int]
    gone: NotRequired[int]
    valueless: NotRequired[list[Valueless]]
    quarantined: NotRequired[int]
    quarantine: NotRequired[list[Quarantined]]
    fit: NotRequired[Fit | None]
    limit: NotRequired[Limit]
    copies: NotRequired[dict[str, Any]]


class Compact(TypedDict):
    """Tells what `compact` did. Bytes are those of the commits' files; of a plan they
    are not known."""

    commits: int
    into: int
    buckets: int
    bytes_before: int
    bytes_after: int | None
    copies: NotRequired[dict[str, Any]]


class Days(TypedDict):
    """Days of an archive."""

    days: int
    buckets: int
    bytes: int


class ArchiveExpiry(TypedDict):
    """Tells what became of what is past `retain.archive`. `held`: buckets by the name of the hold."""

    tombstoned: Days
    standing: Days
    expired: Days
    lifted: Days
    held: dict[str, int]
    live: int


class Classes(TypedDict):
    """Tells which parts moved to another storage class. `bytes`: in each store where they moved; a plan does
    not count copies. `waiting`: commits that are due, and wait for a copy of the store. `to`: parts, by
    class."""

    commits: int
    parts: int
    bytes: int
    waiting: int
    to: dict[str, int]


class Profile(TypedDict):
    """Seconds, with `run --profile`: of the policy's steps, and of the phases of its work, in all threads of
    the process."""

    steps: dict[str, float]
    phases: dict[str, float]


class Scrub(Repair):
    """Tells how many parts of the store and its copies were looked at, once a day, and how many were read."""

    parts: int
    parts_read: int


class Run(TypedDict):
    """Tells what `run` and `plan` tell: the steps that the policy has."""

    rollup: NotRequired[Rollup]
    archive: NotRequired[Archive]
    compact: NotRequired[Compact]
    archive_expiry: NotRequired[ArchiveExpiry]
    expiry: NotRequired[dict[str, Any]]
    classes: NotRequired[Classes]
    scrub: NotRequired[Scrub]
    worth: NotRequired[Worth | None]
    lake: NotRequired[Lake]
    copies: NotRequired[dict[str, Any]]
    publish: NotRequired[Publish]
    fit: NotRequired[Fit | None]
    profile: NotRequired[Profile]


class Lake(TypedDict):
    """Tells what `lake sync` registered. `snapshot`: of the Iceberg table; null: it has none."""

    added: int
    removed: int
    snapshot: int | None
    metadata: str | None


class Publish(TypedDict):
    """How many keys `publish` wrote."""

    keys: int


class Paused(TypedDict):
    """Tells who paused a policy, when and why."""

    reason: str
    since: Instant
    by: str


class Resumed(TypedDict):
    """Tells who resumed a policy, when and why."""

    reason: str | None
    at: Instant
    by: str


class Pause(TypedDict):
    """Tells whether a policy is paused. `changed`: it was not before."""

    changed: bool
    paused: Paused | None
    resumed: Resumed | None


class Resume(Pause):
    """`lifted`: the recorded time that `--time` has put back."""

    lifted: Any


class Side(TypedDict):
    """Tells what one policy file has archived, deleted and kept by a time."""

    archived: int
    deleted: int
    kept: int
    bytes: int
    readings: int
    days: int
    quarantined: int
    summaries: ByLevel


class Compared(TypedDict):
    """Two policy files, and `against` less `today`."""

    today: Side
    against: Side
    difference: Side


class Change(TypedDict):
    """A key that differs."""

    key: str
    today: Any
    against: Any


class Anew(TypedDict):
    """Tells what another policy file rolls up again."""

    levels: list[str]
    everything: bool
    live_buckets: int
    archived_buckets: int
    archived_readings: int | None
    archived_bytes: int | None
    standing: ByLevel
    lost: ByLevel
    first: Instant | None


class Stops(TypedDict):
    """Why a run by either file would stop."""

    today: list[str]
    against: list[str]


class Plan(Run):
    """Tells what `plan` tells: the steps of a run, or two policy files side by side with `--against`."""

    only_in: NotRequired[Literal["today", "against"] | None]
    changed: NotRequired[list[Change]]
    now: NotRequired[Compared]
    in_90_days: NotRequired[Compared]
    anew: NotRequired[Anew | None]
    dropped: NotRequired[ByLevel]
    stops: NotRequired[Stops]
    irreversible: NotRequired[list[str]]
