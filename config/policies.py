"""Policies, and the policy file as a whole, as frozen models: one model a table, one attribute a key."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, get_args

from pydantic import ByteSize, Field, ValidationInfo, field_validator

from bucketwise.config.problems import Key, ProblemReport
from bucketwise.config.tables import (
    Drill,
    Lake,
    MongoDB,
    Notify,
    PolicyPublish,
    PolicyRedis,
    Publish,
    Redis,
    RunLedger,
    Store,
    Table,
    Throttle,
    Workers,
    class_to_put,
    moves_at_once,
)
from bucketwise.config.times import format_duration
from bucketwise.config.values import (
    Batch,
    DayOrForever,
    DayOrLonger,
    Duration,
    DurationOrForever,
    Fields,
    Globs,
    InstantText,
    LatestText,
    Limit,
    List,
    PositiveDuration,
    PositiveOrForever,
    Schedule,
    Share,
    Size,
)

#: A level of summaries: how long their windows are. The finest comes first.
FineLevel = Literal["5m", "15m"]
LongLevel = Literal["weekly", "monthly"]
#: The finest first.
LevelName = Literal[FineLevel, "hourly", "daily", LongLevel]
LEVEL_NAMES: tuple[LevelName, ...] = get_args(LevelName)
#: Whose windows begin where days of a time zone do.
CALENDAR_LEVELS: tuple[LevelName, ...] = ("daily", *get_args(LongLevel))


class RollupLevel(Table):
    """A further level of summaries, and the collection that they go to."""

    name: Literal[FineLevel, LongLevel]
    collection: str


#: What summaries tell of each value field, beside percentiles.
STATISTIC_NAMES = (
    "count", "sum", "min", "max", "avg", "stddev", "first", "last", "nonfinite", "nonnumeric",
)  # fmt: skip


def percentile_key(percent: float) -> str:
    """Returns the key of a percentile: 50.0 → p50, 99.9 → p99_9 (MongoDB takes a dot in a key for a path)."""
    return "p" + (str(int(percent)) if float(percent).is_integer() else str(percent).replace(".", "_"))


class Rollup(Table):
    """The table `rollup` of a policy: its levels, and how windows are rolled up. A level without a collection
    is None."""

    hourly: str | None = None
    daily: str | None = None
    levels: List[RollupLevel] = ()  # further ones
    timezone: str = "UTC"
    settle: Duration = timedelta(minutes=10)
    late_data: Literal["auto", "stream", "scan"] = "auto"
    recheck: PositiveDuration = timedelta(days=2)
    percentiles: List[float] = ()
    statistics: List[str] = ()  # names of those that summaries tell; none: all

    @property
    def statistic_names(self) -> list[str]:
        """Returns the names of all statistics that summaries may tell of any value field."""
        return [*STATISTIC_NAMES, *map(percentile_key, self.percentiles)]

    @property
    def targets(self) -> dict[LevelName, str]:
        """Returns the collection of each level of summaries that is made, the finest first."""
        further: dict[LevelName, str] = {it.name: it.collection for it in self.levels}
        named = {"hourly": self.hourly, "daily": self.daily, **further}
        return {name: target for name in LEVEL_NAMES if (target := named.get(name)) is not None}

    @property
    def has_days(self) -> bool:
        """Returns whether any windows begin where days do."""
        return any(name in CALENDAR_LEVELS for name in self.targets)


class Compact(Table):
    """The table `archive.compact`: how small commits of an offline archive are merged."""

    after: PositiveOrForever = timedelta(days=1)  # nothing was archived into a day for so long; None: never
    budget: Size = ByteSize(1_000_000_000)  # bytes of documents that one run rewrites
    delay: Duration = timedelta(hours=1)  # what was replaced stays for so long


class StorageClass(Table):
    """A table `archive.storage_classes`: a storage class of S3, and how old the readings of a commit are
    when its parts move there."""

    after: PositiveDuration
    named: str = Field(alias="class")


class Archive(Table):
    """The table `archive` of a policy: what expires when, where it goes, and how fast it is deleted."""

    after: PositiveOrForever  # None: forever
    to: Literal["offline", "online", "none"]
    collection: str | None = None
    grace: Duration = timedelta(0)
    delete: bool = True
    max_delete: Limit = None  # buckets that one run may delete; None: any number
    batch: Batch = None  # None: buckets go as they expire
    storage_class: str | None = None  # of parts in S3; None: the store's own
    storage_classes: List[StorageClass] = ()  # to which they move as they grow old
    compact: Compact = Compact()
    move_receipts: DayOrForever = timedelta(days=90)  # of deletes, into the store; None: never

    @property
    def first_class(self) -> str | None:
        """Returns the class that parts are put with: never a cold one, since they are read back."""
        return class_to_put(self.storage_class)

    @property
    def moves(self) -> dict[str, timedelta]:
        """Returns the classes to which parts move, and how old their readings are then, in that order."""
        return moves_at_once(self.storage_class) | {it.named: it.after for it in self.storage_classes}


class ArchiveCollections(NamedTuple):
    """The collections of an online archive: of buckets, of their overflow (None without any), and of older
    versions."""

    buckets: str
    overflow: str | None
    versions: str

    @property
    def copies(self) -> list[str]:
        """Returns the collections that hold copies of documents as they are."""
        return [self.buckets, *([self.overflow] if self.overflow else [])]


class RuleRetain(Table):
    """The table `retain` of a rule: how long the archive stays, and summaries of each level; None:
    forever."""

    five_minutes: PositiveOrForever = Field(default=None, alias="5m")
    fifteen_minutes: PositiveOrForever = Field(default=None, alias="15m")
    hourly: PositiveOrForever = None
    daily: PositiveOrForever = None
    weekly: PositiveOrForever = None
    monthly: PositiveOrForever = None
    archive: DurationOrForever = None

    @property
    def by_level(self) -> dict[LevelName, timedelta | None]:
        """Returns how long summaries are kept, by the name of the level."""
        written = self.model_dump(by_alias=True, exclude_unset=True)
        return {name: written[name] for name in LEVEL_NAMES if name in written}


class Retain(RuleRetain):
    """The table `retain` of a policy: that of a rule, and how long tombstones stand."""

    grace: Duration = timedelta(days=7)  # before the summaries under a tombstone go
    archive_grace: DayOrLonger = timedelta(days=7)  # before what has a tombstone goes from the archive


class Rule(Table):
    """A table `rules` of a policy: how long the buckets and summaries of some series stay. What it does not
    name is as the policy says."""

    match: dict[str, Globs]  # by the name of a series field; all have to match
    after: PositiveOrForever = None
    to: Literal["offline", "online", "none"] | None = None
    retain: RuleRetain | None = None

    @property
    def text(self) -> str:
        """Returns what it matches, as the policy file writes it: `{site = "lab-*"}`."""
        said = {key: globs[0] if len(globs) == 1 else list(globs) for key, globs in self.match.items()}
        pairs = (f"{key} = {json.dumps(it, ensure_ascii=False)}" for key, it in said.items())
        return f"{{{', '.join(pairs)}}}"

    @property
    def words(self) -> str:
        """Returns what it says of these series: `after = "90d", retain.hourly = "1y"`."""
        said: dict[str, str] = {}
        if "after" in self.model_fields_set:
            said["after"] = format_duration(self.after)
        if self.to is not None:
            said["to"] = self.to
        kept = self.retain.model_dump(by_alias=True, exclude_unset=True) if self.retain else {}
        said |= {f"retain.{key}": format_duration(it) for key, it in kept.items()}
        return ", ".join(f'{key} = "{it}"' for key, it in said.items())


class Overflow(Table):
    """The table `overflow` of a policy: where further documents of a bucket lie, and how they name their
    bucket."""

    flag_field: str
    collection: str
    ref_field: str
    samples_field: str


class ValueField(Table):
    """The table `values.FIELD` of a policy: how a value field is read, and its name in summaries."""

    text: bool = False  # numbers are written as text
    decimal: Literal[".", ","] = "."  # of such a number
    unit: str | None = None  # behind such a number
    map: dict[str, float] = Field(default={})  # what texts, and `true` and `false`, count as
    name: str | None = Field(default=None, alias="as")  # in summaries and columns; None: that of the field
    kind: Literal["gauge", "counter", "state"] = "gauge"  # what summaries tell of it, beside the usual
    time_weighted: Literal["previous", "linear"] | None = None  # how averages by time are made
    max_gap: PositiveDuration | None = None  # a longer step between two readings counts for nothing


#: The keys of `ValueField` that tell what is summarised, and not how it is read.
SUMMARY_KEYS = frozenset({"kind", "time_weighted", "max_gap"})


class Audit(Table):
    """The table `audit` of a policy: how much of it one audit reads."""

    sample: Share | None = None  # of the parts of an offline archive that one audit reads; None: all


ModelName = Literal["reading", "slots", "samples", "timeseries"]
#: The unit of numbers that are times, or the form of texts that are.
TimeUnit = Literal["date", "s", "ms", "us", "ns", "iso", "objectid", "timestamp"]
#: The unit of numbers that count from the start of a bucket.
ElapsedUnit = Literal["+ms", "+s", "+m", "+h"]
#: What a series field may hold that the policy file can write.
SeriesValue = str | int | float | bool


class Policy(Table):
    """A table `policies.NAME` of the policy file: what goes with every bucket model, or most of them. Field
    names are dotted paths into documents."""

    #: The keys of its model that name fields of a bucket, beside `time_field`.
    bucket_keys: ClassVar[tuple[str, ...]] = ()
    #: Keys that are needed where another one does not say the same.
    alternatives: ClassVar[dict[str, str]] = {}
    #: Whether a `*` in a value field stands for each slot.
    stars_values: ClassVar[bool] = False

    name: str
    id: str | None = None  # the name that its records and its archive were begun under; None: its own
    collection: str
    may_be_missing: bool = False  # the collection: a run then has nothing to do
    model: ModelName
    time_field: Fields | None = None  # of several, the values are joined by spaces
    series_fields: List[str]
    #: What a missing or null series field is read as.
    series_defaults: dict[str, SeriesValue] = Field(default={})
    #: Which readings of one series at one instant the summaries count.
    duplicates: Literal["keep", "first", "last"] = "keep"
    value_fields: List[str]
    timezone: str = "UTC"  # of the documents' clock; the default of `rollup.timezone`
    earliest: InstantText | None = None  # of live buckets; None: 1971, unless earlier times are summarised
    latest: LatestText | None = None  # an instant, or a duration after now; None: any
    nonnumeric_ok: List[str] = ()  # value fields that need not hold any number
    sparse_ok: bool = False  # documents of a series need not lie one after the other
    local_offset_field: str | None = None  # minutes, UTC minus local time
    expected_interval: DurationOrForever = None  # None: what is missing is not told
    max_hole: DurationOrForever = None  # None: an audit reports none
    schedule: Schedule | None = None  # cron expression, UTC
    rollup: Rollup | None = None
    archive: Archive | None = None
    audit: Audit = Audit()
    throttle: Throttle = Throttle()  # with the file's own, once that is loaded
    retain: Retain | None = None
    rules: List[Rule] = ()  # the first that matches a series holds
    overflow: Overflow | None = None
    values: dict[str, ValueField] = Field(default={})  # by value field
    publish: PolicyPublish | None = None

    @field_validator("rollup")
    @classmethod
    def _in_zone(cls, rollup: Rollup | None, others: ValidationInfo) -> Rollup | None:
        zone = others.data.get("timezone", "UTC")
        if rollup is None or zone == "UTC" or "timezone" in rollup.model_fields_set:
            return rollup
        return rollup.model_copy(update={"timezone": zone})

    def __hash__(self) -> int:  # a dict has none
        return hash((self.name, self.collection, self.model))

    @property
    def identity(self) -> str:
        """Returns the name under which its records and its archive are kept: it stays when `name`, which
        people see, changes."""
        return self.id or self.name

    @property
    def time_fields(self) -> tuple[str, ...]:
        """Returns the fields of a bucket's own time: mostly one; none where it is told by its bounds."""
        named = self.time_field
        return (named,) if isinstance(named, str) else named or ()

    @property
    def series_names(self) -> tuple[str, ...]:
        """Returns the names of the series fields in summaries, columns and `--series`, in their order: the
        last part of the path for a field in `_id` or in a sample."""
        return _series_names(self.series_fields)

    @property
    def stored_series(self) -> dict[str, str]:
        """Returns where MongoDB finds each series field, by its name: `held.sensor` for `held.*.sensor`."""
        named = zip(self.series_names, self.series_fields, strict=True)
        return {name: path.replace(".*.", ".") for name, path in named}

    @property
    def default_series(self) -> dict[str, SeriesValue]:
        """Returns what a missing or null series field is read as, by its name: of those that have a
        default."""
        named = zip(self.series_names, self.series_fields, strict=True)
        return {name: self.series_defaults[path] for name, path in named if path in self.series_defaults}

    @property
    def sample_series(self) -> dict[str, str]:
        """Returns the series fields that lie in each sample: name -> path inside the sample."""
        named = zip(self.series_names, self.series_fields, strict=True)
        return {name: path.partition(".*.")[2] for name, path in named if ".*." in path}

    @property
    def value_names(self) -> tuple[str, ...]:
        """Returns the names of the value fields in summaries and columns, in their order: "p" for "v.*.p", or
        what `values.FIELD.as` says."""
        named = tuple((path, it.name) for path, it in self.values.items() if it.name is not None)
        return _value_names(self.value_fields, named)

    @property
    def named_values(self) -> list[tuple[str, str]]:
        """Returns the name and the path of each value field."""
        return list(zip(self.value_names, self.value_fields, strict=True))

    @property
    def numeric_names(self) -> tuple[str, ...]:
        """Returns the names of the value fields that have to hold numbers: all that `nonnumeric_ok` doesn't
        name."""
        return tuple(
            name for name, path in self.named_values if not {name, path}.intersection(self.nonnumeric_ok)
        )

    @property
    def text_states(self) -> tuple[str, ...]:
        """Returns the names of the value fields of which texts are states."""
        if not self.nonnumeric_ok:
            return ()
        numeric = self.numeric_names
        states = {path for path, it in self.values.items() if it.kind == "state" and not it.map}
        return tuple(name for name, path in self.named_values if path in states and name not in numeric)

    @property
    def sums(self) -> dict[str, str]:
        """Returns the bucket's field that holds the sum of a value field."""
        return {}

    @property
    def starred_array(self) -> str | None:
        """Returns the array in whose elements a series field may lie, with a `*` for each; None: in none."""
        return None

    @property
    def has_values_inside(self) -> bool:
        """Returns whether value fields lie inside the elements of an array."""
        return False

    @property
    def inside(self) -> list[tuple[str, str]]:
        """Returns the fields inside each element of an array, each with its key."""
        return []

    def check(self, at: Key, report: ProblemReport) -> None:
        """Reports keys of its model that contradict each other or the rest of the policy. `at`: its table."""

    @property
    def archiving(self) -> Archive | None:
        """Returns the table `archive` of a policy that archives; None for one that archives nothing."""
        return None if self.archive is None or self.archive.to == "none" else self.archive

    @property
    def has_parts(self) -> bool:
        """Returns whether it archives into parts in a store."""
        return self.archive is not None and self.archive.to == "offline"

    @property
    def archive_collections(self) -> ArchiveCollections | None:
        """Returns the collections that it archives into; None where it does not archive into any."""
        if self.archive is None or self.archive.to != "online" or self.archive.collection is None:
            return None
        name = self.archive.collection
        return ArchiveCollections(name, f"{name}_overflow" if self.overflow else None, f"{name}_versions")

    @property
    def lives(self) -> tuple[Policy, ...]:
        """Returns the policy as it is for the series of each of its rules, and last for all others."""
        own = self.model_copy(update={"rules": ()}) if self.rules else self
        return (*map(own.under, self.rules), own)

    def under(self, rule: Rule) -> Policy:
        """Returns the policy with what a rule names in place of its own."""
        archive, retain = self.archive, self.retain
        if archive is not None and rule.to == "none":
            archive = archive.model_copy(update={"after": None})
        elif archive is not None and "after" in rule.model_fields_set:
            archive = archive.model_copy(update={"after": rule.after})
        if rule.retain is not None:
            named = {key: getattr(rule.retain, key) for key in rule.retain.model_fields_set}
            retain = (retain or Retain()).model_copy(update=named)
        return self.model_copy(update={"archive": archive, "retain": retain})

    @property
    def sources(self) -> list[str]:
        """Returns the collections that its buckets lie in."""
        return [self.collection, *([self.overflow.collection] if self.overflow else [])]


@lru_cache
def _series_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        path.rpartition(".")[2] if path.startswith("_id.") or ".*." in path else path for path in paths
    )


@lru_cache
def _value_names(paths: tuple[str, ...], named: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    names = dict(named)
    return tuple(names.get(path, path.rpartition("*.")[2]) for path in paths)


class Settings(Table):
    """The policy file as a whole, with values from the environment. `path`: the file that it was read
    from."""

    mongodb: MongoDB
    store: Store | None = None
    work: Workers = Workers()
    ledger: RunLedger = RunLedger()
    metrics_file: Path | None = None
    notify: Notify = Notify()
    drill: Drill = Drill()
    lake: Lake | None = None  # None: archives are registered nowhere
    publish: Publish = Publish()
    throttle: Throttle = Throttle()
    policies: dict[str, Policy]
    path: Path

    def redis_of(self, policy: Policy) -> Redis | None:
        """Returns the table `publish.redis` as it applies to a policy; None where nothing of it is
        published."""
        own = policy.publish.redis if policy.publish else PolicyRedis()
        targets = policy.rollup.targets if policy.rollup else {}
        if self.publish.redis is None or not own.enabled or not targets:
            return None
        overrides = {key: getattr(own, key) for key in own.model_fields_set - {"enabled"}}
        redis = self.publish.redis.model_copy(update=overrides)
        return redis.model_copy(
            update={
                "latest_hours": redis.latest_hours if "hourly" in targets else None,
                "latest_days": redis.latest_days if "daily" in targets else None,
                "secondary": redis.secondary if redis.secondary in policy.series_names else None,
            }
        )
