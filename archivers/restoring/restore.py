"""Restore: archived buckets come back as they were, byte for byte, into any collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from pymongo.client_session import ClientSession
from pymongo.database import Database

from archivers.format.archive import OfflineArchive
from archivers.moving.online import archive_collections, archived_source
from archivers.records.pins import Pins
from archivers.records.receipts import Receipts
from archivers.restoring.put import Indices, put, put_measurements, see
from archivers.restoring.restored import Books
from archivers.restoring.settle import Settling
from archivers.restoring.standing import MERGED, How, Mode, Plan, Target
from archivers.restoring.wanted import Asked, Found, Wanted
from archivers.stores.base import ObjectStore
from archivers.versions.history import Histories, OfflineHistories, OnlineHistories, Version
from archivers.writes.delete import chunks
from buckets.bson.prefetch import ahead
from buckets.bson.raw import Batch
from buckets.decoding.decode import Lot
from buckets.fields.selectors import check_asked, extended_json
from buckets.fields.times import FIRST_MS, LAST_MS, as_ms
from buckets.models import timeseries
from config.errors import BucketwiseError, UsageError
from config.policies import Policy
from rollups.guarded import Guard
from rollups.units import at_once, result_of

Document = dict[str, Any]


@dataclass
class RestoreReport:
    """What is in the target now, whether this run put it there or an earlier one."""

    buckets: int = 0
    readings: int = 0
    overflow: int = 0  # overflow documents
    pinned: int = 0  # of the buckets
    versions: int = 0  # older ones of these buckets: merged, left out, or put elsewhere


def restore(
    database: Database[Document],
    policy: Policy,
    store: ObjectStore | None,
    now: datetime,
    *,
    since: datetime | None,
    until: datetime | None,
    series: Mapping[str, str],
    to: str,
    how: How = MERGED,
    pinned_until: datetime | None,
    guard: Guard,
    check: Callable[[], None],
    progress: Callable[[str, int], None],
) -> RestoreReport:
    """Bring back every bucket with a reading in [since, until) of the series asked for.

    Into the source they are pinned: no run deletes them, or archives them again, before `pinned_until`; with
    None, before they are released.

    Overflow documents go back into the policy's overflow collection. Several versions of a bucket become one,
    as `how` says. What is there already and equal stays; a document of the same `_id` that the archive does
    not hold is never written over. Raises UsageError for a target that won't do, BucketwiseError where
    documents are in the way, HaltedError where the archive is not what it should be.
    """
    _check_request(database, policy, series, to, how)
    start = FIRST_MS if since is None else as_ms(since)
    end = LAST_MS + 1 if until is None else as_ms(until)
    books = None
    if to == policy.collection:
        books = Books(Receipts(database, policy.name), Pins(database, policy, now), pinned_until, how)
    target = Target(database, policy, to, guard, how, books.settled if books else _note_no_plans)
    asked = Asked(policy, start, end, series)
    restoring = _Restoring(target, store, asked, check, progress)
    found = _archived(database, policy, store, start, end, to, books)
    with ThreadPoolExecutor(1, "bucketwise-reader") as reader:
        restoring.bring(ahead(map(asked.of, found), lambda: True), reader)
    return restoring.finished()


class _Restoring:
    """One restore at work."""

    def __init__(
        self,
        target: Target,
        store: ObjectStore | None,
        asked: Asked,
        check: Callable[[], None],
        progress: Callable[[str, int], None],
    ) -> None:
        self._target, self._check, self._progress = target, check, progress
        self._report = RestoreReport()
        self._asked = asked
        self._passed: set[str] = set()  # the commits whose buckets were put
        self._seen: Future[None] = at_once(lambda: None)  # of the piece before: it is read back meanwhile
        histories = partial(_histories, target, store)
        self._settling = Settling(target, histories, self._were_counted)

    def bring(self, found: Iterable[Wanted], reader: Executor) -> None:
        for wanted in found:
            at = 0
            for piece in chunks(wanted.batch):
                self._check()
                here = wanted.indices[at : at + len(piece)]
                at += len(piece)
                self._bring(wanted, piece, here, reader)
                self._progress("restored buckets", len(piece))
            self._report.buckets += len(wanted.batch)
            self._report.readings += wanted.readings
            self._report.overflow += len(wanted.batch.extra)
            if wanted.commit is not None:
                self._passed.add(wanted.commit)
            if self._settling.is_full:
                self._settle()
        self._settle()

    def _bring(self, wanted: Wanted, piece: Batch, here: Indices, reader: Executor) -> None:
        target = self._target
        if target.policy.model == "timeseries":
            put_measurements(target.database, target.policy, target.to, piece.main)
            return
        met = self._settling.met(piece)
        held = self._held(piece)
        self._uncount(piece, sorted({*met, *held}), wanted.policy)
        self._settling.add(piece.take(np.setdiff1d(held, met).astype(np.int64)))
        new = np.setdiff1d(np.arange(len(piece)), [*met, *held])
        piece, here = piece.take(new), here[new]
        done = put(target.database, target.policy, target.to, piece, target.guard, here, wanted.note)
        result_of(self._seen, self._check)
        self._seen = reader.submit(see, target.database, done)
        blocked = sorted(done.blocked)
        self._uncount(piece, blocked, wanted.policy)
        self._settling.add(piece.take(np.array(blocked, dtype=np.int64)))
        self._report.pinned += len(piece) - len(blocked) if target.is_source else 0

    def _held(self, piece: Batch) -> list[int]:
        """Buckets of which there are other versions, for all that is in their way."""
        histories = self._settling.histories
        held = histories.parted(piece) if self._asked.is_part else []
        return held if self._target.how.mode == Mode.merged else sorted({*held, *histories.merged(piece)})

    def _uncount(self, piece: Batch, leaving: list[int], policy: Policy) -> None:
        """They are counted where they are settled."""
        if leaving:
            lot = Lot(piece.take(np.array(leaving, dtype=np.int64)), policy)
            self._report.buckets -= len(lot)
            self._report.readings -= lot.readings
            self._report.overflow -= len(lot.batch.extra)

    def _settle(self) -> None:
        result_of(self._seen, self._check)
        self._settling.settle(self._check)

    def _were_counted(self, versions: Sequence[Version]) -> list[bool]:
        """Which of the versions that stand in the target were put, or found there, by this run."""
        asked = self._asked.holds(versions)
        passed = [it.commit is not None and it.commit.commit in self._passed for it in versions]
        return [is_asked and has_passed for is_asked, has_passed in zip(asked, passed, strict=True)]

    def finished(self) -> RestoreReport:
        """Raises BucketwiseError where documents were in the way."""
        report, settled, blocked = self._report, self._settling.report, self._settling.blocked
        for count in fields(settled):
            setattr(report, count.name, getattr(report, count.name) + getattr(settled, count.name))
        if blocked.count:
            reason, first = next(iter(blocked.first.items()))
            raise BucketwiseError(
                f"--to {self._target.to}: {blocked.count} of {report.buckets} buckets were not restored. The "
                f"first has _id {extended_json(first)}: {reason}"
            )
        return report


def _check_request(
    database: Database[Document], policy: Policy, series: Mapping[str, str], to: str, how: How
) -> None:
    check_asked(policy, series)
    if policy.archive is None or policy.archive.to == "none":
        raise UsageError(f"policy {policy.name} archives nothing, so there is nothing to restore")
    _check_collection(database, policy, "--to", to)
    _check_versions(policy, to, how)
    if how.aside is not None:
        _check_collection(database, policy, "--versions-to", how.aside)


def _check_versions(policy: Policy, to: str, how: How) -> None:
    if how.aside is not None and how.mode != Mode.all:
        raise UsageError(f"--versions-to {how.aside}: older versions are put there with --versions all alone")
    if how.aside == policy.collection:
        raise UsageError(f"--versions-to {how.aside}: older versions would be live there; name another one")
    if to != policy.collection or how.mode == Mode.merged:
        return
    assert policy.archive is not None
    if policy.archive.to == "online":
        raise UsageError(
            f"--versions {how.mode}: the online archive holds the versions of a bucket merged, and {to} can "
            "only have them so. Leave --versions out, or restore into a new collection"
        )
    if how.mode == Mode.all and how.aside is None:
        raise UsageError(
            f"--versions all: in {to} the older versions would be live buckets of their own. Name another "
            "collection for them: --versions-to"
        )


def _check_collection(database: Database[Document], policy: Policy, option: str, to: str) -> None:
    assert policy.archive is not None
    taken: list[str | None] = list(policy.rollup.targets.values()) if policy.rollup else []
    if policy.archive.to == "online":
        taken += archive_collections(policy)
    if policy.overflow is not None:
        taken.append(policy.overflow.collection)
    if to in taken or to.startswith(("system.", "bucketwise_")) or not to or "$" in to:
        mend = "name the source or a new collection"
        raise UsageError(f"{option} {to}: buckets can't be restored there; {mend}")
    found = next(iter(database.list_collections(filter={"name": to})), None)
    wanted = "timeseries" if policy.model == "timeseries" else "collection"
    if found is not None and found["type"] != wanted:
        needed = "a native time-series collection" if wanted == "timeseries" else "an ordinary collection"
        raise UsageError(f"{option} {to}: it is a {found['type']}; this policy's buckets need {needed}")


def _archived(
    database: Database[Document],
    policy: Policy,
    store: ObjectStore | None,
    start: int,
    end: int,
    to: str,
    books: Books | None,
) -> Iterator[Found]:
    """All that may hold something of the range."""
    assert policy.archive is not None
    if policy.archive.to == "online":
        for batch in archived_source(database, policy).batches(start, end):
            note = partial(books.online, batch) if books else _note_nothing
            yield Found(Lot(batch, policy), note)
        return
    assert store is not None
    archive = OfflineArchive(policy, store, Receipts(database, policy.name).seal)
    for manifest in archive.manifests(start, end):
        if manifest.timeseries is not None and timeseries.made_with(database, to) is None:
            database.create_collection(to, timeseries=manifest.timeseries)
        batch = archive.load(manifest)
        note = partial(books.offline, manifest, batch) if books else _note_nothing
        span = as_ms(manifest.first), as_ms(manifest.last)
        yield Found(Lot(batch, manifest.archived_policy), note, span, manifest.readings, manifest.commit)


def _note_nothing(_chosen: Indices, _session: ClientSession) -> None:
    pass


def _note_no_plans(_plans: list[Plan], _session: ClientSession) -> None:
    pass


def _histories(target: Target, store: ObjectStore | None) -> Histories:
    database, policy = target.database, target.policy
    if store is None or (policy.archive is not None and policy.archive.to == "online"):
        return OnlineHistories(database, policy, archived_source(database, policy))
    return OfflineHistories(OfflineArchive(policy, store, Receipts(database, policy.name).seal))
