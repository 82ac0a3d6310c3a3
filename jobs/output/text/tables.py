"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.config.policies import LEVEL_NAMES
from bucketwise.jobs import logs
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import (
    cell,
    instant,
    number,
    outcome,
    outcome_table,
    plain_table,
    printable,
    table_of,
)
from bucketwise.jobs.output.text.working import archive_expiry_lines
from bucketwise.rollups.calendar.levels import LEVEL_RULES
from bucketwise.rollups.statistics import table_keys

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}
_MOST_QUARANTINED = 20
_MISSED = (
    "summaries lack readings that came late: the others of their time are gone from the collection, by a TTL "
    "index, another policy's archive, retain.archive, or by hand"
)
_OUTDATED = "summaries stay as earlier settings made them, since their readings are gone"
_GONE = (
    "summaries count readings that are neither live nor archived: somebody took them out, and "
    "`bucketwise audit` says what to do"
)
#: Verbs whose results are one table: its title, and its columns by their keys.
_VERBS = {
    "compact": ("Compaction", ("commits", "into", "buckets", "bytes_before", "bytes_after")),
    "drill": ("Restore drill", ("days", "buckets", "equal", "differing")),
    "restore": ("Restore", ("to", "buckets", "readings", "overflow", "versions", "pinned", "pinned_until")),
    "unpin": ("Unpin", ("buckets",)),
    "publish": ("Published", ("keys",)),
    "sign": ("Signed", ("key", "manifests", "receipts")),
}
Body = dict[str, Any]


def table_of_verb(verb: str, results: Sequence[Result]) -> RenderableType:
    """Returns what a verb of `_VERBS` prints: a row for each policy."""
    title, keys = _VERBS[verb]
    return table_of(title, results, *keys, step=verb)


def restore_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `restore` prints: counts, and what the archive could not give."""
    missing = [
        Text(printable(f"{result.policy}: missing: {_missing(it)}"), style="bold red")
        for result in results
        for it in result.body.get("missing", [])
    ]
    return [table_of_verb("restore", results), *missing]


def _missing(it: Body) -> str:
    receipts = ", ".join(str(receipt["sequence"]) for receipt in it["receipts"]) or "none"
    lost = f"{it['buckets']:,} buckets of commit {it['commit']}, {it['live']:,} of them still live"
    return f"{lost}: {it['place']}: {it['reason']}; receipts of deletes: {receipts}"


def rollup_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `rollup` prints."""
    return [_rollup_table(results), *_missing_lines(results), *_leftovers(results), *fit_lines(results)]


def _rollup_table(results: Sequence[Result]) -> RenderableType:
    bodies = [result.body.get("rollup", result.body) for result in results]
    levels = _levels_in(bodies)
    heads = [head for level in levels for head in (f"{level} written", "unchanged")]
    table = outcome_table("Roll-up", "policy", "readings", *heads)
    for result, body in zip(results, bodies, strict=True):
        of_levels = [body.get(it, {}).get(key) for it in levels for key in ("written", "unchanged")]
        table.add_row(result.policy, *map(number, [body.get("readings"), *of_levels]), outcome(result))
    return table


def _levels_in(bodies: Iterable[Body]) -> list[str]:
    """Returns the levels that any policy has, the finest first; hours and days are always there."""
    found = {name for body in bodies for name in body}
    return [name for name in LEVEL_NAMES if name in found or name in ("hourly", "daily")]


def archive_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `archive` prints."""
    return [_archive_table(results), *_leftovers(results), *fit_lines(results)]


def _archive_table(results: Sequence[Result]) -> RenderableType:
    keys = ("to", "buckets", "readings", "parts", "bytes", "deleted", "left", "quarantined")
    return table_of("Archive", results, *keys, step="archive")


def run_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `run` prints."""
    levels = _levels_in(result.body.get("expiry", {}) for result in results)
    is_compacted = any(result.body.get("compact", {}).get("commits") for result in results)
    return [
        _rollup_table(results),
        _archive_table(results),
        *([table_of_verb("compact", results)] if is_compacted else []),
        table_of("Expired summaries", results, *levels, step="expiry"),
        *_missing_lines(results),
        *archive_expiry_lines(results),
        *_expiry_lines(results),
        *_leftovers(results),
        *fit_lines(results),
    ]


def _missing_lines(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        for it in result.body.get("rollup", result.body).get("missing", ()):
            lost = f"; {it['lost']:,} stay lost, since their readings are gone" if it["lost"] else ""
            what = f"{it['missing']:,} {it['level']} summaries of {it['since']:%Y-%m} had been removed"
            yield Text(f"{result.policy}: {what} by somebody{lost}", style="yellow")


def _expiry_lines(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        body = result.body.get("expiry", {})
        waiting = {level: count for level, count in body.get("waiting", {}).items() if count}
        for level, count in waiting.items():
            under = "have a tombstone, or get one: `bucketwise undelete` lifts it"
            yield Text(f"{result.policy}: {count:,} {level} summaries are past their retain, and {under}")
        for hold, count in body.get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} expired summaries stay: held by {hold}")
        for limit in body.get("limits", ()):
            if limit["stops"]:
                yield Text(f"{result.policy}: {limit['stops']}", style="yellow")


def verify_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `verify` prints: counts, and each damage."""
    damage = [
        Text(f"{result.policy}: {it['code']} {it['place']}: {it['message']}", style="bold red")
        for result in results
        for it in result.body.get("damage", [])
    ]
    return [table_of("Verify", results, "parts", "readings", "bad"), *damage]


def readings_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `readings` prints beside its output."""
    return [table_of("Readings", results, "output", "readings", "quarantined"), *_leftovers(results)]


def findings_table(title: str, findings: Iterable[Body]) -> RenderableType:
    """Returns findings as a table, a row for each."""
    table = plain_table(title, "severity", "policy", "code", "place", "message")
    for it in findings:
        severity = Text(it["severity"], style=_STYLES[it["severity"]])
        cells = (Text(printable(it[key] or "–")) for key in ("policy", "code", "place", "message"))
        table.add_row(severity, *cells)
    return table


def parts_lines(results: Iterable[Result]) -> list[RenderableType]:
    """Returns how much of each offline archive an audit has read."""
    read = ((it.policy, parts_read(it.body)) for it in results)
    return [Text(f"{policy}: {text}") for policy, text in read if text]


def parts_read(body: Body) -> str:
    """Returns how many parts an audit has read, as text; empty where there are none."""
    if not body.get("parts"):
        return ""
    all_in = f"; all within {body['days']:,} days" if body["days"] > 1 else ""
    return f"read {body['parts_read']:,} of {body['parts']:,} parts{all_in}"


def fit_lines(results: Iterable[Result]) -> list[RenderableType]:
    """Returns how each policy's documents are understood, where some were looked at."""
    steps = (
        (it.policy, [it.body, *(it.body.get(step, {}) for step in ("rollup", "archive"))]) for it in results
    )
    found = ((policy, body["fit"]) for policy, bodies in steps for body in bodies if body.get("fit"))
    return [Text(printable(f"{policy}: {_fit(fit)}")) for policy, fit in found if fit["sampled"]]


def _fit(fit: Body) -> str:
    parts = [f"{fit['sampled']:,} buckets were looked at, {fit['buckets']:,} fit"]
    if fit["readings"]:
        parts.append(f"{fit['readings_a_bucket']:.4g} readings a bucket, of {fit['series']:,} series")
        parts.append(f"{instant(fit['first'])} to {instant(fit['last'])}")
        parts += [f"{share:.4g} of `{name}` finite" for name, share in fit["finite"].items()]
    parts += [f"e.g. {_example(it)}" for it in fit["examples"]]
    if fit["unused_fields"]:
        parts.append(f"not used: {', '.join(fit['unused_fields'])}")
    return "; ".join(parts)


def _example(it: Body) -> str:
    values = " ".join(f"{name}={_statistic(value)}" for name, value in it["values"].items())
    return f"{_series(it)} at {instant(it['time'])}: {values}"


def summarize_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a row for each series and value field; below, what the answer rests on and what it lacks."""
    tables: list[RenderableType] = []
    for body in (result.body for result in results if result.body):
        keys = table_keys(body["percentiles"])
        table = plain_table("Summary", "series", "field", *keys, right=keys)
        for one in body["series"]:
            series = " ".join(f"{name}={value}" for name, value in one["series"].items()) or "all"
            for name, value in one["values"].items():
                table.add_row(Text(printable(series)), Text(name), *(_statistic(value[key]) for key in keys))
        *counted, last = (f"{count:,} {LEVEL_RULES[level].noun}" for level, count in body["windows"].items())
        basis = f"{', '.join(counted)} and {last} ({body['summaries']:,} summaries)"
        span = f"{instant(body['since'])} to {instant(body['until'])}"
        tables += [table, Text(f"{span}, from {basis}")]
        for gap in body["missing"]:
            text = f"incomplete: {instant(gap['since'])} to {instant(gap['until'])}: {gap['reason']}"
            tables.append(Text(text, style="yellow"))
    return tables


def _statistic(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def status_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `status` prints: how far each policy is, and its last runs."""
    keys = ("rolled_up_through", "archived_through", "waiting", "pinned", "pinned_until", "quarantined")
    runs = outcome_table("Last runs", "policy", "verb", "runs", "started", "ended", "error")
    for result in results:
        for run in result.body.get("last_runs", []):
            cells = [cell(key, run[key]) for key in ("verb", "runs", "started", "ended")]
            error = (run["error"] or "").partition("\n")[0]
            runs.add_row(result.policy, *cells, Text(error), run["outcome"])
    return [table_of("Status", results, *keys), runs]


def _leftovers(results: Sequence[Result]) -> list[RenderableType]:
    """Returns lines on buckets that stay, and why, and on quarantined ones."""
    lines: list[RenderableType] = []
    for result in results:
        # A bucket that both steps met is shown once.
        bodies = [result.body.get(step, {}) for step in ("rollup", "archive")] + [result.body]
        stops = [limit["stops"] for body in bodies if (limit := body.get("limit")) and limit["stops"]]
        lines += [Text(f"{result.policy}: {it}", style="bold red") for it in stops]
        reasons = [it for body in bodies for it in body.get("reasons", [])]
        lines += [Text(f"{result.policy}: {it['count']:,} stay: {it['reason']}") for it in reasons]
        lines += [
            Text(f"{result.policy}: {it}", style="yellow") for body in bodies for it in _numberless(body)
        ]
        late_reasons = [late["reason"] for body in bodies if (late := body.get("late")) and late["reason"]]
        lines += [Text(f"{result.policy}: late readings: {reason}") for reason in late_reasons]
        missed = [count for body in bodies if (count := body.get("missed"))]
        lines += [Text(f"{result.policy}: {it:,} {_MISSED}", style="yellow") for it in missed]
        outdated = [count for body in bodies if (count := body.get("outdated"))]
        lines += [Text(f"{result.policy}: {it:,} {_OUTDATED}", style="yellow") for it in outdated]
        gone = [count for body in bodies if (count := body.get("gone"))]
        lines += [Text(f"{result.policy}: {it:,} {_GONE}", style="yellow") for it in gone]
        found = {extended_json(it["id"]): it for body in bodies for it in body.get("quarantine", [])}
        for key, it in list(found.items())[:_MOST_QUARANTINED]:
            text = f"{result.policy}: quarantined: _id {key}, {it['field']}: {it['reason']}"
            lines.append(Text(printable(text), style="yellow"))
        more = max(body.get("quarantined", 0) for body in bodies) - min(len(found), _MOST_QUARANTINED)
        if more > 0:
            lines.append(Text(f"{result.policy}: {more:,} more quarantined: see --json", style="yellow"))
    return lines


def _numberless(body: Body) -> list[str]:
    """Returns lines on fields that hold no numbers though they should."""
    empty = [
        f"no reading that was rolled up has a finite value of `{it}`" for it in body.get("empty_fields", ())
    ]
    empty += [it["message"] for it in (body.get("fit") or {}).get("misfits", ())]
    days = body.get("valueless", [])[:_MOST_QUARANTINED]
    return [*empty, *(f"no finite value of `{it['field']}` on {it['day']}: {_series(it)}" for it in days)]


def _series(it: Body) -> str:
    return printable(" ".join(f"{name}={value}" for name, value in it["series"].items()) or "all")


def report_quarantined(results: Sequence[Result]) -> None:
    """Reports quarantined buckets on stderr, since stdout has the readings."""
    for body in (result.body for result in results if result.body.get("quarantined")):
        for it in body["quarantine"][:_MOST_QUARANTINED]:
            bucket = printable(f"_id {extended_json(it['id'])}, {it['field']}: {it['reason']}")
            logs.complain(f"quarantined, and left out: {bucket}", "")
        more = body["quarantined"] - len(body["quarantine"][:_MOST_QUARANTINED])
        if more > 0:
            logs.complain(f"{more:,} more quarantined: `bucketwise run --json` lists them", "")
