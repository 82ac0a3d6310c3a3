"""The steps of the verbs: each calls the layers below and says what was done in the words of the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from archivers.context import ArchiveReport
from archivers.format.keys import Keys
from archivers.moving.sweep import archive, check_archive, recover
from archivers.proof.audit import audit
from archivers.proof.checks import check
from archivers.proof.sign import sign
from archivers.proof.verify import verify
from archivers.reading.reader import ArchivedReader
from archivers.reading.slices import slice_reader
from archivers.records.deletions import legible
from archivers.records.pins import COLLECTION as PINS
from archivers.records.pins import unpin
from archivers.records.receipts import COLLECTION as RECEIPTS
from archivers.records.receipts import Receipts
from archivers.restoring.restore import restore
from archivers.restoring.standing import How
from archivers.units import Here, Opened, Units
from buckets.columns import Quarantined
from buckets.fields.times import FIRST_MS, as_date
from config.errors import HaltedError
from config.policies import Policy
from jobs import clock
from jobs.running import lease, ledger
from jobs.running.fit import archives, fit_body, misfits_of, said, see_fit, stop_for, valueless
from jobs.running.runner import Done, Step, Work
from rollups import progress as rollup_progress
from rollups.calendar.due import Calendar
from rollups.calendar.levels import bases, levels_of
from rollups.changes.late import Late, Watch
from rollups.context import RunContext
from rollups.progress import rolled_up_through
from rollups.rolling import quarantine
from rollups.rolling.expiry import expire_summaries
from rollups.rolling.options import Archived, RollupOptions, RollupReport
from rollups.rolling.rollup import roll_up

Body = dict[str, Any]
LEFT_SOMETHING, NOT_KEPT, FAILED = 3, 4, 1
#: A write takes no longer; what one left unfinished before that is of no use.
_ABANDONED = timedelta(days=1)
#: What a run does in the suite's own collections. Only a restore puts pins.
OWN_COLLECTIONS = {
    lease.COLLECTION: ("find", "insert", "update"),
    ledger.COLLECTION: ("find", "insert", "update", "createIndex"),
    rollup_progress.COLLECTION: ("find", "insert", "update"),
    quarantine.COLLECTION: ("find", "insert", "update", "remove"),
    RECEIPTS: ("find", "insert", "update", "createIndex"),
    PINS: ("find", "update", "remove"),
}


def _prepare(work: Work, keys: Keys | None = None) -> None:
    """Before summaries are made from it: the archive is all there, and nothing half-done is in it."""
    check_archive(work.database, work.policy, work.store)
    if work.dry_run:
        return
    if work.store is not None:
        # By the clock that is behind: a write that another machine is at must not pass for an old one.
        present = min(clock.current(), work.taken_at)
        work.store.clean_temporaries(present - _ABANDONED)
    recover(
        work.database,
        work.policy,
        work.now,
        store=work.store,
        keys=keys or work.keys,
        fence=work.fence,
        knows_run=_knows_run(work),
        guard=work.guard,
        check=work.check,
    )


def _knows_run(work: Work) -> Callable[[int, datetime], bool]:
    return partial(ledger.Ledger(work.database).knows, work.policy.name)


def _roll_up(work: Work) -> Done:
    _prepare(work)
    report = _roll_up_range(
        work, work.since, work.until, work.units, dry_run=work.dry_run, progress=work.progress
    )
    empty = report.empty_fields(work.policy)
    body = {
        **_by_level(report),
        "readings": report.readings,
        "kept": report.kept,
        "empty_fields": empty,
        **_late_body(report.late),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }
    fit = None if archives(work) or work.policy.rollup is None else see_fit(work)
    is_left = report.quarantined_total or empty or misfits_of(fit)
    return Done(body | said(fit), LEFT_SOMETHING if is_left else 0)


def _by_level(report: RollupReport) -> Body:
    """What became of the summaries of each level; hours and days are always told."""
    counts = {"hourly": report.hourly, "daily": report.daily, **report.counts}
    return {level: {"written": it.written, "unchanged": it.unchanged} for level, it in counts.items()}


def _late_body(late: Late | None) -> Body:
    """How late readings were looked for; nothing where a range was asked for."""
    if late is None:
        return {}
    return {"late": {"mode": late.mode, "events": late.events, "reason": late.reason}}


def _roll_up_range(
    work: Work,
    since: datetime | None,
    until: datetime | None,
    units: Units,
    *,
    dry_run: bool,
    progress: Callable[[str, int], None],
) -> RollupReport:
    archived = ArchivedReader(work.database, work.policy, work.store)
    opened = Opened(work.database, work.store)
    return roll_up(
        RunContext(work.database, work.policy, work.now, work.guard, work.check, progress),
        RollupOptions(since, until, is_cleared=work.is_archived_by_another, dry_run=dry_run),
        Archived(slice_reader(units, opened, work.policy), RECEIPTS, archived.span(), archived.shadowed),
    )


def _archive(work: Work) -> Done:
    if work.policy.archive is None:
        return Done(_archive_body(ArchiveReport("none"), work.policy, 0))
    check_archive(work.database, work.policy, work.store)
    fit = see_fit(work) if archives(work) else None
    stop_for(fit, work.policy)
    mender = _Mender(work)
    report = archive(
        work.database,
        work.policy,
        work.now,
        store=work.store,
        keys=work.keys,
        fence=work.fence,
        knows_run=_knows_run(work),
        guard=work.guard,
        through=_through(work),
        rolled_up=mender.bring_up_to_date,
        since=work.since,
        until=work.until,
        check=work.check,
        dry_run=work.dry_run,
        progress=work.progress,
        units=work.units,
    )
    stays = bool(report.quarantined or report.changed or report.valueless)
    body = _archive_body(report, work.policy, mender.mended) | said(fit)
    return Done(body, LEFT_SOMETHING if stays else 0)


class _Mender:
    """Brings windows up to date before their buckets go: late readings may have come since the roll-up."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._watch = Watch(work.database, work.policy, RECEIPTS)
        self._readers = [
            Watch(work.database, reader, RECEIPTS, dry_run=work.dry_run) for reader in work.readers
        ]
        self.mended = 0

    def bring_up_to_date(self, start_ms: int, end_ms: int, *, anew: bool = False) -> bool:
        """Whether every summary of what lies in the range is now what it should be. Those of other policies
        are theirs to mend: until they have, the buckets stay. `anew`: even if nothing tells of a change."""
        work = self._work
        if any(it.has_changed(start_ms, end_ms, work.check, may_have=False) for it in self._readers):
            return False
        if work.dry_run:
            return True
        if anew or self._watch.has_changed(start_ms, end_ms, work.check):
            if self._watch.can_tell and not anew:  # all that has changed: it may have been elsewhere before
                since = until = None
            else:
                since, until = as_date(start_ms), as_date(end_ms)
            here = Here(Opened(work.database, work.store))  # most often a few windows
            report = _roll_up_range(work, since, until, here, dry_run=False, progress=_silent)
            self.mended += report.written
            self._watch = Watch(work.database, work.policy, RECEIPTS)
        return True


def _silent(_what: str, _count: int) -> None:
    """What is mended on the way counts as archiving."""


def _through(work: Work) -> int | None:
    """Up to where readings may be archived (milliseconds); None: no policy rolls them up."""
    found = [_through_of(work, policy) for policy in (work.policy, *work.readers)]
    return min((through for through in found if through is not None), default=None)


def _through_of(work: Work, policy: Policy) -> int | None:
    if not levels_of(policy):
        return None
    if work.dry_run and ROLLUP.name in work.steps and policy is work.policy and policy.rollup is not None:
        # A plan of both: as far as the roll-up before would have come.
        calendar = Calendar(policy, policy.rollup, work.now)
        return min(level.through(calendar.due_end) - level.reach for level in bases(calendar.levels))
    through = rolled_up_through(work.database, policy)
    return FIRST_MS if through is None else through


def _archive_body(report: ArchiveReport, policy: Policy, mended: int) -> Body:
    return {
        "to": report.to,
        "buckets": report.buckets,
        "readings": report.readings,
        "parts": report.parts,
        "bytes": report.bytes,
        "deleted": report.deleted,
        "left": report.left,
        "reasons": [{"reason": reason, "count": count} for reason, count in report.reasons.items()],
        "summaries": mended,
        "valueless": valueless(report, policy),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }


def quarantine_body(found: list[Quarantined], total: int) -> Body:
    named = [{"id": it.id, "field": it.field, "reason": it.reason} for it in found]
    return {"quarantined": total, "quarantine": named}


def _expire(work: Work) -> Done:
    gone = expire_summaries(work.database, work.policy, work.now, dry_run=work.dry_run)
    return Done({"hourly": 0, "daily": 0, **gone})


def _verify(work: Work) -> Done:
    report = verify(
        work.database,
        work.policy,
        work.store,
        keys=work.keys,
        since=work.since,
        until=work.until,
        check=work.check,
        progress=work.progress,
    )
    damage = [{"code": it.code, "place": it.place, "message": it.message} for it in report.bad]
    body = {"parts": report.parts, "readings": report.readings, "bad": len(damage), "damage": damage}
    return Done(body, HaltedError.exit_code if damage else 0)


def _sign(work: Work) -> Done:
    _prepare(work, work.keys.lenient())
    report = sign(work.database, work.policy, work.store, work.keys, check=work.check, progress=work.progress)
    return Done({"key": work.keys.first, "manifests": report.manifests, "receipts": report.receipts})


def _receipts(work: Work) -> Done:
    receipts = Receipts(work.database, work.policy.name)
    return Done({"deletes": list(legible(receipts, work.since, work.until)), "policies": receipts.policies()})


def restore_step(to: str, series: Mapping[str, str], how: How, pinned_until: datetime | None) -> Step:
    def do(work: Work) -> Done:
        report = restore(
            work.database,
            work.policy,
            work.store,
            work.now,
            since=work.since,
            until=work.until,
            series=series,
            to=to,
            how=how,
            pinned_until=pinned_until,
            guard=work.guard,
            check=work.check,
            progress=work.progress,
        )
        counts = {"buckets": report.buckets, "readings": report.readings, "overflow": report.overflow}
        pinned = {"pinned": report.pinned, "pinned_until": pinned_until if report.pinned else None}
        return Done({"to": to, **counts, "versions": report.versions, **pinned})

    return Step("restore", do, by_present=pinned_until is not None)


def _unpin(work: Work) -> Done:
    released = unpin(
        work.database,
        work.policy,
        work.now,
        since=work.since,
        until=work.until,
        guard=work.guard,
        check=work.check,
        progress=work.progress,
    )
    return Done({"buckets": released})


def _audit(work: Work) -> Done:
    found = audit(
        work.database,
        work.policy,
        work.store,
        work.now,
        keys=work.keys,
        units=work.units,
        check=work.check,
        progress=work.progress,
    )
    return _findings(found, NOT_KEPT)


def _check(work: Work) -> Done:
    checked = check(work.database, work.policy, OWN_COLLECTIONS)
    done = _findings(checked.findings, FAILED)
    fit = None if checked.fit is None else fit_body(checked.fit, work.policy, checked.misfits)
    return Done({**done.body, "fit": fit}, done.exit_code)


def _findings(found: Iterable[Any], code: int) -> Done:
    findings = [finding_body(it) for it in found]
    return Done({"findings": findings}, code if any(it["severity"] == "error" for it in findings) else 0)


def finding_body(found: Any) -> Body:
    return {key: getattr(found, key) for key in ("code", "policy", "place", "severity", "message")}


ROLLUP = Step("rollup", _roll_up, by_present=True)
ARCHIVE = Step("archive", _archive, by_present=True)
EXPIRY = Step("expiry", _expire, by_present=True)
AUDIT = Step("audit", _audit, by_present=True)
VERIFY, CHECK, UNPIN = Step("verify", _verify), Step("check", _check), Step("unpin", _unpin)
SIGN, RECEIPT_LIST = Step("sign", _sign), Step("receipts", _receipts)
#: Summaries go last: what they stand for is archived by then.
RUN = (ROLLUP, ARCHIVE, EXPIRY)
