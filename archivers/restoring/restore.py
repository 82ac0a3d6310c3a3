"""Restores archived buckets as they were, byte for byte, into any collection."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.moving.archive import check_collections, check_kind
from bucketwise.archivers.records.copies import CopyReceipts, id_hashes
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.restoring.options import Mode, RestoreOptions, Target, check_request
from bucketwise.archivers.restoring.put import (
    ArchivedBuckets,
    DamageFound,
    Indices,
    MatchingBuckets,
    MissingBuckets,
    RestoreFilter,
    RestoreRecords,
    check_put,
    check_sound,
    missing_buckets,
    put,
    put_measurements,
)
from bucketwise.archivers.restoring.settle import RestoreReport, VersionSettler, plan_of
from bucketwise.archivers.versions.history import (
    Histories,
    OfflineHistories,
    OnlineHistories,
    Version,
    folds,
    readings_of,
)
from bucketwise.archivers.versions.kept import KeptVersions, beside
from bucketwise.archivers.versions.superseded import Superseded, incomplete
from bucketwise.archivers.writes import archive_collections, archived_source, chunks, same_id
from bucketwise.buckets.bson.cursor import prefetch
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.selectors import extended_json, selector_query
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.models import model_of, timeseries
from bucketwise.config.errors import BucketwiseError, HaltedError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import result_of, run_now


class ArchivedCopies(Protocol):
    """The copies of one archive."""

    @property
    def histories(self) -> Histories:
        """Returns what finds the versions of a bucket."""

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Raises HaltedError where something that may be wanted is damaged, unless `options` leave it out."""

    def missing(self) -> list[MissingBuckets]:
        """Returns what was left out."""

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields all archived buckets that may hold something of what is asked for. `records`: records what
        was restored into the source; None: it goes elsewhere."""


def note_nothing(_chosen: Indices, _session: ClientSession) -> None:
    """Records nothing of what was restored."""


class OfflineCopies:
    """The `ArchivedCopies` of an offline archive."""

    def __init__(self, context: ArchiveContext, archive: OfflineArchive) -> None:
        self._context = context
        self._archive = archive
        self._damage = DamageFound()

    @cached_property
    def histories(self) -> OfflineHistories:
        """Returns what finds the versions of a bucket."""
        return OfflineHistories(self._archive)

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Asks the store for all files that may be needed, unless what is damaged is to be left out."""
        if options.skip_damaged:
            self._archive.on_damage = self._damage
        else:
            check_sound(self._archive, wanted)

    def missing(self) -> list[MissingBuckets]:
        """Returns the damaged sections of commits, and files beside them."""
        return missing_buckets(self._context, self._archive, self._damage)

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields the buckets of commits and, where all versions are asked for, superseded ones as well."""
        yield from self._of_commits(options, records, wanted)
        if options.how.mode == Mode.all:
            yield from self._superseded(records, wanted)

    def _of_commits(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        database, archive, span = self._context.database, self._archive, (wanted.start, wanted.end)
        for commit, error in incomplete(self._context.receipts, archive, span, self._context.known_fences):
            archive.on_damage(error, commit, None)
        manifests = archive.manifests(*span)
        for number, manifest in enumerate(manifests, 1):
            if (
                manifest.timeseries is not None
                and not options.dry_run
                and timeseries.timeseries_options(database, options.to) is None
            ):
                database.create_collection(options.to, timeseries=manifest.timeseries)
            for held in archive.sections(manifest, wanted.sections_of(manifest)):
                section = manifest.sections[bisect_right(manifest.edges, held.positions[0]) - 1]
                note = partial(records.offline, manifest, held) if records else note_nothing
                yield ArchivedBuckets(
                    BucketSet(held.batch, manifest.archived_policy),
                    note,
                    (as_ms(section.first), as_ms(section.last)),
                    section.readings,
                    manifest.commit,
                    int(held.positions[-1]) + 1,
                    number / len(manifests),
                )

    def _superseded(self, records: RestoreRecords | None, wanted: RestoreFilter) -> Iterator[ArchivedBuckets]:
        """Yields superseded versions, since no commit may hold another version of their buckets."""
        histories = self.histories
        superseded = Superseded(self._archive)
        for file, manifest in superseded.around(wanted.start, wanted.end):
            if not wanted.may_hold(manifest):
                continue
            batch = superseded.read(file).batch
            batch = batch.take(histories.superseded(batch, manifest.archived_policy))
            note = partial(records.superseded, batch) if records else note_nothing
            yield ArchivedBuckets(BucketSet(batch, manifest.archived_policy), note)


class OnlineCopies:
    """The `ArchivedCopies` of an online archive."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._receipts = CopyReceipts(context.database, context.policy, context.keys.for_reading)
        self._left_out: dict[str, DamagedError] | None = None  # None: nothing may be

    @cached_property
    def histories(self) -> OnlineHistories:
        """Returns what finds the versions of a bucket."""
        return OnlineHistories(self._context.database, self._context.policy)

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Compares all that may be wanted with its receipts, unless what is damaged is to be left out. Raises
        UsageError where the source is to have other versions than the archive's."""
        mode, to = options.how.mode, options.to
        database, policy = self._context.database, self._context.policy
        if to == policy.collection and mode != Mode.merged:
            raise UsageError(
                f"--versions {mode}: the online archive holds the versions of a bucket merged, and {to} can "
                "only have them so. Leave --versions out, or restore into a new collection"
            )
        if options.skip_damaged:
            self._left_out = {}
            if to == policy.collection:
                OnlineHeads(database, policy, self._context.keys).told()  # a receipt goes on from them
        else:
            check_collections(database, policy, self._context.keys)
        kept = KeptVersions(database, policy)
        seen = set[int]()
        for batch in self._sound(options, wanted):
            for error in self._receipts.altered(beside(kept.of(batch.main.ids))):
                raise error
            seen.update(id_hashes(batch))
        # The receipts do not tell the series of what is gone, or no longer found by its series.
        for error in self._receipts.missing(wanted.start, wanted.end - 1, seen):
            self._note(error)

    def missing(self) -> list[MissingBuckets]:
        """Returns the buckets that are gone, or not as they were archived."""
        target, _ = archive_collections(self._context.policy)
        return [
            MissingBuckets(target, it.place, it.what, None, None, 1, 0, [])
            for it in (self._left_out or {}).values()
        ]

    def _note(self, error: DamagedError) -> None:
        if self._left_out is None:
            raise HaltedError(
                f"policy {self._context.policy.name}: the archive can't give all that is asked for: "
                f"{error.place}: {error.what}. Nothing was restored. Put back what is damaged, or restore "
                "the rest with --skip-damaged"
            )
        self._left_out[error.place] = error

    def _sound(self, options: RestoreOptions, wanted: RestoreFilter) -> Iterator[Batch]:
        """Yields what may be wanted, as it was archived."""
        database, policy = self._context.database, self._context.policy
        query = selector_query(policy, options.series)
        for batch in archived_source(database, policy).batches(wanted.start, wanted.end, query):
            unlike = self._receipts.mismatches(batch)
            for error in unlike.values():
                self._note(error)
            yield batch.take(np.setdiff1d(np.arange(len(batch)), list(unlike))) if unlike else batch

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields the archived buckets that may hold what is asked for."""
        for batch in self._sound(options, wanted):
            note = partial(records.online, batch) if records else note_nothing
            yield ArchivedBuckets(BucketSet(batch, self._context.policy), note)


def restore(context: ArchiveContext, options: RestoreOptions, copies: ArchivedCopies) -> RestoreReport:
    """Brings back every bucket that is asked for.

    Overflow documents go back into the policy's overflow collection. Several versions of a bucket become one,
    as `how` says. What is there already and equal stays; a document of the same `_id` that the archive does
    not hold is never written over. Raises UsageError for a target that won't do, BucketwiseError where
    documents are in the way, or lie in another kind of archive than the policy says, HaltedError where the
    archive is not what it should be; with `skip_damaged` it gives the rest, and reports what is missing.
    """
    check_kind(context.database, context.policy)
    check_request(context, options)
    policy, records = context.policy, None
    if policy.collection == options.to:
        until, how = options.pinned_until, options.how
        records = RestoreRecords(policy, context.receipts, context.deletions, context.pins, until, how)
    if options.dry_run:
        return _Preview(context, options, copies).report()
    note = records.settled if records else lambda _plans, _session: None
    target = Target(context.database, policy, options.to, context.guard, options.how, note)
    wanted = RestoreFilter(policy, options.within.start_ms, options.within.end_ms, options.series)
    copies.begin(options, wanted)
    restoring = _Restoring(context, target, wanted, copies.histories)
    found = copies.of(options, records, wanted)
    with ThreadPoolExecutor(1, "bucketwise-reader") as reader:
        restoring.restore(prefetch(map(wanted.of, found), lambda: True), reader)
    return replace(restoring.finished(), missing=copies.missing())


@dataclass
class _Passed:
    """How far a restore has come. Refers to nothing that refers to it, so that its caches go with it."""

    wanted: RestoreFilter
    until: dict[str, int] = field(default_factory=dict)  # buckets of each commit looked at, from its first

    def of(self, versions: Sequence[Version]) -> list[bool]:
        """Returns which of these versions, which are in the target, the restore has counted: it put them or
        found them there."""
        are_wanted = self.wanted.holds(versions)
        passed = [
            it.commit is not None and it.position < self.until.get(it.commit.commit, 0) for it in versions
        ]
        return [is_wanted and has_passed for is_wanted, has_passed in zip(are_wanted, passed, strict=True)]


class _Restoring:
    """The state of one restore."""

    def __init__(
        self, context: ArchiveContext, target: Target, wanted: RestoreFilter, histories: Histories
    ) -> None:
        self._target, self._check, self._progress = target, context.check, context.progress
        self._report = RestoreReport()
        self._filter = wanted
        self._passed = _Passed(wanted)
        self._last_check: Future[None] = run_now(lambda: None)  # reads back the previous piece
        self._histories = histories
        self._settling = VersionSettler(target, self._histories, self._passed.of, self._report)

    def restore(self, found: Iterable[MatchingBuckets], reader: Executor) -> None:
        for wanted in found:
            at = 0
            for piece in chunks(wanted.batch):
                self._check()
                here = wanted.indices[at : at + len(piece)]
                at += len(piece)
                self._restore(wanted, piece, here, reader)
                self._progress("restored buckets", len(piece), wanted.share)
            self._report.buckets += len(wanted.batch)
            self._report.readings += wanted.readings
            self._report.overflow += len(wanted.batch.extra)
            if wanted.commit is not None:
                self._passed.until[wanted.commit] = wanted.until
            if self._settling.is_full:
                self._settle()
        self._settle()

    def _restore(self, wanted: MatchingBuckets, piece: Batch, here: Indices, reader: Executor) -> None:
        target = self._target
        if not model_of(target.policy).keeps_ids_unique:
            put_measurements(target.database, target.policy, target.collection, piece.main)
            return
        met = self._settling.settled(piece)
        held = self._with_versions(piece, wanted.policy)
        self._subtract(piece, sorted({*met, *held}), wanted.policy)
        self._settling.add(piece.take(np.setdiff1d(held, met)), wanted.policy)
        new = np.setdiff1d(np.arange(len(piece)), [*met, *held])
        piece, here = piece.take(new), here[new]
        done = put(target, piece, here, wanted.note)
        result_of(self._last_check, self._check)
        self._last_check = reader.submit(check_put, target.database, done)
        blocked = sorted(done.blocked)
        self._subtract(piece, blocked, wanted.policy)
        self._settling.add(piece.take(blocked), wanted.policy)
        self._report.pinned += len(piece) - len(blocked) if target.is_source else 0

    def _with_versions(self, piece: Batch, policy: Policy) -> list[int]:
        """Returns the buckets that have other versions, whether or not anything is in their way."""
        held = self._histories.split(piece, policy) if self._filter.is_part else []
        if self._target.how.mode == Mode.merged:
            return held
        return sorted({*held, *self._histories.merged(piece, policy)})

    def _subtract(self, piece: Batch, leaving: list[int], policy: Policy) -> None:
        """Takes these buckets out of the counts, since `VersionSettler` counts them."""
        if leaving:
            buckets = BucketSet(piece.take(leaving), policy)
            self._report.buckets -= len(buckets)
            self._report.readings -= buckets.readings
            self._report.overflow -= len(buckets.batch.extra)

    def _settle(self) -> None:
        result_of(self._last_check, self._check)
        self._settling.settle(self._check)

    def finished(self) -> RestoreReport:
        """Returns the report. Raises BucketwiseError where documents were in the way."""
        blocked = self._settling.blocked
        if blocked.count:
            reason, first = next(iter(blocked.first.items()))
            raise BucketwiseError(
                f"--to {self._target.collection}: {blocked.count} of {self._report.buckets} buckets were not "
                f"restored. The first has _id {extended_json(first)}: {reason}"
            )
        return self._report


class _Preview:
    """Counts what a restore into an empty collection would put there. Keeps 8 bytes for each bucket of an
    offline archive, and reads it a second time only where some buckets have several versions."""

    def __init__(self, context: ArchiveContext, options: RestoreOptions, copies: ArchivedCopies) -> None:
        self._context, self._options, self._copies = context, options, copies
        span = options.within.start_ms, options.within.end_ms
        self._filter = RestoreFilter(context.policy, *span, options.series)
        self._report = RestoreReport()
        self._waiting: dict[int, list[bytes]] = {}  # versions met of buckets of which others are to come

    def report(self) -> RestoreReport:
        """Returns the counts. Raises as a restore does, whatever is in the target."""
        self._copies.begin(self._options, self._filter)
        commits = set()
        names, known = [_names(Docs.none())], [_names(Docs.none())]
        for found in self._found():
            if found.commit is not None and len(found.batch):
                commits.add(found.commit)
            if found.commit is not None or self._options.how.mode == Mode.all:  # else each `_id` comes once
                names.append(_names(found.batch.main))
            self._add(found.batch, found.readings)
            for piece in self._pieces(found):
                known.append(_names(piece.take(self._known(piece, found.policy)).main))
        several = _several(np.concatenate(names), np.concatenate(known))
        if several:
            for found in self._found():
                for piece in self._pieces(found):
                    self._settle(piece, found.policy, several)
        return replace(self._report, commits=len(commits), missing=self._copies.missing())

    def _found(self) -> Iterator[MatchingBuckets]:
        return map(self._filter.of, self._copies.of(self._options, None, self._filter))

    def _pieces(self, found: MatchingBuckets) -> Iterator[Batch]:
        for piece in chunks(found.batch):
            self._context.check()
            self._context.progress("buckets to restore", len(piece), found.share)
            yield piece

    def _add(self, batch: Batch, readings: int, sign: int = 1) -> None:
        self._report.buckets += sign * len(batch)
        self._report.readings += sign * readings
        self._report.overflow += sign * len(batch.extra)
        self._report.bytes += sign * batch.size

    def _known(self, piece: Batch, policy: Policy) -> list[int]:
        """Returns the buckets that are known to have other versions that count."""
        histories, mode = self._copies.histories, self._options.how.mode
        split = histories.split(piece, policy) if self._filter.is_part else []
        return split if mode == Mode.merged else sorted({*split, *histories.merged(piece, policy)})

    def _settle(self, piece: Batch, policy: Policy, several: dict[int, int]) -> None:
        """Counts buckets of several versions once, as what would be put for them, when the last of the
        versions that are asked for has come. `several`: how many are still to come, by name."""
        mine = [(i, name) for i, name in enumerate(_names(piece.main).tolist()) if name in several]
        if not mine:
            return
        self._add(met := piece.take([i for i, _ in mine]), BucketSet(met, policy).readings, -1)
        last = []
        for i, name in mine:
            several[name] -= 1
            if several[name] > 0:
                self._waiting.setdefault(name, []).append(piece.main[i])
            else:
                last.append(i)
        others = [it for i, name in mine if several[name] < 1 for it in self._waiting.pop(name, [])]
        histories = list(self._copies.histories.of(piece.take(last), policy, others).values()) if last else []
        for history, fold in zip(histories, folds([it.counting for it in histories]), strict=True):
            plan = plan_of(history, [], fold, self._options.how)
            if isinstance(plan, str):
                raise BucketwiseError(f"_id {extended_json(history.last.bucket.main.decode_id(0))}: {plan}")
            self._add(plan.final, readings_of([Version(plan.final, history.last.policy)]))
            self._report.bytes += sum(map(len, plan.aside))
            self._report.versions += len(plan.history.versions) - 1


def _names(documents: Docs) -> NDArray[np.int64]:
    """Returns a hash of the `_id` of each document, (n,)."""
    return np.array([hash(same_id(it)) for it in documents.raw_ids], dtype=np.int64)


def _several(names: NDArray[np.int64], known: NDArray[np.int64]) -> dict[int, int]:
    """Returns how often each of these names comes that comes more than once, or is known to have other
    versions."""
    values, counts = np.unique(names, return_counts=True)
    found = dict.fromkeys(known.tolist(), 1)
    found.update(zip(values[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
    return found
