"""`bucketwise hold`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import TimeRange, as_date, as_ms
from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, Series, Since, Until, parse_series
from bucketwise.jobs.core.turn import RunOptions
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, counted
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.jobs.core.connect import Document
    from bucketwise.rollups.holds import Hold

#: Bytes of a salt.
_SALT = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Action = Literal["add", "list", "release"]

What = Annotated[
    Action, typer.Argument(metavar="ACTION", help="Place a hold, list those that stand, or release one.")
]

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the hold to add or release.")]

Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Reason, kept by receipts forever; to add, required."),
]

Freeze = Annotated[bool, typer.Option("--freeze", help="Keep buckets from moving to the archive, too.")]

AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Place it where nothing is that it would cover, too.")
]


def hold(
    call: Call,
    action: What,
    name: Name = None,
    *,
    series: Series = None,
    since: Since = None,
    until: Until = None,
    reason: Reason = None,
    freeze: Freeze = False,
    allow_empty: AllowEmpty = False,
) -> Report:
    """Keep readings from being destroyed.

    While a hold stands, nothing that it covers is destroyed: no summary expires, nothing is erased, and what
    a compaction has merged stays. Buckets still move to the archive, with a verified copy, unless --freeze
    is given. Placing a hold waits for no run.
    """
    from bucketwise.buckets.fields.selectors import check_selector
    from bucketwise.jobs.core.machine import this_user
    from bucketwise.jobs.core.ranges import parse_range
    from bucketwise.jobs.core.runner import Runner
    from bucketwise.jobs.hold.holds import LIST, place_step, policies_with_hold, release_step

    asked, selector = parse_range(since, until), parse_series(series)
    _check_options(action, add=bool(selector or since or until or freeze or allow_empty), reason=reason)
    policies, placed = call.policies, None
    if action == "list":
        if name is not None:
            raise UsageError(f"hold list {name}: it takes no NAME, and lists all")
        step = LIST
    elif action == "add":
        for policy in policies:
            check_selector(policy, selector)
        named, within = _checked(action, name), asked.exact("hold add", policies)
        placed = _new(call.now, named, selector, within, _require_reason(reason), freeze=freeze)
        step = place_step(placed)
    else:
        step = release_step(_checked(action, name), this_user(), (reason or "").strip() or None)
    with call.database() as database:
        if action == "release":
            policies = policies_with_hold(call, database, _checked(action, name))
        if placed is not None and not allow_empty:
            _check_covers(call, database, placed)
        # A hold must not have to wait for a run to end, so it takes no lease.
        results = Runner.of(call, database, [step], RunOptions(dry_run=True)).run_all(policies)
    tables = [holds_table(results), *holds_closing(results, _done(action, name))]
    return Report(call.command, call.now, results, tables, is_answer=action == "list")


def _new(
    now: datetime, name: str, series: dict[str, str], within: TimeRange, reason: str, *, freeze: bool
) -> Hold:
    from bucketwise.jobs.core.machine import this_user
    from bucketwise.rollups.holds import Hold

    return Hold(name, series, _in_ms(within), reason, _at(now), this_user(), freeze, os.urandom(_SALT))


def _check_options(action: Action, *, add: bool, reason: str | None) -> None:
    """`add`: an option was given that only a new hold has."""
    if action != "add" and add:
        options = "--series, --since, --until, --freeze and --allow-empty"
        raise UsageError(f"hold {action}: {options} are for `hold add`")
    if action == "list" and reason is not None:
        raise UsageError("hold list: --reason is for `hold add` and `hold release`")


def _check_covers(call: Call, database: Database[Document], hold: Hold) -> None:
    """Raises UsageError where nothing is there that the hold would cover, on any of the policies."""
    from bucketwise.jobs.core.runner import Runner
    from bucketwise.jobs.hold.holds import covers_step

    told = Runner.of(call, database, [covers_step(hold)], RunOptions(dry_run=True)).run_all(call.policies)
    if any(it.error or it.body["covers"] for it in told):
        return
    on = ", ".join(it.policy for it in told)
    raise UsageError(
        f"hold add {hold.name}: no reading of this series and range is live, archived or summarised on {on}, "
        "so that it would cover nothing. Are --series, --since and --until right? With --allow-empty it is "
        "placed all the same. Nothing was placed"
    )


def _checked(action: Action, name: str | None) -> str:
    if name is None:
        raise UsageError(f"hold {action}: name the hold, such as `hold {action} case-17`")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"hold {action} {name}: a name has 1 to 64 letters, digits, dots, hyphens and underscores, and "
            "begins with a letter or digit"
        )
    return name


def _require_reason(reason: str | None) -> str:
    if reason is None or not reason.strip():
        raise UsageError("hold add: say why with --reason TEXT; others will need to know")
    return reason.strip()


def _at(instant: datetime) -> datetime:
    """Returns the instant with the precision of MongoDB."""
    return as_date(as_ms(instant))


def _in_ms(within: TimeRange) -> TimeRange:
    return TimeRange(*(None if it is None else _at(it) for it in within))


def holds_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each hold of each policy."""
    heads = ("policy", "name", "series", "since", "until", "freezes", "placed", "by", "reason")
    table = Grid("Holds", heads, minor=("until", "freezes", "placed", "by"))
    for result in results:
        for it in result.body.get("holds", ()):
            series = " ".join(f"{field}={value}" for field, value in it["series"].items()) or "all"
            since, until = (iso(it[key]) if it[key] else "–" for key in ("since", "until"))
            what = (it["name"], series, since, until, "yes" if it["freeze"] else "no")
            row = (result.policy, *what, iso(it["placed_at"]), it["by"], it["reason"])
            table.add_row(*map(printable, row))
    return table


def _done(action: Action, name: str | None) -> str:
    """Returns what was done, as the beginning of the last line."""
    return {"add": f"{name} is placed; ", "release": f"{name} is released; ", "list": ""}[action]


def holds_closing(results: Sequence[Result], done: str) -> list[Text]:
    """Returns the last line: what was `done`, and how many holds stand."""
    names = {it["name"] for result in results for it in result.body.get("holds", ())}
    standing = f"{counted(len(names), 'hold')} {'stands' if len(names) == 1 else 'stand'}"
    return closing(results, f"{done}{standing if names else 'no hold stands'}")


JOB = Job(
    hold,
    body=keeping.Holds,
    rights={
        "bucketwise_holds": ("insert", "remove"),
        "bucketwise_lease": ("insert", "update"),
        "bucketwise_receipts": ("insert", "update"),
    },
    examples=(
        "bucketwise hold add case-17 -p ticks --series symbol=MDB --since 2018-06-01 --until 2018-07-01 "
        '--reason "Litigation 17/2018"',
        'bucketwise hold add inspection --freeze --reason "Nothing moves until the auditors are done"',
        "bucketwise hold list",
        "bucketwise hold release case-17",
    ),
    reads_departed=True,
)
