"""The steps of the verbs: each calls the layers below and says what was done in the words of the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import Any

from bucketwise.archivers.compacting.compact import CompactOptions, CompactReport
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.moving.archive import ArchiveOptions
from bucketwise.archivers.preconditions import (
    OF_ARCHIVES,
    OF_CHECKS,
    OF_READERS,
    OF_REWRITERS,
    OF_WRITERS,
    PRECONDITIONS,
    is_known,
    problems,
)
from bucketwise.archivers.proof.audit import audit
from bucketwise.archivers.proof.checks import check
from bucketwise.archivers.proof.findings import Finding
from bucketwise.archivers.proof.remedies import REMEDIES
from bucketwise.archivers.proof.sign import sign
from bucketwise.archivers.records.deletions import legible
from bucketwise.archivers.records.pins import COLLECTION as PINS
from bucketwise.archivers.records.policies import PolicyRecord
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.report import ArchiveReport, DeleteLimit
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.unpin import unpin
from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.upkeep import Upkeep, roll_up_all
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.fields.selectors import id_as_json
from bucketwise.buckets.fields.times import FIRST_MS, TimeRange, as_date
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.jobs import clock
from bucketwise.jobs.running import lease, ledger
from bucketwise.jobs.running.lag import lag_findings
from bucketwise.jobs.running.pausing import pause_findings
from bucketwise.jobs.running.turn import Step, StepResult, Turn, pick
from bucketwise.jobs.steps.audit_evidence import evidence_body
from bucketwise.jobs.steps.expiring import ARCHIVE_EXPIRY, EXPIRY, limit_body
from bucketwise.jobs.steps.fit import (
    archives_now,
    check_fit,
    fit_body,
    misfits_of,
    require_fit,
    step_body,
    valueless,
)
from bucketwise.jobs.steps.late import late_body, missing_body, unfollowed
from bucketwise.rollups import progress as rollup_progress
from bucketwise.rollups.calendar.due import over_before
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.holds import COLLECTION as HOLDS
from bucketwise.rollups.progress import rolled_up_through
from bucketwise.rollups.rolling import quarantine
from bucketwise.rollups.rolling.backfill import Backfill
from bucketwise.rollups.rolling.options import RollupOptions, RollupReport, no_report

Body = dict[str, Any]
LEFT_SOMETHING, NOT_KEPT, FAILED = 3, 4, 1
#: What an archive run counts as it goes on.
_COUNTED = ("to", "buckets", "readings", "parts", "bytes", "deleted")
#: No write takes longer: what was left unfinished before that is of no use.
ABANDONED = timedelta(days=1)
#: What a run does in the suite's own collections. Only a restore puts pins.
OWN_COLLECTIONS = {
    lease.COLLECTION: ("find", "insert", "update"),
    ledger.COLLECTION: ("find", "insert", "update", "remove", "createIndex"),
    rollup_progress.COLLECTION: ("find", "insert", "update"),
    quarantine.COLLECTION: ("find", "insert", "update", "remove"),
    RECEIPTS: ("find", "insert", "update", "remove", "createIndex"),
    PINS: ("find", "update", "remove"),
    HOLDS: ("find",),
}


def prepare(turn: Turn, keys: Keys | None = None) -> None:
    """Checks that nothing is left unfinished in the archive, before summaries are made from it."""
    context = turn.context
    if turn.dry_run:
        return
    archive_of(replace(context, keys=keys or context.keys)).recover()
    if context.store is not None:
        # By the clock that is behind: a write under way on another machine must not pass for an old one.
        present = min(clock.current(), turn.taken_at)
        context.store.clean_temporaries(present - ABANDONED)


def note_policy(turn: Turn) -> None:
    """Records what the policy says, where that has changed since the last run."""
    state, said = turn.context.state, PolicyRecord.of(turn.policy)
    if not turn.dry_run and state.record != said:
        has_deleted = state.record is not None and state.record.has_deleted
        state.record = turn.context.policy_records.note(replace(said, has_deleted=has_deleted))


def backfill_step(length: timedelta, *, restart: bool) -> Step:
    """Returns the step that rolls up the turn's range in slices of a length. It resumes where an
    earlier call stopped, unless `restart` is given."""

    def do(turn: Turn) -> StepResult:
        span = turn.within.start_ms, turn.within.end_ms
        slice_ms = length // timedelta(milliseconds=1)
        backfill = Backfill(turn.context.database, turn.policy, span, slice_ms, restart=restart)
        rest = TimeRange(as_date(backfill.begins), turn.within.until)
        done = _roll_up(replace(turn, within=rest), backfill.reach)
        backfill.finish()
        slices = {"total": backfill.total, "before": backfill.before}
        return replace(done, body={**done.body, "slices": slices})

    return replace(ROLLUP, do=do, follows_changes=False)


def _roll_up(turn: Turn, reached: Callable[[int], None] = no_report) -> StepResult:
    prepare(turn)
    note_policy(turn)
    report = roll_up_all(
        turn.context,
        RollupOptions(
            turn.within,
            is_deleted_early=turn.is_archived_by_another,
            dry_run=turn.dry_run,
            shared=turn.shared,
            reached=reached,
        ),
    )
    empty = report.empty_fields(turn.policy)
    body = {
        **_by_level(report),
        "readings": report.readings,
        "kept": report.kept,
        "missed": report.missed,
        "outdated": report.outdated,
        "gone": report.gone,
        "empty_fields": empty,
        **late_body(report.late),
        **missing_body(report.missing),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }
    fit = None if archives_now(turn) or turn.policy.rollup is None else check_fit(turn)
    is_short = report.missed or report.outdated or report.gone or any(it.lost for it in report.missing)
    is_left = report.quarantined_total or empty or is_short or misfits_of(fit)
    return StepResult(body | step_body(fit), LEFT_SOMETHING if is_left else 0)


def _by_level(report: RollupReport) -> Body:
    """Returns the counts of summaries of each level; hours and days are always there."""
    counts = {"hourly": report.hourly, "daily": report.daily, **report.counts}
    return {level: {"written": it.written, "unchanged": it.unchanged} for level, it in counts.items()}


def _archive(turn: Turn) -> StepResult:
    context = turn.context
    if context.policy.archive is None:
        return StepResult(_archive_body(ArchiveReport("none"), context.policy))
    note_policy(turn)
    fit = check_fit(turn) if archives_now(turn) else None
    require_fit(fit, context.policy)
    upkeep = Upkeep(context, turn.readers, is_deleted_early=turn.is_archived_by_another, dry_run=turn.dry_run)
    options = ArchiveOptions(turn.within, archivable_through(turn), upkeep, turn.allow_large)
    archive = archive_of(context)
    report = archive.plan(options) if turn.dry_run else archive.run(options)
    stays = bool(report.quarantined or report.changed or report.valueless or upkeep.gone)
    limit = report.limit if turn.dry_run else None
    body = _archive_body(report, context.policy, upkeep) | step_body(fit) | _limit_body(limit)
    would_stop = limit is not None and limit.is_exceeded
    return StepResult(body, HaltedError.exit_code if would_stop else LEFT_SOMETHING if stays else 0)


def _archived_so_far(turn: Turn) -> Body | None:
    """Returns the counts of an archive run that was stopped, or failed; not those that only its end tells."""
    report = turn.context.state.report
    return None if report is None else pick(report, *_COUNTED)


def archivable_through(turn: Turn) -> int | None:
    """Returns up to where readings may be archived (milliseconds); None: no policy rolls them up."""
    found = [_through_of(turn, policy) for policy in (turn.policy, *turn.readers)]
    return min((through for through in found if through is not None), default=None)


def _through_of(turn: Turn, policy: Policy) -> int | None:
    if not levels_of(policy):
        return None
    if turn.dry_run and ROLLUP.name in turn.steps and policy is turn.policy:
        # A plan of both: as far as the roll-up before would have come.
        return over_before([policy], turn.context.now)
    # As it is stored by now: what lies before it may be deleted.
    through = rolled_up_through(turn.context.database, policy)
    return FIRST_MS if through is None else through


def _archive_body(report: ArchiveReport, policy: Policy, upkeep: Upkeep | None = None) -> Body:
    return {
        **pick(report, *_COUNTED, "left"),
        "reasons": [{"reason": reason, "count": count} for reason, count in report.reasons.items()],
        "summaries": upkeep.written if upkeep else 0,
        "gone": upkeep.gone if upkeep else 0,
        "valueless": valueless(report, policy),
        **quarantine_body(report.quarantined, report.quarantined_total),
    }


def _limit_body(limit: DeleteLimit | None) -> Body:
    """Returns `max_delete` as a plan's JSON."""
    if limit is None:
        return {}
    return {"limit": limit_body(limit)}


def quarantine_body(found: list[Quarantined], total: int) -> Body:
    """Returns quarantined buckets as JSON: the total, and those found with their reasons."""
    named = [{"id": id_as_json(it.id), **pick(it, "field", "reason")} for it in found]
    return {"quarantined": total, "quarantine": named}


def _compact(turn: Turn) -> StepResult:
    """Merges small commits of finished days, within the budget: the step of a run."""
    archive, now = turn.policy.archive, turn.context.now
    if archive is None or archive.compact.after is None:
        return StepResult(asdict(CompactReport()))
    options = CompactOptions(turn.within, now - archive.compact.after, archive.compact.budget)
    return _compact_as_asked(turn, options)


def _compact_all(turn: Turn) -> StepResult:
    """Merges all small commits in the range: the step of the verb."""
    return _compact_as_asked(turn, CompactOptions(turn.within))


def _compact_as_asked(turn: Turn, options: CompactOptions) -> StepResult:
    archive = archive_of(turn.context)
    act = archive.plan_compaction if turn.dry_run else archive.compact
    return StepResult(asdict(act(options)))


def _verify(turn: Turn) -> StepResult:
    report = archive_of(turn.context).verify(turn.within)
    damage = [pick(it, "code", "place", "message") for it in report.bad]
    body = {"parts": report.parts, "readings": report.readings, "bad": len(damage), "damage": damage}
    return StepResult(body, HaltedError.exit_code if damage else 0)


def _sign(turn: Turn) -> StepResult:
    keys = turn.context.keys
    prepare(turn, keys.lenient())
    report = sign(turn.context)
    return StepResult({"key": keys.first, "manifests": report.manifests, "receipts": report.receipts})


def _receipts(turn: Turn) -> StepResult:
    receipts, moved = turn.context.receipts, turn.context.receipt_files
    return StepResult(
        {"deletes": list(legible(receipts, moved, *turn.within)), "policies": receipts.policies()}
    )


def restore_step(options: RestoreOptions) -> Step:
    """Returns the step that restores what is asked for; the range is that of the turn."""

    def do(turn: Turn) -> StepResult:
        report = archive_of(turn.context).restore(replace(options, within=turn.within))
        counts = {"buckets": report.buckets, "readings": report.readings, "overflow": report.overflow}
        until = options.pinned_until if report.pinned else None
        pinned = {"pinned": report.pinned, "pinned_until": until}
        missing = [it._asdict() for it in report.missing]
        body = {"to": options.to, **counts, "versions": report.versions, **pinned, "missing": missing}
        return StepResult(body, LEFT_SOMETHING if missing else 0)

    pins = options.pinned_until is not None
    return Step("restore", do, by_present=pins, preconditions=OF_READERS)


def _unpin(turn: Turn) -> StepResult:
    return StepResult({"buckets": unpin(turn.context, turn.within)})


def audit_step(
    *,
    full: bool = False,
    evidence: bool = False,
    drilled_every: timedelta | None = None,
    finders: Sequence[Callable[[Turn], list[Finding]]] = (),
) -> Step:
    """Returns the step that audits.

    `full`: reads all parts, whatever the policy says. `evidence`: also reports where each day is, how much
    there is, and how it is proven. `drilled_every`: how long a day may go without a drill; None: forever.
    `finders`: return further findings.
    """

    def do(turn: Turn) -> StepResult:
        report = audit(turn.context, turn.readers, full=full, drilled_every=drilled_every)
        further = (it for find in finders for it in find(turn))
        done = _findings([*pause_findings(turn), *report.findings, *further], NOT_KEPT)
        read = {"parts": report.parts, "parts_read": report.parts_read, "days": report.days}
        for it in done.body["findings"]:
            it["remedy"] = REMEDIES[it["code"]]
        proof = evidence_body(turn.context) if evidence else {}
        code = HaltedError.exit_code if report.halted else done.exit_code
        return StepResult({**done.body, **read, **proof}, code)

    return Step("audit", do, by_present=True, preconditions=[is_known])


def _check(turn: Turn) -> StepResult:
    context = turn.context
    checked = check(context.database, turn.policy, OWN_COLLECTIONS, partial(_unmet, context))
    may_look = all(it.place != lease.COLLECTION for it in checked.findings)  # else a right is missing there
    paused = pause_findings(turn) if may_look else []
    done = _findings([*paused, *lag_findings(turn), *unfollowed(turn), *checked.findings], FAILED)
    fit = None if checked.fit is None else fit_body(checked.fit, turn.policy, checked.misfits)
    return StepResult({**done.body, "fit": fit}, done.exit_code)


def _unmet(context: ArchiveContext) -> Iterator[Finding]:
    """Yields what would keep a run from going on."""
    name = context.policy.name
    try:
        for it in problems(context, OF_CHECKS):
            yield Finding(it.code, name, it.place, "error", str(it.error))
    except StoreError as error:  # the rest can't be asked
        yield Finding("store", name, context.store.url if context.store else "", "error", str(error))


def _findings(found: Iterable[Any], code: int) -> StepResult:
    findings = [finding_body(it) for it in found]
    return StepResult(
        {"findings": findings}, code if any(it["severity"] == "error" for it in findings) else 0
    )


def finding_body(found: Any) -> Body:
    """Returns a finding as JSON."""
    return pick(found, "code", "policy", "place", "severity", "message")


ROLLUP = Step("rollup", _roll_up, by_present=True, follows_changes=True, preconditions=PRECONDITIONS)
ARCHIVE = Step("archive", _archive, _archived_so_far, by_present=True, preconditions=OF_WRITERS)
AUDIT = audit_step()
VERIFY = Step("verify", _verify, preconditions=OF_READERS)
CHECK, UNPIN, RECEIPT_LIST = Step("check", _check), Step("unpin", _unpin), Step("receipts", _receipts)
SIGN = Step("sign", _sign, preconditions=OF_ARCHIVES)
COMPACT = Step("compact", _compact, by_present=True, preconditions=OF_REWRITERS)
COMPACT_ALL = replace(COMPACT, do=_compact_all, by_present=False)
#: Summaries go last: their readings are archived by then.
RUN = (ROLLUP, ARCHIVE, COMPACT, ARCHIVE_EXPIRY, EXPIRY)
