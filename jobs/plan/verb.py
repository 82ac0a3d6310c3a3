"""`bucketwise plan`: what a run would do, by the policy file or by another one, over the same buckets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import later
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.times import format_duration, parse_duration
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.core.turn import RunOptions, Step, StepResult, Turn, perform
from bucketwise.jobs.output.bodies import running
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.tables import closing, in_future, plan_closing
from bucketwise.jobs.output.text import printable
from bucketwise.jobs.run.verb import run_tables, steps_of

if TYPE_CHECKING:
    from bucketwise.archivers.context import ArchiveContext
    from bucketwise.config.policies import Policy, Settings
    from bucketwise.jobs.plan.outcomes import PolicyRule, RuleOutcome

Body = dict[str, Any]


def _source_keys() -> tuple[str, ...]:
    """Returns the keys that say where buckets lie, and how readings lie in them."""
    from bucketwise.config.models import LAYOUT_KEYS

    return (*sorted(LAYOUT_KEYS), "collection")


def irreversible(policy: str, body: Body) -> list[str]:
    """Returns the sentences on one policy, from its comparison in the words of the JSON."""
    return [
        f"policy {policy}: {it}"
        for it in (*_deleted(body), *_ended(body), *_of_summaries(body), *_broken(body))
    ]


def _deleted(body: Body) -> Iterator[str]:
    if when := _when(body, "deleted"):
        keys = _keys(body, "archive", "rules", *_source_keys())
        yield f"{keys}: more buckets are deleted, {when}: only a restore brings them back"


def _ended(body: Body) -> Iterator[str]:
    stands = "after its tombstone has stood for retain.archive_grace"
    for it in body["changed"]:
        if it["key"] == "retain.archive" and _is_shorter(it["against"], it["today"]):
            yield f"{_keys(body, 'retain.archive')}: what is archived longer is removed for good, {stands}"
        elif it["key"] == "rules" and "retain.archive" in f"{it['today']} {it['against']}":
            what = "what is archived of series that it keeps for a shorter time is removed for good"
            yield f"{_keys(body, 'rules')}: {what}, {stands}"


def _is_shorter(span: str | None, than: str | None) -> bool:
    """Returns whether a span is shorter, both as the policy file writes them; None: forever."""
    ends, before = (None if it is None else parse_duration(it) for it in (span, than))
    return ends is not None and (before is None or ends < before)


def _of_summaries(body: Body) -> Iterator[str]:
    for level in body["now"]["difference"]["summaries"]:
        if when := _when(body, "summaries", level):
            past = f"{_keys(body, f'retain.{level}', 'rules')}: more {level} summaries are past it, {when}"
            yield (
                f"{past}: once a tombstone has stood for retain.grace they are removed, and made again only "
                "of readings that are live or archived"
            )
    for level, count in body["dropped"].items():
        if count:
            keys = _keys(body, f"rollup.{level}", "rollup.levels")
            yield f"{keys}: {count:,} {level} summaries stay as they are: nothing updates or removes them"
    anew = body["anew"] or {}
    for level, count in anew.get("lost", {}).items():
        if count:
            since = f"before {iso(anew['first'])}" if anew["first"] else "of all time"
            keys = _keys(body, "rollup", *_source_keys())
            yield (
                f"{keys}: {count:,} {level} summaries {since} are of readings that are neither live nor "
                "archived: they can't be rolled up again"
            )


def _broken(body: Body) -> Iterator[str]:
    if (more := body["in_90_days"]["difference"]["quarantined"]) > 0 and body["only_in"] is None:
        keys = _keys(body, *_source_keys())
        yield f"{keys}: {more:,} more buckets break their model: they are left out and stay"


def _when(body: Body, *path: str) -> str:
    """Returns how many more there are, at once and within 90 days; nothing where there are none."""
    counts = {"at once": body["now"], "within 90 days": body["in_90_days"]}
    return " and ".join(
        f"{count:,} {when}" for when, it in counts.items() if (count := _at(it["difference"], path)) > 0
    )


def _at(found: Any, path: Sequence[str]) -> int:
    for key in path:
        found = found[key]
    return int(found)


def _keys(body: Body, *tables: str) -> str:
    """Returns the changed keys that are, or lie in, one of these, with their values; else all of them."""
    changed = {
        it["key"]: f"{it['key']} ({_value(it['today'])} → {_value(it['against'])})" for it in body["changed"]
    }
    near = [text for key, text in changed.items() if any(f"{key}.".startswith(f"{it}.") for it in tables)]
    if body["only_in"]:
        return f"it is only in the file of {body['only_in']}" if body["only_in"] == "today" else "it is new"
    return ", ".join(near or changed.values()) or "another policy of the collection"


def _value(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


HORIZON = timedelta(days=90)
#: The instants at which the files are compared, by their keys.
INSTANTS = {"now": timedelta(0), "in_90_days": HORIZON}
FILES = ("today", "against")

_NOTHING: Body = {
    "archived": 0, "deleted": 0, "kept": 0, "bytes": 0, "readings": 0, "days": 0, "quarantined": 0,
    "summaries": {},
}  # fmt: skip


def check_comparable(today: Settings, other: Settings) -> None:
    """Raises UsageError where the other file is about another database or store, which can't be compared."""
    if today.path.resolve() == other.path.resolve():
        raise UsageError(f"--against {other.path}: it is the policy file itself. Name a changed copy of it")
    before, after = _places(today), _places(other)
    for key in [key for key in before if key in after]:
        if before[key] != after[key]:
            raise UsageError(
                f"--against {other.path}: {key} is {after[key]}, and in {today.path} {before[key]}. Two "
                "files are compared over the same data: name the same database and store in both"
            )


def _places(settings: Settings) -> dict[str, str | None]:
    """Returns where the data is, by key. Of the URI its hosts, without user and password."""
    from bucketwise.jobs.core.connect import hosts

    mongodb, store = settings.mongodb, settings.store
    places: dict[str, str | None] = {"mongodb.uri": hosts(mongodb), "mongodb.database": mongodb.database}
    return places | ({"store.url": store.url, "store.endpoint_url": store.endpoint_url} if store else {})


@dataclass(frozen=True)
class _Side:
    """One policy by one of the two files. `stops`: why a run by it would stop before it archives."""

    policy: Policy
    rules: Sequence[PolicyRule]  # by each instant
    stops: list[str]

    @classmethod
    def of(cls, settings: Settings, turn: Turn) -> _Side | None:
        """Returns None where the file has no such policy."""
        policy = settings.policies.get(turn.policy.name)
        if policy is None:
            return None
        others = (it for it in settings.policies.values() if it.name != policy.name)
        readers = [it for it in others if it.collection == policy.collection and it.rollup is not None]
        context = replace(turn.context, policy=policy, known=tuple(settings.policies.values()))
        stops = _stops(replace(turn, context=context))
        return cls(policy, [_rule(context, readers, it, stops) for it in INSTANTS.values()], stops)


def _rule(context: ArchiveContext, readers: Sequence[Policy], by: timedelta, stops: list[str]) -> PolicyRule:
    from bucketwise.jobs.plan.outcomes import PolicyRule, rule

    then = replace(context, now=later(context.now, by))
    return PolicyRule.none(then) if stops else rule(then, readers, context.now)


def _stops(turn: Turn) -> list[str]:
    from bucketwise.archivers.context import ArchiveState
    from bucketwise.archivers.preconditions import PRECONDITIONS, require
    from bucketwise.jobs.core.fit import check_fit, require_fit

    context = turn.context
    try:
        require(replace(context, state=ArchiveState()), PRECONDITIONS)
        if context.policy.archiving is not None:
            require_fit(turn, check_fit(turn))
    except BucketwiseError as error:
        return [str(error)]
    return []


def against_step(today: Settings, other: Settings) -> Step:
    """Returns the step that compares what a policy does by two files."""
    from bucketwise.archivers.kinds import archive_of
    from bucketwise.archivers.preconditions import dropped, rollup_impact
    from bucketwise.jobs.plan.outcomes import outcomes

    def do(turn: Turn) -> StepResult:
        sides = [_Side.of(it, turn) for it in (today, other)]
        found = iter(outcomes([it for side in sides if side for it in side.rules]))
        by_side = [[next(found) for _ in side.rules] if side else [] for side in sides]
        before, after = (side.policy if side else None for side in sides)
        body: Body = {
            "only_in": "against" if before is None else "today" if after is None else None,
            "changed": _changed(before, after),
            **{key: _compared(sides, by_side, place) for place, key in enumerate(INSTANTS)},
            "anew": None,
            "dropped": {},
            "stops": dict(zip(FILES, map(_all_stops, sides, by_side), strict=True)),
        }
        if before is not None and after is not None:
            context = replace(turn.context, policy=before)
            impact = rollup_impact(context, archive_of(context).evidence, after)
            body |= {"anew": impact and asdict(impact), "dropped": dropped(context, after)}
        return StepResult(body | {"irreversible": irreversible(turn.policy.name, body)})

    return Step("against", do, by_present=True)


def _all_stops(side: _Side | None, found: Sequence[RuleOutcome]) -> list[str]:
    """Returns what stops a run, with the limit on deletes, which a run may be allowed to exceed."""
    from bucketwise.archivers.context import DeleteLimit

    if side is None or side.policy.archive is None:
        return []
    written, present = side.policy.archive.max_delete, found[0]
    limit = DeleteLimit(side.policy.collection, written or 0, present.deleted, present.total)
    return [*side.stops, *([limit.message] if written is not None and limit.is_exceeded else [])]


def _compared(sides: Sequence[_Side | None], by_side: Sequence[Sequence[RuleOutcome]], place: int) -> Body:
    """Returns what both files have done by one instant, and the difference."""
    today, against = (
        _outcome_body(side, found[place], place) if side else _NOTHING
        for side, found in zip(sides, by_side, strict=True)
    )
    return {"today": today, "against": against, "difference": _difference(today, against)}


def _outcome_body(side: _Side, outcome: RuleOutcome, place: int) -> Body:
    from bucketwise.jobs.plan.outcomes import expired_summaries

    archived = outcome.archived
    return {
        "archived": archived.buckets,
        "deleted": outcome.deleted,
        "kept": outcome.kept,
        "bytes": archived.bytes,
        "readings": archived.readings,
        "days": len(archived.days),
        "quarantined": outcome.broken,
        "summaries": {} if side.stops else expired_summaries(side.rules[place].context),
    }


def _difference(today: Body, against: Body) -> Body:
    """Returns the difference number by number; a missing one is 0."""
    return {
        key: _difference(today.get(key, {}), against.get(key, {}))
        if key == "summaries"
        else against.get(key, 0) - today.get(key, 0)
        for key in [*today, *(key for key in against if key not in today)]
    }


def _changed(today: Policy | None, against: Policy | None) -> list[Body]:
    """Returns the keys that differ as they are written; null: not written."""
    before, after = (dict(_set_values(it)) for it in (today, against))
    keys = dict.fromkeys([*before, *after])
    found = [{"key": key, "today": before.get(key), "against": after.get(key)} for key in keys]
    return [it for it in found if it["today"] != it["against"]]


def _set_values(policy: Policy | None) -> Iterator[tuple[str, Any]]:
    if policy is None:
        return
    yield from _flattened(policy.model_dump(by_alias=True, exclude_unset=True, exclude={"rules"}))
    if policy.rules:
        yield "rules", [f"{it.text}: {it.words}" for it in policy.rules]


def _flattened(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{above}{key}.")
        elif isinstance(value, timedelta | None):
            yield f"{above}{key}", format_duration(value)
        else:
            yield f"{above}{key}", list(value) if isinstance(value, tuple) else value


_ROWS = {
    "archived": "buckets archived", "deleted": "buckets deleted", "kept": "buckets kept",
    "bytes": "bytes archived", "readings": "readings archived", "days": "days archived",
    "quarantined": "buckets quarantined",
}  # fmt: skip

_COLUMNS = ("today", "against", "difference")
_INSTANTS = {"now": "now", "in_90_days": "in 90 days"}


def against_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns two tables for each policy, with sentences below them; and a line on all."""
    shown: list[RenderableType] = []
    for result in (it for it in results if it.body):
        shown += [_table(result.policy, result.body, instant) for instant in _INSTANTS]
        shown += _lines(result.policy, result.body)
    later = [it.body["in_90_days"]["difference"] for it in results if it.body]
    archived, deleted = (sum(it[key] for it in later) for key in ("archived", "deleted"))
    what = f"in 90 days, {archived:+,} buckets archived and {deleted:+,} deleted by the other file"
    what = what if archived or deleted else "in 90 days, both files have archived and deleted as many buckets"
    return [*shown, *closing(results, f"{what}. Nothing was changed")]


def _table(policy: str, body: Body, instant: str) -> Grid:
    """Returns the counts of both files at an instant; rows of zeros are left out."""
    table = Grid(f"Policy {policy}, {_INSTANTS[instant]}", ("", *_COLUMNS))
    counts = {title: [body[instant][it][key] for it in _COLUMNS] for key, title in _ROWS.items()}
    for level in body[instant]["difference"]["summaries"]:
        found = [body[instant][it]["summaries"].get(level, 0) for it in _COLUMNS]
        counts[f"{level} summaries removed"] = found
    for title, (today, against, difference) in counts.items():
        if today or against:
            table.add_row(title, f"{today:,}", f"{against:,}", f"{difference:+,}" if difference else "0")
    return table


def _lines(policy: str, body: Body) -> Iterator[Text]:
    if body["only_in"]:
        has = {"today": "it is only in today's file", "against": "it is only in the other file"}
        yield Text(f"policy {policy}: {has[body['only_in']]}")
    for file, stops in body["stops"].items():
        name = "today's file" if file == "today" else "the other file"
        yield from (
            Text(printable(f"policy {policy}: a run by {name} stops: {it}"), style="bold red") for it in stops
        )
    if (anew := body["anew"]) is not None:
        count = (
            f"{anew['live_buckets']:,} live and {anew['archived_buckets']:,} archived buckets are read again"
        )
        yield Text(f"policy {policy}: rolled up again: {', '.join(anew['levels'])}; {count}")
    yield from (Text(printable(f"cannot be undone: {it}"), style="yellow") for it in body["irreversible"])


Against = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="Compare with a changed policy file, now and in 90 days."),
]


def plan(call: Call, *, against: Against = None) -> Report:
    """Show what `run` would do now.

    And why what stays stays. With --against: what a changed policy file would archive, delete and keep,
    compared with this one. Changes nothing.
    """
    from bucketwise.jobs.plan.outcomes import ESTIMATE

    if against is not None:
        if call.workers is not None or call.executor is not None:
            raise UsageError("--against: it takes neither --workers nor --executor")
        return _compare(call, against)
    open_executor = call.open_executor()
    steps = [*steps_of(call.settings), ESTIMATE]
    results = perform(call, steps, RunOptions(dry_run=True, open_executor=open_executor))
    for it in results:
        if "estimate" in it.body:
            it.body["estimate"] = it.body["estimate"]["pace"].estimate(it.body)
    return Report(call.command, call.now, results, plan_tables(results))


def plan_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `plan` prints: the tables of a run, as what it would do."""
    tables = (in_future(it) if isinstance(it, Grid) else it for it in run_tables(results))
    return [*tables, *plan_closing(results)]


def _compare(call: Call, path: Path) -> Report:
    from bucketwise.config.load import load

    if not path.exists():
        raise UsageError(f"--against {path}: there is no such file")
    today, other = call.settings, load(path, call.environ)
    check_comparable(today, other)
    known = today.policies | {name: it for name, it in other.policies.items() if name not in today.policies}
    policies = call.chosen(known, f"{today.path} and {path} have")
    results = perform(call, [against_step(today, other)], RunOptions(dry_run=True), policies=policies)
    return Report(call.command, call.now, results, against_tables(results))


JOB = Job(
    plan,
    body=running.Plan,
    examples=(
        "bucketwise plan",
        "bucketwise plan -p ticks --now 2026-12-01",
        "bucketwise plan --against changed.toml",
    ),
    has_workers=True,
    answers=True,
)
