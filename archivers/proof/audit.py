"""Audit: is every policy kept? Changes nothing; what isn't kept is a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NoReturn

from pymongo.database import Database

from archivers.context import VALUELESS, ArchiveReport
from archivers.format.archive import OfflineArchive
from archivers.format.keys import UNSIGNED, Keys
from archivers.moving.sweep import archive
from archivers.proof.findings import Finding, Severity
from archivers.proof.verify import verify
from archivers.reading.reader import ArchivedReader
from archivers.reading.slices import slice_reader
from archivers.records.deletions import deletions
from archivers.records.receipts import COLLECTION as RECEIPTS
from archivers.records.receipts import Receipts
from archivers.stores.base import ObjectStore
from archivers.units import Here, Opened, Units
from buckets.columns import Quarantined
from buckets.fields.selectors import extended_json
from buckets.fields.times import FIRST_MS, LAST_MS
from buckets.source import Source
from config.policies import Policy
from rollups import ttl
from rollups.answers.holes import longest_holes
from rollups.context import RunContext
from rollups.guarded import dry
from rollups.rolling.expiry import expire_summaries
from rollups.rolling.options import Archived, RollupOptions
from rollups.rolling.rollup import roll_up

Document = dict[str, Any]
#: What fell due less than this ago is not late: the next run takes it.
SLACK = timedelta(days=1)
MAX_QUARANTINED = MAX_HOLES = 100
#: So many are looked for in the archive; the next audit finds the others.
MAX_ORPHANS = 10_000


def audit(
    database: Database[Document],
    policy: Policy,
    store: ObjectStore | None,
    now: datetime,
    *,
    keys: Keys = UNSIGNED,
    units: Units | None = None,
    check: Callable[[], None],
    progress: Callable[[str, int], None],
) -> list[Finding]:
    """All findings of one policy. Reads every part of its archive, and what is live and due."""
    units = units or Here(Opened(database, store))
    auditor = _Audit(database, policy, store, now, keys, units, check, progress)
    return [
        *auditor.ttl(),
        *auditor.parts(),
        *auditor.summaries(),
        *auditor.holes(),
        *auditor.buckets(),
        *auditor.overflow(),
    ]


@dataclass(frozen=True)
class _Audit:
    database: Database[Document]
    policy: Policy
    store: ObjectStore | None
    now: datetime
    keys: Keys
    units: Units
    check: Callable[[], None]
    progress: Callable[[str, int], None]

    def _finding(self, code: str, place: str, message: str, severity: Severity = "error") -> Finding:
        return Finding(code, self.policy.name, place, severity, message)

    def ttl(self) -> Iterator[Finding]:
        for expiry in ttl.conflicts(Source(self.database, self.policy)):
            yield self._finding(
                "ttl-conflict",
                expiry.place,
                f"MongoDB deletes after {expiry.after} what is archived later: drop it, or make it longer",
            )

    def parts(self) -> Iterator[Finding]:
        report = verify(
            self.database,
            self.policy,
            self.store,
            keys=self.keys,
            since=None,
            until=None,
            check=self.check,
            progress=self.progress,
        )
        for bad in report.bad:
            yield self._finding(bad.code, bad.place, bad.message)
        for gap in deletions(Receipts(self.database, self.policy.name), kind="gap"):
            numbers = f"{gap['lost']['after'] + 1} to {gap['lost']['sequence']}"
            message = f"the receipts of deletes {numbers} were lost: this database was put back"
            yield self._finding("receipts-lost", RECEIPTS, message, "warning")
        if self.policy.archive is None or self.policy.archive.to != "offline" or self.store is None:
            return
        for key, _ in OfflineArchive(self.policy, self.store).unlisted():
            yield self._finding(
                "part-unlisted",
                f"{self.store.url}/{key}",
                "no manifest names this file: of a run cut off (the next one removes it), or put there",
            )

    def summaries(self) -> Iterator[Finding]:
        if self.policy.rollup is None:
            return
        archived = ArchivedReader(self.database, self.policy, self.store)
        policy = _settling_later(self.policy)
        reader = slice_reader(self.units, Opened(self.database, self.store), self.policy)
        report = roll_up(
            RunContext(self.database, policy, self.now, dry, self.check, self.progress),
            RollupOptions(whole=True, dry_run=True),
            Archived(reader, RECEIPTS, archived.span()),
        )
        targets: dict[str, str] = dict(self.policy.rollup.targets.items())
        for level, counts in report.counts.items():
            if counts.written:
                yield self._finding(
                    "not-rolled-up",
                    targets[level],
                    f"{counts.written} {level} summaries are missing or out of date: run "
                    "`bucketwise rollup`, with --since and --until for what is older than `recheck`",
                )
        if report.kept and self.policy.archive is not None and self.policy.archive.to != "none":
            yield self._finding(
                "readings-gone",
                self.policy.collection,
                f"{report.kept} summaries tell of readings neither live nor archived. If those were deleted "
                "on purpose, `bucketwise rollup` with --since and --until takes them out",
            )
        expired = expire_summaries(self.database, self.policy, self.now - SLACK, dry_run=True)
        for name, count in expired.items():
            if count:
                yield self._finding(
                    "summaries-past-retention",
                    targets[name],
                    f"{count} {name} summaries are past their `retain`: run `bucketwise run`",
                )

    def holes(self) -> Iterator[Finding]:
        if self.policy.max_hole is None:
            return
        found, more = longest_holes(self.database, self.policy, MAX_HOLES)
        for hole in found:
            yield self._finding("hole", hole.collection, hole.message(self.policy), "warning")
        if more:
            yield self._finding(
                "hole", self.policy.collection, f"{more} more, none of them longer", "warning"
            )

    def buckets(self) -> Iterator[Finding]:
        if self.policy.archive is None or self.policy.archive.to == "none":
            return
        report = self._due()
        if report.buckets:
            yield self._finding(
                "overdue",
                self.policy.collection,
                f"{report.buckets} buckets expired over a day ago and are not archived: run `bucketwise run`",
            )
        for it in report.valueless[:1]:
            place = f"{self.policy.collection}, {it.field}"
            series = extended_json(dict(zip(self.policy.series_names, it.series, strict=True)))
            day = f"{it.date} of {series}"
            message = f"{report.reasons[VALUELESS]} expired buckets stay: {VALUELESS}. Here is {day}"
            yield self._finding("valueless", place, message)
        yield from self._quarantined(report.quarantined)

    def overflow(self) -> Iterator[Finding]:
        """Overflow whose bucket is not there, and that no archive holds: no summary tells of it. (Where a
        bucket was restored elsewhere, its overflow came back to where it was.)"""
        if self.policy.overflow is None:
            return
        orphans: dict[bytes, object] = {}
        for found in Source(self.database, self.policy).orphans():
            if len(orphans) < MAX_ORPHANS:
                orphans |= {sha256(found[i]).digest(): found.decode_id(i) for i in range(len(found))}
        if orphans:
            reader = ArchivedReader(self.database, self.policy, self.store)
            for batch in reader.batches(FIRST_MS, LAST_MS + 1):
                self.check()
                for document in batch.extra:
                    orphans.pop(sha256(document).digest(), None)
        if orphans:
            yield self._finding(
                "overflow-orphaned",
                f"{self.policy.overflow.collection}, _id {extended_json(next(iter(orphans.values())))}",
                f"{len(orphans)} overflow documents belong to no live bucket (here is the first): no summary "
                f"and no archive has them. Restore the buckets into {self.policy.collection}, or remove them",
            )

    def _due(self) -> ArchiveReport:
        """What an archive run would have taken a day ago, whatever is rolled up."""
        return archive(
            self.database,
            self.policy,
            self.now - SLACK,
            store=self.store,
            keys=self.keys.lenient(),  # what is not signed is found above
            fence=0,
            knows_run=_never,
            guard=_never,
            through=None,
            rolled_up=_always,
            check=self.check,
            dry_run=True,
            progress=self.progress,
        )

    def _quarantined(self, found: list[Quarantined]) -> Iterator[Finding]:
        for bucket in found[:MAX_QUARANTINED]:
            yield self._finding(
                "quarantined",
                f"{self.policy.collection}, _id {extended_json(bucket.id)}",
                f"{bucket.field}: {bucket.reason}",
            )
        if len(found) > MAX_QUARANTINED:
            yield self._finding("quarantined", self.policy.collection, f"{len(found) - MAX_QUARANTINED} more")


def _settling_later(policy: Policy) -> Policy:
    """Windows that were over for less than the slack are not due."""
    assert policy.rollup is not None
    rollup = policy.rollup.model_copy(update={"settle": policy.rollup.settle + SLACK})
    return policy.model_copy(update={"rollup": rollup})


def _never(*_asked: object) -> NoReturn:
    raise AssertionError("an audit deletes nothing")


def _always(_start_ms: int, _end_ms: int, *, anew: bool = False) -> bool:
    del anew
    return True
