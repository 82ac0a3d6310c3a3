"""One call of the command line: what every verb is given. What a call has is imported
when it is asked for."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.logs import log
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.archivers.context import Connections, Executor
    from bucketwise.archivers.format.keys import Keys
    from bucketwise.archivers.records.changes import StoreJournal
    from bucketwise.archivers.stores.base import ObjectStore
    from bucketwise.buckets.fields.times import TimeRange
    from bucketwise.config.policies import Policy, Settings
    from bucketwise.jobs.core.connect import Document


@dataclass
class Call:
    """The common options, and what follows from them. Reads the config when it is first asked for."""

    command: str
    config: Path | None
    names: tuple[str, ...]  # --policy
    now: datetime
    is_now_given: bool
    json: bool
    quiet: bool
    yes: bool
    stop: Stop
    metrics_option: Path | None = None  # --metrics-file
    no_throttle: bool = False  # --no-throttle
    arguments: tuple[str, ...] | None = ()  # what stood behind the verb, but common options; None: series
    workers: int | None = None  # --workers
    executor: str | None = None  # --executor
    is_measured: bool = False  # it runs policies, and changes what it finds due
    is_pausable: bool = False  # not while the policy is paused, or its window closed
    reads_departed: bool = False  # it also works on a policy that has left the file
    needs_policies: bool = True  # a policy file without any is refused
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    hosts: str = ""  # where MongoDB is, once that is known
    display: ProgressDisplay | None = None  # who calls from Python shows progress in a way of their own

    @cached_property
    def settings(self) -> Settings:
        """Returns the settings of the policy file. Raises ConfigError."""
        from bucketwise.config.load import load
        from bucketwise.jobs.core import connect

        settings = load(self.config, self.environ, needs_policies=self.needs_policies)
        self.hosts = connect.hosts(settings.mongodb)
        return settings

    @cached_property
    def policies(self) -> list[Policy]:
        """Returns the policies named by --policy, else all, in the order of the file. Raises UsageError."""
        return self.chosen(self.settings.policies, f"{self.settings.path} has")

    @cached_property
    def archived_policies(self) -> list[Policy]:
        """Returns the policies named by --policy, else all, and those that have left the file and whose
        archives lie in the store. Raises UsageError."""
        chosen, store = self.policies, self.store
        if self.names or store is None:
            return chosen
        from bucketwise.archivers.mirroring.places import may_hold
        from bucketwise.archivers.records.policies import PolicyRecords

        with self.database() as database:
            departed = list(PolicyRecords(database, store, self.keys).all_departed(chosen))
        return [*chosen, *(it for it in departed if may_hold(store, it.identity))]

    def chosen(self, known: Mapping[str, Policy], where: str) -> list[Policy]:
        """Returns those of `known` that --policy names, else all. Raises UsageError, which says `where` there
        is none."""
        known = {**known, **self._recorded([it for it in self.names if it not in known], known.values())}
        for name in self.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}"
                raise UsageError(f"--policy {name}: {where} no such policy. {hint}")
        return [policy for name, policy in known.items() if not self.names or name in self.names]

    def _recorded(self, names: Sequence[str], policies: Iterable[Policy]) -> dict[str, Policy]:
        """Returns those of these policies that have left the file, for a verb that may still work on what
        they have archived: as one that has their `id`, or as they were last."""
        if not names or not self.reads_departed:
            return {}
        from bucketwise.archivers.records.policies import PolicyRecords

        found = {it.identity: it for it in policies if it.identity in names}
        with self.database() as database:
            records = PolicyRecords(database, self.store, self.keys)
            last = {name: records.last(name) for name in names if name not in found}
        return found | {name: it for name, it in last.items() if it is not None}

    def ranges(self, since: str | None, until: str | None) -> Callable[[Policy], TimeRange]:
        """Returns what tells each policy's range between --since and --until. Raises UsageError."""
        from bucketwise.jobs.core.ranges import parse_range

        return parse_range(since, until).of(self.policies, self.now)

    @cached_property
    def store(self) -> ObjectStore | None:
        """Returns the configured store; None without one."""
        settings = self.settings.store
        if settings is None:
            return None
        from bucketwise.archivers.stores import open_store

        store = open_store(settings, self._journal if settings.copies else None)
        store.find_keys()  # before the first policy begins
        return store

    @property
    def opened_store(self) -> ObjectStore | None:
        """Returns the store if it has been asked for; else None."""
        return self.__dict__.get("store")

    @cached_property
    def _journal(self) -> StoreJournal:
        """Returns the journal of the store's copies, which is kept in the database once that is connected."""
        from bucketwise.archivers.records.changes import StoreJournal

        return StoreJournal(clock.current)

    @cached_property
    def keys(self) -> Keys:
        """Returns the signing keys of the configured store."""
        from bucketwise.archivers.format.keys import Keys

        return Keys.of(self.settings.store)

    @property
    def metrics_file(self) -> Path | None:
        """Returns where the metrics of this run go; None where they go nowhere, and for a dry run."""
        return (self.metrics_option or self.settings.metrics_file) if self.is_measured else None

    @property
    def progress(self) -> ProgressDisplay:
        """Returns a new display of progress on stderr, or that of the caller."""
        return self.display or ProgressDisplay(quiet=self.quiet)

    def open_executor(self) -> Callable[[Connections], AbstractContextManager[Executor]]:
        """Returns what executes tasks: as the options --workers and --executor say, else the settings. Raises
        UsageError."""
        from bucketwise.config.checks.locations import BOTH, EXECUTOR_REMEDY, executor_fault
        from bucketwise.jobs.core.workers import check_client, executor_for

        work, count, executor = self.settings.work, self.workers, self.executor
        if count is not None and executor is not None:
            raise UsageError(f"--workers {count} and --executor {executor}: {BOTH}")
        if executor is not None:
            if fault := executor_fault(executor):
                raise UsageError(f"--executor {executor}: {fault}; {EXECUTOR_REMEDY}")
            work = work.model_copy(update={"executor": executor, "workers": 1})
        elif count is not None:
            work = work.model_copy(update={"executor": None, "workers": count})
        if work.executor is not None:
            check_client(work.executor)
        return partial(executor_for, self.settings.model_copy(update={"work": work}))

    @contextmanager
    def database(self) -> Iterator[Database[Document]]:
        """Yields the configured database, connected while the context lasts."""
        from bucketwise.jobs.core import connect

        with connect.connect(self.settings.mongodb) as client:
            database = client[self.settings.mongodb.database]
            if self.settings.store is not None and self.settings.store.copies:
                self._journal.database = database
            yield database


def take_reads_from_copies(store: ObjectStore | None) -> dict[str, Any]:
    """Returns what was read from copies since this was last asked, as a part of the JSON; an empty one where
    nothing was. Logs a warning."""
    from bucketwise.archivers.stores.copied import copies_of

    copied = copies_of(store)
    count, first = copied.take_reads() if copied is not None else (0, ())
    if not count:
        return {}
    log.warning(
        "read from a copy, since the store could not give it. Run `bucketwise repair`",
        objects=count,
        first=first[0].key,
        copy=first[0].copy,
        reason=first[0].reason,
    )
    return {"from_copies": {"count": count, "objects": [it._asdict() for it in first]}}
