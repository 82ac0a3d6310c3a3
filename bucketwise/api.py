"""Data of policies in Python: `connect` for SQL, `scan` for Arrow, Polars and pandas. Both read only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketwise.archivers.context import Connections
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.records.changes import StoreJournal
from bucketwise.archivers.stores import open_store
from bucketwise.buckets.fields.selectors import series_text
from bucketwise.config.errors import UsageError
from bucketwise.config.load import load
from bucketwise.config.policies import Policy, Settings
from bucketwise.jobs.core import clock
from bucketwise.jobs.core import connect as mongodb
from bucketwise.jobs.query.rewriting import read_context
from bucketwise.jobs.query.tables import readings_reader

if TYPE_CHECKING:
    import duckdb

__all__ = ["connect", "scan"]


def connect(
    config: str | Path | None = None, policies: Sequence[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Returns a DuckDB connection with the views of these policies, or of all.

    `config`: the policy file; None: that of BUCKETWISE_CONFIG, or ./bucketwise.toml. The connection reads no
    files, and its settings are locked. Raises ConfigError, UsageError where there is no such policy, and what
    MongoDB raises; ImportError without DuckDB."""
    from bucketwise.jobs.query.engine import Engine

    settings, connections = _open(config)
    contexts = [read_context(connections, it, datetime.now(UTC)) for it in _chosen(settings, policies)]
    engine = Engine(contexts, int(settings.work.memory))
    engine.create_views(list(engine.views.values()))
    return engine.connection


def scan(
    policy: str,
    since: datetime | None = None,
    until: datetime | None = None,
    series: Mapping[str, object] | None = None,
    config: str | Path | None = None,
) -> pa.RecordBatchReader:
    """Returns the readings of a policy in [since, until), live and archived, each once, in the order of time.

    `series`: the value by series field, or its text as `--series` takes it. The batches have the columns of
    the archive's parts: series fields, `time` (UTC), value fields; they are read as they are taken. Raises as
    `connect`, also while it is read; UsageError where a time has no zone; HaltedError where the archive is
    damaged."""
    for name, at in (("since", since), ("until", until)):
        if at is not None and at.tzinfo is None:
            raise UsageError(f"{name}: {at} has no time zone; write such as datetime(…, tzinfo=UTC)")
    settings, connections = _open(config)
    context = read_context(connections, _chosen(settings, [policy])[0], datetime.now(UTC))
    selector = {name: series_text(value) for name, value in (series or {}).items()}
    return readings_reader(context, since, until, selector)


def _open(config: str | Path | None) -> tuple[Settings, Connections]:
    settings = load(None if config is None else Path(config), os.environ)
    client = mongodb.connect(settings.mongodb)  # closed when nothing refers to it any more
    database = client[settings.mongodb.database]
    journal = StoreJournal(clock.current, database)
    store = None if settings.store is None else open_store(settings.store, journal)
    return settings, Connections(database, store, keys=Keys.of(settings.store))


def _chosen(settings: Settings, names: Sequence[str] | None) -> list[Policy]:
    for name in names or ():
        if name not in settings.policies:
            known = ", ".join(settings.policies)
            raise UsageError(f"{settings.path} has no policy {name}; there are {known}")
    return [it for name, it in settings.policies.items() if names is None or name in names]
