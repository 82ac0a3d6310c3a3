"""The tables of the policy file beside the policies, as frozen models: one attribute a key."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ByteSize, ConfigDict, SecretStr

from bucketwise.config.values import (
    CatalogName,
    CopyName,
    DayOrForever,
    DrilledDays,
    Lag,
    List,
    LockDays,
    Memory,
    Namespace,
    Prefix,
    RateText,
    Region,
    Schedule,
    Secrets,
    WindowCount,
    WindowText,
    WorkerCount,
)

#: Storage classes whose objects have to be thawed before a read.
COLD = ("GLACIER", "DEEP_ARCHIVE")


def class_to_put(named: str | None) -> str | None:
    """Returns the class that objects are put with: never a cold one, since they are read back."""
    return None if named in COLD else named


def moves_at_once(named: str | None) -> dict[str, timedelta]:
    """Returns the class to which parts move once they are read back, where they are to be in a cold one."""
    return {named: timedelta(0)} if named is not None and named in COLD else {}


class Table(BaseModel):
    """A table of the policy file: immutable, strict in its types, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class TopLevel(Table):
    """The keys that stand above all tables."""

    metrics_file: str | None = None  # of cron's runs, for node_exporter


class MongoDB(Table):
    """The table `mongodb`: the server, and the database that holds all collections."""

    uri: SecretStr
    database: str


class ObjectLock(Table):
    """The table `store.object_lock`: how long the cloud keeps the files of a commit from being
    removed, by anybody."""

    mode: Literal["governance", "compliance"]
    days: LockDays


class StorePlace(Table):
    """A directory or S3 bucket, and how it is reached."""

    url: str
    endpoint_url: str | None = None
    region: Region | None = None
    object_lock: ObjectLock | None = None  # of clouds


class StoreCopy(StorePlace):
    """The table `store.copies`: a further store that holds all that the first one does."""

    name: CopyName
    required: bool = True  # a commit counts once it is there as well
    lag: Lag = None  # one that is not required is late when it is further behind; None: never
    storage_class: str | None = None  # of parts in it; None: as policies say


class Store(StorePlace):
    """The table `store`: the directory or S3 bucket that holds offline archives."""

    signing_key: Secrets = ()  # the first signs, all verify
    encryption_key: Secrets = ()  # the first encrypts, all decrypt
    key_command: str | None = None  # prints these keys, one a line
    copies: List[StoreCopy] = ()

    @property
    def is_encrypted(self) -> bool:
        """Returns whether what is written there is encrypted."""
        return bool(self.encryption_key) or self.key_command is not None


#: Bytes.
USUAL_MEMORY = 400_000_000


class Workers(Table):
    """The table `work`: how many processes work on a run, and the memory they may take."""

    workers: WorkerCount = 1  # processes; 1: all in one
    executor: str | None = None  # URL of a cluster that works instead
    memory: Memory = ByteSize(USUAL_MEMORY)


class RunLedger(Table):
    """The table `ledger`."""

    keep: DayOrForever = timedelta(days=90)  # what each run did; None: forever


class Notify(Table):
    """The table `notify`: who is notified how runs end."""

    url: SecretStr | None = None  # gets the report of what `on` names
    ping_start: SecretStr | None = None
    ping_success: SecretStr | None = None
    ping_fail: SecretStr | None = None
    on: List[Literal["failed", "halted", "late"]] = ("failed", "halted", "late")

    @property
    def notifies_late(self) -> bool:
        """Returns whether missed firings are reported."""
        return self.url is not None and "late" in self.on

    @property
    def urls(self) -> dict[str, SecretStr]:
        """Returns the URLs that are given, by key."""
        found = {key: getattr(self, key) for key in ("url", "ping_start", "ping_success", "ping_fail")}
        return {key: url for key, url in found.items() if url is not None}


class Drill(Table):
    """Restore drills of all policies with an offline archive."""

    schedule: Schedule | None = None  # cron expression, UTC
    every: DayOrForever = None  # a day that no drill proves for so long is told; None: none is
    days: DrilledDays = 1  # of each policy in a scheduled drill


#: The catalog that needs no server: MongoDB keeps it.
OWN_CATALOG = "bucketwise"


class Lake(Table):
    """The table `lake`: the catalog in which offline archives are registered as Iceberg tables."""

    catalog: CatalogName = OWN_CATALOG
    properties: dict[str, SecretStr] = {}  # of the catalog, in pyiceberg's words
    namespace: Namespace | None = None  # None: the name of the database

    @property
    def plain_properties(self) -> dict[str, str]:
        """Returns the properties with their secrets."""
        return {key: it.get_secret_value() for key, it in self.properties.items()}


class Redis(Table):
    """The table `publish.redis`: where the newest summaries are published, and how many of each series."""

    url: SecretStr
    prefix: Prefix = "bw"
    latest_hours: WindowCount | None = None
    latest_days: WindowCount | None = None
    secondary: str | None = None  # a series field that has an index


class Publish(Table):
    """The table `publish`."""

    redis: Redis | None = None


class PolicyRedis(Table):
    """The table `publish.redis` of a policy: where it differs from that of the file."""

    enabled: bool = True
    latest_hours: WindowCount | None = None
    latest_days: WindowCount | None = None
    secondary: str | None = None


class PolicyPublish(Table):
    """The table `publish` of a policy."""

    redis: PolicyRedis = PolicyRedis()


class Throttle(Table):
    """The table `throttle`: limits on the load that runs put on the cluster, and the times at which
    they may work."""

    max_lag: Lag = None  # of a secondary, over which a run waits; None: it never does
    max_rate: RateText | None = None  # buckets or bytes a second
    window: WindowText | None = None  # times of day

    def within(self, outer: Throttle) -> Throttle:
        """Returns these limits, with those that are not set taken from `outer`."""
        return outer.model_copy(update=self.model_dump(exclude_unset=True))
