"""Audit: is every policy kept? Changes nothing; what isn't kept is a finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from bucketwise.archivers.context import VALUELESS, ArchiveContext, ArchiveReport, LocalExecutor
from bucketwise.archivers.expiring.offline import unfounded_tombstones
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.names import day, day_number
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.reading.archived import ArchivedReader, archived_reader
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.upkeep import recompute
from bucketwise.archivers.verifying.report import IntactPiece, Piece, VerifyReport
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_date, as_ms, as_text
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration
from bucketwise.jobs.core.job import Severity
from bucketwise.jobs.core.turn import Finding
from bucketwise.rollups.answers import longest_holes
from bucketwise.rollups.calendar.due import Spans, over_before
from bucketwise.rollups.calendar.levels import Span, levels_of
from bucketwise.rollups.rolling import outlived
from bucketwise.rollups.rolling.expiry import count_overdue
from bucketwise.rollups.standing import Removed, removed_summaries

#: With fewer turns, weekly audits would always take the same ones, or need years to take all.
_FEWEST = 11


class Rotation(NamedTuple):
    """The number of turns, and how many of them one audit takes."""

    number: int
    at_once: int

    @property
    def days(self) -> int:
        """Returns within how many days nightly audits reach all parts."""
        return -(-self.number // self.at_once)

    def has(self, day: int, today: int) -> bool:
        """Returns whether an audit today reads what begins on a day; both since 1970, UTC."""
        return (day - today * self.at_once) % self.number < self.at_once

    def has_piece(self, piece: Piece, now: datetime) -> bool:
        """Returns whether an audit at an instant reads a piece, by the day on which it begins."""
        return self.has(day_number(piece.first), as_ms(now) // DAY_MS)


ALL = Rotation(1, 1)


def rotation_of(share: float | None) -> Rotation:
    """Returns the turns that read about this share each time; None: all at once."""
    if share is None or share >= 1:
        return ALL
    number = next(it for it in count(max(_FEWEST, round(1 / share))) if _is_prime(it))
    return Rotation(number, max(1, round(number * share)))


class Sample(NamedTuple):
    """The part of an archive that an audit reads. `unread`: spans of days on which something is archived, of
    which nothing is read."""

    pieces: Sequence[Piece]
    unread: Sequence[Span]  # milliseconds


def sample(pieces: Iterable[Piece], rotation: Rotation, now: datetime) -> Sample:
    """Returns the pieces that have their turn now, by the day on which each begins."""
    everything = list(pieces)
    read = [it for it in everything if rotation.has_piece(it, now)]
    days = Spans(map(_days_of, read))
    archived = Spans(map(_days_of, everything)).spans
    return Sample(read, [part for span in archived for part in days.gaps(*span)])


def _days_of(piece: Piece) -> Span:
    return day_number(piece.first) * DAY_MS, (day_number(piece.last) + 1) * DAY_MS


def _is_prime(number: int) -> bool:
    return all(number % it for it in range(2, int(number**0.5) + 1))


#: What fell due less than this ago is not overdue: the next run takes it.
SLACK = timedelta(days=1)
MAX_QUARANTINED = MAX_HOLES = 100
#: Buckets that are looked for in the archive; the next audit finds the others.
MAX_ORPHANS = 10_000


@dataclass(frozen=True)
class AuditReport:
    """The findings of an audit, and how much of an offline archive it read. `days`: the number of daily
    audits that together read all. `halted`: damage kept a check from finding all that it looks for."""

    findings: list[Finding]
    halted: bool = False
    parts: int = 0
    parts_read: int = 0
    days: int = 1


def audit_policy(
    context: ArchiveContext,
    readers: Sequence[Policy] = (),
    *,
    full: bool = False,
    drilled_every: timedelta | None = None,
) -> AuditReport:
    """Audits one policy. Checks what is live and due, all records of its archive, and that every part is
    there. Reads the parts that have their turn, or all, once each: the documents must be those that were
    archived, and the summaries must equal a recomputation from archived and live readings. `readers`: other
    policies that roll up the collection. `drilled_every`: how long a day may go without a drill; None:
    forever."""
    auditor = _Audit(context, readers, rotation_of(None if full else context.policy.audit.sample))
    found = [*auditor.ttl(), *auditor.records()]
    # Without a manifest nothing of its commit can be compared; that it is missing is a finding.
    missing = {it.place for it in found if "/meta/manifests/" in it.place}
    damage = VerifyReport()
    halted = auditor.is_gone
    checks = (auditor.summaries, auditor.holes, auditor.buckets, auditor.overflow, auditor.ending)
    for more in () if halted else checks:
        try:
            found += more()
        except DamagedError as error:
            damage.add(error)
            halted |= error.place not in missing
    found += [*auditor.parts(), *auditor.drills(drilled_every)]
    known = {it.place for it in found}
    found += [it for it in auditor.bad(damage) if it.place not in known]
    return auditor.report(found, halted=halted)


@dataclass
class _Audit:
    """An audit in progress. The archive is read for the summaries first; then the parts in the sample that
    they did not need."""

    context: ArchiveContext
    readers: Sequence[Policy]
    rotation: Rotation
    intact: list[IntactPiece] = field(default_factory=list)  # of which all files are there
    read: set[str] = field(default_factory=set)  # those of them that were read whole
    is_gone: bool = False  # the archive

    @property
    def policy(self) -> Policy:
        return self.context.policy

    def report(self, found: list[Finding], *, halted: bool) -> AuditReport:
        parts = sum(it.parts for it in self.intact)
        read = sum(it.parts for it in self.intact if it.piece.name in self.read)
        return AuditReport(found, halted, parts, read, self.rotation.days)

    @cached_property
    def sample(self) -> Sample:
        """Returns what of the archive is read."""
        return sample((it.piece for it in self.intact), self.rotation, self.context.now)

    @cached_property
    def archived(self) -> ArchivedReader:
        """Returns what reads the policy's archive."""
        return archived_reader(self.context.connections, self.policy)

    def _finding(self, code: str, place: str, message: str, severity: Severity = "error") -> Finding:
        return Finding(code, self.policy.name, place, severity, message)

    def ttl(self) -> Iterator[Finding]:
        for expiry in outlived.conflicts(self.context.source):
            yield self._finding(
                "ttl-conflict",
                expiry.place,
                f"MongoDB deletes after {expiry.after} what is archived later: drop it, or make it longer",
            )

    def records(self) -> Iterator[Finding]:
        archive, has_turn = archive_of(self.context), partial(self.rotation.has_piece, now=self.context.now)
        report, self.intact, unlisted, self.is_gone, baseline = archive.verify_records(has_turn)
        yield from self.bad(report)
        if baseline is not None:
            message = f"what must stay of this archive is counted from what it held at {as_text(baseline)} on"
            yield self._finding("archive-baseline", archive.place, message, "ok")
        for gap in self.context.receipts.gaps():
            numbers = f"{gap['lost']['after'] + 1} to {gap['lost']['sequence']}"
            message = (
                f"the receipts of deletes {numbers} were lost: this database was restored to an older state"
            )
            yield self._finding("receipts-lost", RECEIPTS, message, "warning")
        for key in unlisted:
            assert self.context.store is not None
            yield self._finding(
                "part-unlisted",
                f"{self.context.store.url}/{key}",
                "no manifest names this file: an interrupted run left it, and the next run removes it",
            )

    def parts(self) -> Iterator[Finding]:
        """Reads the pieces of the sample that were not read for the summaries."""
        pieces = [it for it in self.sample.pieces if it.name not in self.read]
        report, read = archive_of(self.context).verify_pieces(pieces)
        self.read |= {it.piece.name for it in read}
        yield from self.bad(report)

    def drills(self, every: timedelta | None) -> Iterator[Finding]:
        """Yields days without a recent drill, except what was committed within that time."""
        if every is None or self.is_gone:
            return
        archive = archive_of(self.context)
        days = archive.drilled(self.context.now - every)
        if not days:
            return
        first = datetime.min.replace(tzinfo=UTC)
        _, number = min((drilled or first, number) for number, drilled in days.items())
        drilled = days[number]
        last = "never" if drilled is None else f"last at {as_text(drilled)}"
        message = (
            f"archived days that no drill has proven for {format_duration(every)}: {len(days):,}; the one "
            f"that waits longest is {day(number * DAY_MS)}, {last}. Run `bucketwise drill`, or set "
            "drill.schedule"
        )
        yield self._finding("not-drilled", archive.place, message, "warning")

    def bad(self, report: VerifyReport) -> Iterator[Finding]:
        for bad in report.bad:
            yield self._finding(bad.code, bad.place, bad.message)

    def summaries(self) -> Iterator[Finding]:
        if self.policy.rollup is None:
            return
        context, archived = self.context, self.archived
        later = replace(context, policy=_settling_later(self.policy))
        report = recompute(later, archived, list(self._without_live(self.sample.unread)))
        self.read |= report.commits
        targets: dict[str, str] = dict(self.policy.rollup.targets.items())
        for level, counts in report.counts.items():
            if counts.written:
                yield self._finding(
                    "not-rolled-up",
                    targets[level],
                    f"{counts.written} {level} summaries are missing or out of date: run "
                    "`bucketwise rollup`, with --since and --until for what is older than `recheck`",
                )
        others = context.policy_records.archives_besides
        if report.kept and self.policy.archiving is not None and not others(self.policy):
            yield self._finding(
                "readings-gone",
                self.policy.collection,
                f"{report.kept} summaries count readings that are neither live nor archived: they are the "
                "only witnesses of these, and no roll-up removes them",
            )
        if report.outdated:
            what = "summaries stay as earlier settings made them, since their readings are gone"
            place = self.policy.collection
            yield self._finding("summaries-outdated", place, f"{report.outdated} {what}", "warning")
        for it in removed_summaries(context.database, self.policy, levels_of(self.policy)):
            yield self._removed(it)
        for name, overdue in count_overdue(context, SLACK).items():
            if overdue:
                yield self._finding(
                    "summaries-past-retention",
                    targets[name],
                    f"{overdue} {name} summaries are past their `retain`, and no run has handled them for a "
                    "day: run `bucketwise run`",
                )

    def _removed(self, it: Removed) -> Finding:
        month = f"of {as_date(it.span[0]):%Y-%m}"
        removed = f"{it.summaries:,} {it.level.name} summaries {month} were removed by somebody"
        if it.is_lost:
            message = f"{removed}, and no reading gives them again"
            return self._finding("summaries-lost", it.level.collection, message, "warning")
        message = f"{removed}: `bucketwise run` makes them again, as far as readings are live or archived"
        return self._finding("summaries-missing", it.level.collection, message)

    def _without_live(self, unread: Iterable[Span]) -> Iterator[Span]:
        """Yields the parts of these days on which nothing is live, since live readings may be late. Where
        originals are never deleted, all are live, and the days are yielded whole."""
        for start, end in unread:
            while start < end:
                live = None if self.context.kept else self.context.source.earliest(start)
                stop = end if live is None else min(end, live // DAY_MS * DAY_MS)
                if start < stop:
                    yield start, stop
                start = stop + DAY_MS

    def holes(self) -> Iterator[Finding]:
        if self.policy.max_hole is None:
            return
        found, more = longest_holes(self.context.database, self.policy, MAX_HOLES)
        for hole in found:
            yield self._finding("hole", hole.collection, hole.message(self.policy), "warning")
        if more:
            yield self._finding(
                "hole", self.policy.collection, f"{more} more, none of them longer", "warning"
            )

    def buckets(self) -> Iterator[Finding]:
        if self.policy.archiving is None:
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
            message = f"{report.reasons[VALUELESS]} expired buckets stay: {VALUELESS}. An example: {day}"
            yield self._finding("valueless", place, message)
        yield from self._quarantined(report.quarantined)

    def ending(self) -> Iterator[Finding]:
        """Yields tombstones that no receipt supports, and what should have got one, or been removed, a day
        ago."""
        for error in unfounded_tombstones(self.context.receipts, self.context.keys):
            yield self._finding(error.code, error.place, str(error))
        earlier = replace(self.context, now=self.context.now - SLACK, keys=self.context.keys.lenient())
        report = archive_of(earlier).plan_expiry()
        if late := report.tombstoned.buckets + report.expired.buckets:
            yield self._finding(
                "archive-past-retention",
                self.policy.collection,
                f"{late} archived buckets are past `retain.archive`, and no run has handled them for a day: "
                "run `bucketwise run`",
            )

    def overflow(self) -> Iterator[Finding]:
        """Yields overflow whose bucket is missing, and that no archive holds: it is in no summary. (Where a
        bucket was restored elsewhere, its overflow came back to where it was.)"""
        if self.policy.overflow is None:
            return
        orphans: dict[bytes, object] = {}
        for some in self.context.source.orphans():
            if len(orphans) < MAX_ORPHANS:
                orphans |= {sha256(some[i]).digest(): some.decode_id(i) for i in range(len(some))}
        if orphans:
            for found in self.archived.readings(RowFilter(FIRST_MS, LAST_MS + 1), is_by_rows=False):
                self.context.check()
                for document in found.extra if isinstance(found, Batch) else ():
                    orphans.pop(sha256(document).digest(), None)
        if orphans:
            yield self._finding(
                "overflow-orphaned",
                f"{self.policy.overflow.collection}, _id {extended_json(next(iter(orphans.values())))}",
                f"{len(orphans)} overflow documents belong to no live bucket (here is the first): no summary "
                f"and no archive has them. Restore the buckets into {self.policy.collection}, or remove them",
            )

    def _due(self) -> ArchiveReport:
        """Returns what an archive run would have moved a day ago, with all rolled up that was over then."""
        context = replace(
            self.context,
            now=self.context.now - SLACK,
            keys=self.context.keys.lenient(),  # missing signatures are found above
            executor=LocalExecutor(self.context.connections, memory=self.context.executor.memory),
        )
        through = over_before((self.policy, *self.readers), context.now)
        return archive_of(context).plan(ArchiveOptions(through=through))

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
    """Returns the policy with a longer settle: windows that were over for less than the slack are not due."""
    assert policy.rollup is not None
    rollup = policy.rollup.model_copy(update={"settle": policy.rollup.settle + SLACK})
    return policy.model_copy(update={"rollup": rollup})
