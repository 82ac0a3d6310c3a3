"""Thaws of parts in cold storage classes: their options, and the wait until the parts can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.problems import InvalidValueError
from bucketwise.config.times import parse_duration
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.turn import pick

if TYPE_CHECKING:
    from bucketwise.archivers.classes import ThawOptions, ThawReport
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.rollups.context import Check

#: Seconds between two looks at what S3 has thawed: at first, and at most. Each is twice the one before.
_DELAYS = 1.0, 900.0
_TICK = 0.2


class Speed(StrEnum):
    """The tiers of S3."""

    expedited = "expedited"
    standard = "standard"
    bulk = "bulk"


Days = Annotated[
    int,
    typer.Option("--days", min=1, metavar="N", help="For how many days thawed parts can be read."),
]
TierOption = Annotated[
    Speed,
    typer.Option(
        "--tier", help="How soon parts are thawed, and for what price. DEEP_ARCHIVE has no expedited one."
    ),
]
DAYS = 7


@dataclass(frozen=True)
class Thawing:
    """The options of a job that thaws what it reads."""

    thaw: Annotated[
        bool, typer.Option("--thaw", help="Thaw parts in a cold storage class, and wait until S3 gives them.")
    ] = False
    days: Days = DAYS
    tier: TierOption = Speed.standard
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="DURATION", help="With --thaw: the longest wait, such as 12h. Default: forever."
        ),
    ] = None

    def longest(self) -> timedelta | None:
        """Returns how long to wait at most; None: until all can be read. Raises UsageError for options that
        don't go together."""
        if not self.thaw and self != NO_THAW:
            raise UsageError("--days, --tier and --wait say how --thaw works: add --thaw, or leave them out")
        try:
            return None if self.wait is None else parse_duration(self.wait)
        except InvalidValueError as error:
            raise UsageError(f"--wait {self.wait}: {error.fault.message}; {error.fault.remedy}") from None


NO_THAW = Thawing()


def thaw_body(report: ThawReport, options: ThawOptions) -> dict[str, Any]:
    """Returns what was thawed as JSON."""
    counts = pick(report, "asked", "waiting", "ready", "parts", "commits", "bytes", "ready_at")
    return {**counts, "days": options.days, "tier": options.tier, "classes": dict(report.classes)}


def thaw_and_wait(
    context: ArchiveContext,
    options: ThawOptions,
    longest: timedelta | None,
    tell: Callable[[str | None], None],
) -> ThawReport:
    """Asks for cold parts until all that is meant can be read, at intervals that widen: what S3 gives no more
    by then is asked for anew. `tell`: takes what it waits for; None once it goes on. Raises BucketwiseError
    where that takes longer than `longest`, and what `thaw` raises."""
    from bucketwise.archivers.classes import thaw
    from bucketwise.rollups.context import no_progress

    begun, (delay, most) = clock.steady(), _DELAYS
    first = report = thaw(context, options)
    asked, quiet = first.asked, replace(context, progress=no_progress)
    while not report.is_ready:
        held = f"{report.ready:,} of {report.parts:,} parts can be read"
        all_by = "" if first.ready_at is None else f", all by {clock.iso(first.ready_at)}"
        left = delay if longest is None else begun + longest.total_seconds() - clock.steady()
        if left <= 0:
            raise BucketwiseError(
                f"policy {context.policy.name}: {held}{all_by}. Nothing was restored. Run again then: S3 is "
                "not asked twice"
            )
        tell(f"{held}{all_by}")
        _sleep(min(delay, left), context.check)
        delay = min(2 * delay, most)
        report = thaw(quiet, options)
        asked += report.asked
    tell(None)
    return replace(report, asked=asked)


def _sleep(seconds: float, check: Check) -> None:
    """Sleeps, and calls `check` meanwhile, which raises where the run must stop."""
    until = clock.steady() + seconds
    while (left := until - clock.steady()) > 0:
        check()
        sleep(min(left, _TICK))
    check()
