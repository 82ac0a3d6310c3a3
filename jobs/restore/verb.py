"""`bucketwise restore`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, Series, Since, Until, one_policy, parse_series
from bucketwise.jobs.core.stopping import interruptible
from bucketwise.jobs.core.thaws import NO_THAW, Thawing, thaw_and_wait, thaw_body
from bucketwise.jobs.core.turn import LEFT_SOMETHING, RunOptions, Step, StepResult, Turn
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted, job_table, sums
from bucketwise.jobs.output.text import printable, size

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.archivers.restoring.options import RestoreOptions
    from bucketwise.buckets.fields.selectors import Selector
    from bucketwise.config.policies import Policy
    from bucketwise.jobs.core.connect import Document

Body = dict[str, Any]

To = Annotated[
    str | None, typer.Option("--to", metavar="COLLECTION", help="Target collection; required but to count.")
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be restored. Writes nothing.")]

Versions = Annotated[
    Literal["latest", "all", "merged"],
    typer.Option(
        "--versions",
        help="What to restore of a bucket that was archived more than once under one _id: the latest "
        "version, all versions, or one document merged from all.",
    ),
]

VersionsTo = Annotated[
    str | None,
    typer.Option(
        "--versions-to",
        metavar="COLLECTION",
        help="With --versions all: collection for the older versions. Default: --to, under new _ids.",
    ),
]

KeepFor = Annotated[
    str | None,
    typer.Option(
        "--keep-for",
        metavar="DURATION",
        help="When restoring into the policy's own collection: how long the buckets stay pinned, such as "
        "30d. Default: until `unpin`.",
    ),
]

SkipDamaged = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Restore what is undamaged, and list what the archive can't give (exit 3). Without it, damage "
        "keeps everything from being restored.",
    ),
]


def restore(
    call: Call,
    *,
    to: To = None,
    since: Since = None,
    until: Until = None,
    series: Series = None,
    versions: Versions = "merged",
    versions_to: VersionsTo = None,
    keep_for: KeepFor = None,
    skip_damaged: SkipDamaged = False,
    dry_run: DryRun = False,
    thawing: Thawing = NO_THAW,
) -> Report:
    """Bring archived buckets back.

    They come back as they were, byte for byte. A bucket with a reading in the range comes back whole,
    with its overflow. Of several versions of a bucket, the later one's slots or samples are laid over the
    earlier one's, unless --versions says otherwise. Documents that are in the target already and equal stay;
    what the archive does not hold is never written over. Restored into the policy's own collection, buckets
    are pinned: no run archives or deletes them until --keep-for is over, or until `bucketwise unpin`. With
    --thaw, parts in a cold storage class are asked for first, and the restore begins once S3 gives them.
    """
    from bucketwise.archivers.restoring.options import Mode, RestoreOptions, VersionHandling
    from bucketwise.jobs.core.ranges import parse_range

    asked = parse_range(since, until)
    wanted = parse_series(series)
    policy = one_policy(call)
    if to is None and not dry_run:
        raise UsageError("restore needs --to COLLECTION, or --dry-run to count what it would restore")
    if thawing.thaw and (since is None or until is None or dry_run):
        raise UsageError(
            "restore --thaw takes --since and --until, and no --dry-run: S3 charges for each part that is "
            "thawed"
        )
    within = asked.of([policy], call.now)(policy)
    how = VersionHandling(Mode(versions), versions_to)
    target = to or f"{policy.collection}_restored"
    options = RestoreOptions(target, within, wanted, how, None, skip_damaged, dry_run)
    results = _perform(call, policy, options, keep_for, thawing)
    if dry_run:
        return Report(call.command, call.now, results, list(_preview_lines(results)))
    return Report(call.command, call.now, results, restore_tables(results))


def _perform(
    call: Call, policy: Policy, options: RestoreOptions, keep_for: str | None, thawing: Thawing
) -> list[Result]:
    """Restores. What comes before takes no lease, so that runs go on meanwhile, and is not recorded: the
    ledger names no series."""
    from bucketwise.jobs.core.runner import Runner

    longest, pinned = thawing.longest(), _pinned(options, call.now, policy, keep_for)
    running = RunOptions(lambda _: options.within, dry_run=True)
    with call.database() as database:
        if not options.dry_run:
            _confirm(call, database, options.to)
        before = Runner.of(call, database, [known_step(options.series)], running)
        if thawing.thaw:
            before.steps = [*before.steps, wait_step(pinned, thawing, longest, before.progress.wait)]
        results = before.run_all([policy]) if options.series or thawing.thaw else []
        if any(it.error for it in results):
            return results
        if thawing.thaw and not call.is_now_given:  # it may be a day later
            call.now = clock.current()
            pinned = _pinned(options, call.now, policy, keep_for)
        told = {} if not results else results[0].body
        running = replace(running, dry_run=options.dry_run)
        results = Runner.of(call, database, [restore_step(pinned)], running).run_all([policy])
        results[0].body |= told
    return results


def _pinned(options: RestoreOptions, now: datetime, policy: Policy, keep_for: str | None) -> RestoreOptions:
    """Returns the options with the time until which restored buckets are pinned. Raises UsageError."""
    from bucketwise.buckets.models import model_of

    to = options.to
    if keep_for is None:
        return options
    if to != policy.collection:
        raise UsageError(
            f"--keep-for {keep_for}: only what is restored into the policy's own collection is pinned, and "
            f"--to is {to}. Leave --keep-for out, or write --to {policy.collection}"
        )
    if not model_of(policy).can_delete:
        raise UsageError(
            f"--keep-for {keep_for}: {to} is a native time-series collection, from which nothing is ever "
            "deleted: what is restored stays. Leave --keep-for out"
        )
    try:
        span = parse_duration(keep_for)
        return replace(options, pinned_until=None if span is None else now + span)
    except InvalidValueError as error:
        raise UsageError(f"--keep-for {keep_for}: {error}; {error.fault.remedy}") from None
    except OverflowError:
        raise UsageError(f"--keep-for {keep_for}: that is after the year 9999") from None


def _confirm(call: Call, database: Database[Document], to: str) -> None:
    """Asks before documents are added to existing ones. Asks nothing without a terminal."""
    if call.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if database[to].find_one({}, {"_id": 1}) is None:
        return
    with interruptible():
        sys.stderr.write(f"The collection {to} holds documents already. Restore into it? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed; nothing was restored")


def known_step(series: Selector) -> Step:
    """Returns the step that refuses a series that the policy does not know."""
    from bucketwise.jobs.core.known_series import require_known_series

    def do(turn: Turn) -> StepResult:
        require_known_series(turn.context, series)
        return StepResult({})

    return Step("restore", do)


def wait_step(
    options: RestoreOptions,
    thawing: Thawing,
    longest: timedelta | None,
    tell: Callable[[str | None], None],
) -> Step:
    """Returns the step that has S3 thaw what a restore will read, and waits for it; the range is that of the
    turn. What the restore would refuse is refused before."""
    from bucketwise.archivers.classes import ThawOptions
    from bucketwise.archivers.restoring.options import check_request

    def do(turn: Turn) -> StepResult:
        check_request(turn.context, options)
        wanted = ThawOptions(
            turn.within, thawing.days, thawing.tier.value, options.series, options.skip_damaged
        )
        return StepResult(thaw_body(thaw_and_wait(turn.context, wanted, longest, tell), wanted))

    return Step("thaw", do, preconditions="reading")


def restore_step(options: RestoreOptions) -> Step:
    """Returns the step that restores what is asked for; the range is that of the turn."""
    from bucketwise.archivers.kinds import archive_of

    def do(turn: Turn) -> StepResult:
        report = archive_of(turn.context).restore(replace(options, within=turn.within))
        counts = {"buckets": report.buckets, "readings": report.readings, "overflow": report.overflow}
        missing = [it._asdict() for it in report.missing]
        if options.dry_run:
            counts |= {"bytes": report.bytes, "commits": report.commits, "versions": report.versions}
            return StepResult({**counts, "missing": missing}, LEFT_SOMETHING if missing else 0)
        until = options.pinned_until if report.pinned else None
        pinned = {"pinned": report.pinned, "pinned_until": until}
        body = {"to": options.to, **counts, "versions": report.versions, **pinned, "missing": missing}
        return StepResult(body, LEFT_SOMETHING if missing else 0)

    pins = options.pinned_until is not None
    return Step("restore", do, by_present=pins, preconditions="reading")


def restore_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `restore` prints: counts, and what the archive could not give."""
    buckets, readings = sums(results, "buckets", "readings")
    what = f"{counted(buckets, 'bucket')} with {counted(readings, 'reading')} restored"
    return [job_table(JOB, results), *_missing_lines(results), *closing(results, what)]


def _preview_lines(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields what a dry run prints: a sentence."""
    for result in results:
        if result.error is None:
            body = result.body
            held = f"{body['buckets']:,} buckets with {body['readings']:,} readings"
            place = f", from {counted(body['commits'], 'commit')}" if body["commits"] else ""
            yield Text(
                f"{result.policy}: would restore {held}, {size(body['bytes'])}{place}. Nothing was written"
            )
    yield from _missing_lines(results)


def _missing_lines(results: Sequence[Result]) -> list[Text]:
    return [
        Text(printable(f"{result.policy}: missing: {_missing(it)}"), style="bold red")
        for result in results
        for it in result.body.get("missing", [])
    ]


def _missing(it: Body) -> str:
    receipts = ", ".join(str(receipt["sequence"]) for receipt in it["receipts"]) or "none"
    lost = f"{it['buckets']:,} buckets of commit {it['commit']}, {it['live']:,} of them still live"
    return f"{lost}: {it['place']}: {it['reason']}; receipts of deletes: {receipts}"


JOB = Job(
    restore,
    body=keeping.Restore,
    asks=True,
    rights={"bucketwise_pins": ("insert",)},
    examples=(
        "bucketwise restore -p ticks --since 2018-06-30 --until 2018-07-01 --to ticks_back",
        "bucketwise restore -p iot --since 2018-08-29 --until 2018-08-30 --series deviceid=1234 --to iot",
        "bucketwise restore -p iot --since 2018-08-29 --until 2018-08-30 --to iot --keep-for 30d",
        "bucketwise restore -p ticks --to ticks_back --versions all --versions-to ticks_older",
        "bucketwise restore -p ticks --to ticks_back --skip-damaged --json",
        "bucketwise restore -p ticks --since 2018-06-30 --until 2018-07-01 --dry-run",
        "bucketwise restore -p ticks --since 2018-06-30 --until 2018-07-01 --to ticks_back --thaw --wait 12h",
    ),
    title="Restore",
    columns=("to", "buckets", "readings", "overflow", "versions", "pinned", "pinned_until"),
    reads_departed=True,
)
