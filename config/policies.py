"""The policy file as frozen models: one model a table, one attribute a key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ByteSize, ConfigDict, SecretStr


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MongoDB(Table):
    uri: SecretStr
    database: str


class Store(Table):
    url: str
    endpoint_url: str | None = None
    region: str | None = None
    signing_key: tuple[SecretStr, ...] = ()  # the first signs, all verify


#: Bytes.
USUAL_MEMORY = 400_000_000


class Workers(Table):
    workers: int = 1  # processes; 1: all in one
    executor: str | None = None  # URL of a cluster that works instead
    memory: ByteSize = ByteSize(USUAL_MEMORY)


class Rollup(Table):
    hourly: str | None = None
    daily: str | None = None
    timezone: str = "UTC"
    settle: timedelta = timedelta(minutes=10)
    late_data: Literal["auto", "stream", "scan"] = "auto"
    recheck: timedelta = timedelta(days=2)
    percentiles: tuple[float, ...] = ()


class Archive(Table):
    after: timedelta | None  # None: forever
    to: Literal["offline", "online", "none"]
    collection: str | None = None
    grace: timedelta = timedelta(0)
    delete: bool = True


class Retain(Table):
    hourly: timedelta | None = None  # None: forever
    daily: timedelta | None = None


class Overflow(Table):
    flag_field: str
    collection: str
    ref_field: str
    samples_field: str


class Policy(Table):
    name: str
    collection: str
    model: Literal["reading", "slots", "samples", "timeseries"]
    time_field: str | None = None
    series_fields: tuple[str, ...]
    value_fields: tuple[str, ...]
    slot: Literal["second", "minute"] | None = None
    samples_field: str | None = None
    sample_time_field: str | None = None
    start_field: str | None = None
    end_field: str | None = None
    count_field: str | None = None
    sum_fields: dict[str, str] = {}  # value field -> the bucket's field that holds its sum
    local_offset_field: str | None = None  # minutes, UTC minus local time
    expected_interval: timedelta | None = None  # None: what is missing is not told
    max_hole: timedelta | None = None  # None: an audit reports none
    schedule: str | None = None  # cron expression, UTC
    rollup: Rollup | None = None
    archive: Archive | None = None
    retain: Retain | None = None
    overflow: Overflow | None = None

    def __hash__(self) -> int:  # a dict has none
        return hash((self.name, self.collection, self.model))

    @property
    def sources(self) -> list[str]:
        """The collections that its buckets lie in."""
        return [self.collection, *([self.overflow.collection] if self.overflow else [])]


class Settings(Table):
    mongodb: MongoDB
    store: Store | None = None
    work: Workers = Workers()
    policies: dict[str, Policy]
    path: Path
