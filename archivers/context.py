"""The context of a run with its archive, what follows from the policy, the report of what an archive run
did, and the executors of its tasks.

Tasks are functions of plain values that read MongoDB and a store, give plain values, and write nothing to
MongoDB. They are done here, or in other processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pymongo.database import Database

from bucketwise.archivers.binding import Binding, BindingState
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.markers import (
    Deployment,
    Topology,
    listed_collections,
    present_deployment,
)
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.holds import HoldFiles, damage_of_holds
from bucketwise.archivers.records.pins import Pins, restored
from bucketwise.archivers.records.policies import PolicyRecord, PolicyRecords
from bucketwise.archivers.records.receipt_files import ReceiptFiles
from bucketwise.archivers.records.receipts import NO_RUN, Receipts, RunIdentity
from bucketwise.archivers.records.registry import Registry
from bucketwise.archivers.stores.base import ClaimingStore, ObjectStore
from bucketwise.archivers.stores.copied import copies_of, names_of
from bucketwise.archivers.writes import covered
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined, Series
from bucketwise.buckets.decoding.decode import Decoded, decode, decode_live
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms
from bucketwise.buckets.models import model_of
from bucketwise.buckets.rules import NEVER, SeriesRules
from bucketwise.buckets.source import Source
from bucketwise.config.amounts import RemovalLimit
from bucketwise.config.policies import Archive, Policy
from bucketwise.config.tables import USUAL_MEMORY
from bucketwise.rollups.context import RunContext, run_now, transaction
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.standing import load_standing, plausible_times

#: Quarantined buckets that are reported one by one; the rest are counted.
MAX_DETAILS = 1000
#: Why buckets stay though they end before the watermark.
NOT_ROLLED_UP = "its windows have changed since they were rolled up"
LEFT_WINDOWS = "its windows wait for a roll-up: archived readings of them can't be read, or were just adopted"
#: Why buckets stay that hold no numbers.
VALUELESS = (
    "no finite value in a value field for a whole day, of a series that had some: correct the field, or name "
    "it in nonnumeric_ok"
)


@dataclass(frozen=True)
class Valueless:
    """A day of a series in which no reading holds a finite number in a value field, though earlier or later
    ones do."""

    field: str
    series: Series
    day: int  # since 1970, UTC

    @property
    def date(self) -> str:
        """Returns the day as YYYY-MM-DD."""
        return f"{as_date(self.day * DAY_MS):%Y-%m-%d}"


class DeleteLimit(RemovalLimit):
    """How many buckets a run would delete, of how many in the collection, and how many it may."""

    @property
    def message(self) -> str:
        """Says by how much the run is too large, and what to do."""
        return (
            f"it would delete {self.due:,} of the {self.total:,} buckets of {self.collection}, and "
            f"archive.max_delete ({self.written}) allows {self.most:,}. Check that the policy says what "
            "you mean; if so, run once with --allow-large"
        )

    def message_after(self, deleted: int) -> str:
        """Returns a message that more is due than was counted, after `deleted` deletes."""
        return (
            f"more is due than the {self.due:,} buckets of {self.collection} that were counted, such as "
            "archived buckets that were put back by hand, or quarantined ones that are sound again. "
            f"It has deleted {deleted:,}, and archive.max_delete ({self.written}) allows {self.most:,}. If "
            "the others may go as well, run once with --allow-large"
        )


@dataclass
class ArchiveReport:
    """Counts of one run. `left` are expired buckets that stay; `reasons` says why, with how many."""

    to: str
    buckets: int = 0
    readings: int = 0
    parts: int = 0
    bytes: int = 0
    deleted: int = 0
    removed_bytes: int = 0  # of what was deleted, as BSON
    left: int = 0
    changed: int = 0  # among those left: changed between copy and delete, or while they were read
    valueless: list[Valueless] = field(default_factory=list)  # the first thousand
    quarantined: list[Quarantined] = field(default_factory=list)
    quarantined_total: int = 0
    _named: set[int] = field(default_factory=set)  # quarantined buckets, 8 bytes each
    reasons: Counter[str] = field(default_factory=Counter)
    limit: DeleteLimit | None = None  # where the policy has one

    def archived(self, buckets: int, readings: int) -> None:
        """Counts what has been copied and verified, and is in the archive."""
        self.buckets += buckets
        self.readings += readings

    def quarantine(self, found: list[Quarantined]) -> None:
        """Counts each broken bucket once; keeps the first thousand in detail."""
        for bucket in found:
            name = hash((type(bucket.id), repr(bucket.id)))
            if name not in self._named:
                self._named.add(name)
                self.quarantined_total += 1
                if len(self.quarantined) < MAX_DETAILS:
                    self.quarantined.append(bucket)

    def hold(self, count: int, found: list[Valueless]) -> None:
        """Counts buckets that stay since they hold no number where there should be some."""
        self.leave(count, VALUELESS)
        self.valueless += found[: MAX_DETAILS - len(self.valueless)]

    def leave(self, count: int, reason: str) -> None:
        """Counts expired buckets that stay, and why."""
        if count:
            self.left += count
            self.reasons[reason] += count

    def change(self, count: int) -> None:
        """Counts buckets that changed between copy and delete. They stay."""
        self.changed += count
        self.leave(count, "changed between copy and delete: copied again by a later run")


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Connections:
    """The connections of a task, in the process that executes it."""

    database: Database[dict[str, Any]]
    store: ObjectStore | None
    #: Returns the present fence of a policy's lease; None where it was never acquired.
    fence_of: Callable[[str], int | None] = lambda _policy: None
    keys: Keys = UNSIGNED  # with any, commits must be signed by one of them


#: A function of a module.
Task = Callable[Concatenate[Connections, P], T]


class Executor(Protocol):
    """Executes tasks, for one run of one policy."""

    @property
    def workers(self) -> int:
        """Returns how many tasks are done at once."""

    @property
    def memory(self) -> int:
        """Returns how many bytes a run may take, for results that wait for their turn and for what is
        copied."""

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Returns the future of the task. What it raises, `result()` raises."""

    def check(self) -> None:
        """Raises BucketwiseError where no worker is left."""


@dataclass(frozen=True)
class LocalExecutor:
    """Executes tasks in this process, one after another, each when it is submitted."""

    connections: Connections
    workers: int = 1
    memory: int = USUAL_MEMORY

    def submit(self, task: Task[P, T], *plain: P.args, **named: P.kwargs) -> Future[T]:
        """Does the task now, and returns its outcome as a future that is done."""
        return run_now(task, self.connections, *plain, **named)

    def check(self) -> None:
        """Does nothing: this process is there."""


_MS = timedelta(milliseconds=1)
#: Returns those of these fences under which the database knows of a run. It does not know runs that it has
#: forgotten since it was restored from a backup.
KnownFences = Callable[[Collection[int]], Collection[int]]


@dataclass
class ArchiveState:
    """The state of an archive, kept from step to step while no other run works on it.

    `is_clean`: whatever earlier runs left half-done has been looked for. `heads`: the last manifests of the
    chain when the run began; None: not read yet."""

    is_clean: bool = False
    is_recovered: bool = False  # this run has finished or undone what a crash left
    report: ArchiveReport | None = None  # what this run has archived so far
    record: PolicyRecord | None = None  # what the policy said last, before this run
    met: set[object] = field(default_factory=set)  # preconditions that this run has found in order
    heads: list[Manifest] | None = None
    listed: list[dict[str, Any]] | None = None  # collections, as MongoDB lists them
    topology: Topology = field(default_factory=Topology)
    binding: BindingState = field(default_factory=BindingState)
    has_noted_copies: bool = False  # those that this run's writes pass by


def offline_archive(
    connections: Connections, policy: Policy, keys: Keys | None = None
) -> OfflineArchive | None:
    """Returns a policy's offline archive; None where it has none. `keys`: manifests must be signed by one of
    them; None: by one of the connections', or, where these have none, signatures are not looked at."""
    if not policy.has_parts or connections.store is None:
        return None
    receipts = Receipts(connections.database, policy.identity)
    if keys is None and connections.keys.first is not None:
        keys = connections.keys
    return OfflineArchive(policy, connections.store, Registry(receipts), keys)


@dataclass(frozen=True, kw_only=True)
class ArchiveContext(RunContext):
    """The context of one run of one policy, and where it archives."""

    store: ObjectStore | None
    executor: Executor
    keys: Keys = UNSIGNED
    fence: int = 0  # of the lease; 0 where nothing is written
    run: RunIdentity = NO_RUN
    known_fences: KnownFences = lambda _fences: ()
    adopts: bool = False  # commits that the database has forgotten are registered
    known: Sequence[Policy] = ()  # all policies of the file
    state: ArchiveState = field(default_factory=ArchiveState)

    @property
    def connections(self) -> Connections:
        """Returns the connections for tasks in this process."""
        return Connections(self.database, self.store, keys=self.keys)

    @property
    def has_parts(self) -> bool:
        """Returns whether the policy's archive lies in the store, and that is at hand."""
        return self.policy.has_parts and self.store is not None

    def offline(self, keys: Keys | None = None) -> OfflineArchive:
        """Returns the policy's offline archive, which it must have. `keys`: manifests must be signed by one
        of them; None: by one of the run's, if it has any."""
        connections = replace(self.connections, store=self._claimed_store)
        archive = offline_archive(connections, self.policy, keys)
        assert archive is not None
        return archive

    @property
    def archive(self) -> Archive:
        """Returns the table `archive` of the policy, which must have one."""
        assert self.policy.archive is not None
        return self.policy.archive

    @property
    def listed(self) -> list[dict[str, Any]]:
        """Returns the policy's collections and the suite's own, as MongoDB lists those that exist. Asks once:
        a claim, and what checks an online archive, ask anew."""
        if self.state.listed is None:
            self.state.listed = listed_collections(self.database, self.policy.sources)
        return self.state.listed

    @property
    def undeletable(self) -> str | None:
        """Says which of the policy's collections nothing can be deleted from, and why: "ticks is a view".
        None: from all."""
        for info in (it for it in self.listed if it["name"] in self.policy.sources):
            if info["type"] == "view" or info["options"].get("capped"):
                return f"{info['name']} is {'a view' if info['type'] == 'view' else 'a capped collection'}"
        return None

    @property
    def source(self) -> Source:
        """Returns the source that reads the policy's collections."""
        return Source(self.database, self.policy)

    @property
    def receipts(self) -> Receipts:
        """Returns the receipts of the policy."""
        return Receipts(self.database, self.policy.identity)

    @property
    def policy_records(self) -> PolicyRecords:
        """Returns what the policies of the database said last."""
        return PolicyRecords(self.database, self.store, self.keys)

    def note_deleting(self) -> None:
        """Records, before originals are deleted into an online archive, that it must have receipts from then
        on. Asks nothing where the policy's record says so already."""
        record = self.state.record or PolicyRecord.of(self.policy)
        if not record.has_deleted:
            self.state.record = self.policy_records.note(replace(record, has_deleted=True))

    @property
    def receipt_files(self) -> ReceiptFiles:
        """Returns the receipts of old deletes, which lie in the store."""
        return ReceiptFiles(self.receipts, self._claimed_store)

    @property
    def hold_files(self) -> HoldFiles:
        """Returns the files of the holds on the policy."""
        return HoldFiles(self.store, self.policy.identity, self.keys)

    def damage_of_holds(self) -> list[DamagedError]:
        """Returns an error for each hold that the store tells of and the database lacks: what it covers is
        not known then, so nothing may be destroyed."""
        return damage_of_holds(self.receipts, self.hold_files, mends=self.fence > 0)

    @cached_property
    def binding(self) -> Binding:
        """Returns the binding of the policy's archive to this deployment."""
        store = self.store if self.policy.has_parts else None
        transact = partial(transaction, self.database, self.guard)

        def present(anew: bool) -> Deployment:
            listed = listed_collections(self.database) if anew else self.listed
            return present_deployment(self.database, listed, self.state.topology, anew=anew)

        return Binding(self.receipts, store, self.run, transact, self.state.binding, present)

    @property
    def _claimed_store(self) -> ObjectStore | None:
        """Returns the store, which a run that may write claims before its first write."""
        if self.store is None or not self.fence or not self.policy.has_parts:
            return self.store
        return ClaimingStore(self.store, self._claim)

    def _claim(self) -> None:
        """Claims the store before a run's first write, and records which copies have left the policy file:
        they miss what is written."""
        self.binding.claim()
        if self.state.has_noted_copies:
            return
        self.state.has_noted_copies = True
        CopyRecords(self.receipts).note_removed(names_of(copies_of(self.store)))

    @cached_property
    def deletions(self) -> Deletions:
        """Returns the writer of receipts of deletes for this run."""
        return Deletions(self.receipts, self.policy, self.fence, self.now, self.keys, self.run)

    @cached_property
    def pins(self) -> Pins:
        """Returns the pins of the policy, as of `now`."""
        return Pins(self.database, self.policy, self.now)

    @cached_property
    def plausible(self) -> Plausible:
        """Returns the times that live buckets of the policy may have, as long as they are not archived."""
        return plausible_times(self.policy, load_standing(self.database, self.policy), self.now)

    def decode_live(self, batch: Batch) -> Iterator[Decoded]:
        """Yields the columns of live buckets, restored ones apart."""
        return decode_live(batch, self.policy, self.restored, self.plausible)

    def restored(self, batch: Batch) -> list[int]:
        """Returns which live buckets of a batch were restored, and are archived as well."""
        return restored(self.database, self.policy, batch)

    @cached_property
    def freezes(self) -> list[Hold]:
        """Returns the holds that keep buckets from moving, as of the first call. Transactions that delete
        look for holds placed since."""
        return Holds(self.database, self.policy.identity).active(frozen=True)

    def frozen(self, decoded: Decoded) -> dict[int, Hold]:
        """Returns which buckets of a batch a hold keeps from moving: index -> the hold."""
        return covered(decoded, self.policy, self.freezes)

    def movable(self, batch: Batch) -> NDArray[np.int64]:
        """Returns the indices of the buckets of a batch that neither a pin nor a hold keeps."""
        kept = set(self.pins.of(batch))
        if self.freezes:
            kept |= self.frozen(decode(batch, self.policy)).keys()
        return np.setdiff1d(np.arange(len(batch)), list(kept))

    @property
    def measured(self) -> bool:
        """Returns whether buckets are measurements of a native time-series collection: they don't change, and
        may share an `_id`."""
        return not model_of(self.policy).keeps_ids_unique

    @cached_property
    def rules(self) -> SeriesRules:
        """Returns the rules of the policy, its own one last."""
        return SeriesRules(self.policy)

    @cached_property
    def expired_before(self) -> list[int]:
        """Returns for each rule the instant (milliseconds) before which a bucket's last reading must be for
        it to have expired."""
        lengths = [it.archive.after if it.archive else None for it in self.rules.policies]
        return [NEVER if after is None else as_ms(self.now - after) for after in lengths]

    @cached_property
    def cutoffs(self) -> list[int]:
        """Returns for each rule the instant (milliseconds) before which a bucket's last reading must be for
        it to be archived: it has expired, and so has all of its batch."""
        batch = self._batch_ms
        return [it if batch is None or it == NEVER else it - it % batch for it in self.expired_before]

    def is_due(self, decoded: Decoded, names: Sequence[str] | None = None) -> NDArray[np.bool_]:
        """Returns which buckets are to be archived: the last of all rules that their series are under says
        so. `names`: of the series' values, where they are not those of the policy."""
        return decoded.last < self.rules.limits_of(decoded.columns, self.cutoffs, names)

    def batch_whole_at(self, rule: int) -> int | None:
        """Returns when (milliseconds) all of the batch that has begun to expire by a rule will have expired;
        None where the policy has no batches, or nothing expires."""
        cutoff = self.cutoffs[rule]
        if self._batch_ms is None or cutoff == NEVER:
            return None
        return cutoff + self._batch_ms + as_ms(self.now) - self.expired_before[rule]

    @property
    def _batch_ms(self) -> int | None:
        """Batches are counted from 1970, in UTC."""
        batch = self.policy.archive.batch if self.policy.archive else None
        return None if batch is None else batch // _MS

    @property
    def kept(self) -> str | None:
        """Returns why originals are never deleted after they are copied; None where they are."""
        without = None if self.archive.delete else "copied and kept: the policy says delete = false"
        return model_of(self.policy).undeletable or without

    def in_grace(self, copied: datetime) -> bool:
        """Returns whether what was copied then may not be deleted yet. Without a grace it may, also where the
        clock of the run that copied it was ahead."""
        return bool(self.archive.grace) and self.now < copied + self.archive.grace

    @property
    def grace(self) -> str:
        """Returns the reason to report for originals that stay during their grace."""
        return f"copied, and waits for the grace of {self.archive.grace}"

    def waits(self, copied: datetime) -> str | None:
        """Returns why the original of a copy made then must stay; None where it may be deleted."""
        return self.kept or (self.grace if self.in_grace(copied) else None)
