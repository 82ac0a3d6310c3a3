"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from buckets.fields.selectors import extended_json
from config.policies import LEVEL_NAMES
from jobs.clock import iso
from jobs.output.report import Result
from jobs.output.text.ending import ending_lines
from jobs.output.text.receipts import event
from rollups.calendar.levels import ROWS
from rollups.summaries.documents import percentile_key

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}
_MOST_QUARANTINED = 20
#: Columns that are not called as their keys.
_HEADS = {
    "bytes": "size", "bytes_before": "size before", "bytes_after": "after",
    "output": "to", "pinned_until": "until",
}  # fmt: skip
Body = dict[str, Any]


def rollup_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `rollup` prints."""
    return [_rollup_table(results), *_leftovers(results), *fit_lines(results)]


def _rollup_table(results: Sequence[Result]) -> RenderableType:
    bodies = [result.body.get("rollup", result.body) for result in results]
    levels = _levels_in(bodies)
    heads = [head for level in levels for head in (f"{level} written", "unchanged")]
    table = _table("Roll-up", "policy", "readings", *heads)
    for result, body in zip(results, bodies, strict=True):
        of_levels = [body.get(it, {}).get(key) for it in levels for key in ("written", "unchanged")]
        table.add_row(result.policy, *map(_number, [body.get("readings"), *of_levels]), _outcome(result))
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
    return _table_of("Archive", results, *keys, step="archive")


def run_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `run` prints."""
    levels = _levels_in(result.body.get("expiry", {}) for result in results)
    is_compacted = any(result.body.get("compact", {}).get("commits") for result in results)
    return [
        _rollup_table(results),
        _archive_table(results),
        *([compact_table(results)] if is_compacted else []),
        _table_of("Expired summaries", results, *levels, step="expiry"),
        *ending_lines(results),
        *_held_lines(results),
        *_leftovers(results),
        *fit_lines(results),
    ]


def _held_lines(results: Sequence[Result]) -> Iterator[Text]:
    for result in results:
        for hold, count in result.body.get("expiry", {}).get("held", {}).items():
            yield Text(f"{result.policy}: {count:,} expired summaries stay: held by {hold}")


def compact_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `compact` prints."""
    keys = ("commits", "into", "buckets", "bytes_before", "bytes_after")
    return _table_of("Compaction", results, *keys, step="compact")


def drill_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `drill` prints."""
    return _table_of("Restore drill", results, "days", "buckets", "equal", "differing")


def verify_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `verify` prints: counts, and each damage."""
    damage = [
        Text(f"{result.policy}: {it['code']} {it['place']}: {it['message']}", style="bold red")
        for result in results
        for it in result.body.get("damage", [])
    ]
    return [_table_of("Verify", results, "parts", "readings", "bad"), *damage]


def restore_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `restore` prints."""
    keys = ("to", "buckets", "readings", "overflow", "versions", "pinned", "pinned_until")
    return _table_of("Restore", results, *keys)


def unpin_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `unpin` prints."""
    return _table_of("Unpin", results, "buckets")


def publish_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `publish` prints."""
    return _table_of("Published", results, "keys")


def erase_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `erase` prints."""
    keys = ("buckets", "live", "online", "archived", "commits_rewritten", "summaries")
    return _table_of("Erase", results, *keys)


def receipts_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `receipts` prints: a row for each delete."""
    table = _table("Receipts", "policy", "number", "at", "from", "buckets", "held by")
    for result in results:
        for it in result.body.get("deletes", []):
            held = it.get("held_by") or {}
            place = held.get("commit") or held.get("collection") or event(it)
            row = (_number(it["sequence"]), _instant(it["at"]), it.get("collection", "–"))
            table.add_row(result.policy, *row, _number(it.get("buckets")), place, _outcome(result))
    return table


def sign_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `sign` prints."""
    return _table_of("Signed", results, "key", "manifests", "receipts")


def readings_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `readings` prints beside its output."""
    return [_table_of("Readings", results, "output", "readings", "quarantined"), *_leftovers(results)]


def findings_table(title: str, findings: Iterable[Body]) -> RenderableType:
    """Returns findings as a table, a row for each."""
    table = plain_table(title, "severity", "policy", "code", "place", "message")
    for it in findings:
        severity = Text(it["severity"], style=_STYLES[it["severity"]])
        told = (Text(printable(it[key] or "–")) for key in ("policy", "code", "place", "message"))
        table.add_row(severity, *told)
    return table


def parts_lines(results: Iterable[Result]) -> list[RenderableType]:
    """Returns how much of each offline archive an audit has read."""
    told = ((it.policy, parts_read(it.body)) for it in results)
    return [Text(f"{policy}: {text}") for policy, text in told if text]


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
        parts.append(f"{_instant(fit['first'])} to {_instant(fit['last'])}")
        parts += [f"{share:.4g} of `{name}` finite" for name, share in fit["finite"].items()]
    parts += [f"e.g. {_example(it)}" for it in fit["examples"]]
    if fit["unused_fields"]:
        parts.append(f"not used: {', '.join(fit['unused_fields'])}")
    return "; ".join(parts)


def _example(it: Body) -> str:
    values = " ".join(f"{name}={_statistic(value)}" for name, value in it["values"].items())
    return f"{_series(it)} at {_instant(it['time'])}: {values}"


def summarize_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a row for each series and value field; below, what the answer rests on and what it lacks."""
    tables: list[RenderableType] = []
    for body in (result.body for result in results if result.body):
        percents = [percentile_key(percent) for percent in body["percentiles"]]
        keys = ("count", "min", "avg", "max", "stddev", *percents, "first", "last")
        table = plain_table("Summary", "series", "field", *keys, right=keys)
        for one in body["series"]:
            series = " ".join(f"{name}={value}" for name, value in one["series"].items()) or "all"
            for name, value in one["values"].items():
                table.add_row(Text(printable(series)), Text(name), *(_statistic(value[key]) for key in keys))
        *counted, last = (f"{count:,} {ROWS[level].noun}" for level, count in body["windows"].items())
        basis = f"{', '.join(counted)} and {last} ({body['summaries']:,} summaries)"
        span = f"{_instant(body['since'])} to {_instant(body['until'])}"
        tables += [table, Text(f"{span}, from {basis}")]
        for gap in body["missing"]:
            text = f"incomplete: {_instant(gap['since'])} to {_instant(gap['until'])}: {gap['reason']}"
            tables.append(Text(text, style="yellow"))
    return tables


def printable(text: str) -> str:
    """Returns text with escapes for whatever moves a terminal's cursor, changes its colours, or reverses the
    line."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def _statistic(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def status_tables(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what `status` prints: how far each policy is, and its last runs."""
    keys = ("rolled_up_through", "archived_through", "waiting", "pinned", "pinned_until", "quarantined")
    runs = _table("Last runs", "policy", "verb", "runs", "started", "ended", "error")
    for result in results:
        for run in result.body.get("last_runs", []):
            told = [_cell(key, run[key]) for key in ("verb", "runs", "started", "ended")]
            error = (run["error"] or "").partition("\n")[0]
            runs.add_row(result.policy, *told, Text(error), run["outcome"])
    return [_table_of("Status", results, *keys), runs]


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
        told = [late["reason"] for body in bodies if (late := body.get("late")) and late["reason"]]
        lines += [Text(f"{result.policy}: late readings: {reason}") for reason in told]
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


def plain_table(title: str, *heads: str, right: Collection[str] = ()) -> Table:
    """Returns one that has no rows yet. Those at the `right` are columns of numbers."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    return table


def _table(title: str, *heads: str) -> Table:
    texts = ("policy", "to", "verb", "started", "ended", "error")
    return plain_table(title, *heads, "outcome", right=[it for it in heads if it not in texts])


def _table_of(title: str, results: Sequence[Result], *keys: str, step: str = "") -> Table:
    """Returns a row for each policy with the values of these keys; `step`: that of the step, where there are
    several."""
    table = _table(title, "policy", *(_HEADS.get(it, it.replace("_", " ")) for it in keys))
    for result in results:
        body = result.body.get(step, result.body)
        table.add_row(result.policy, *(_cell(key, body.get(key)) for key in keys), _outcome(result))
    return table


def _cell(key: str, value: Any) -> str:
    if isinstance(value, int):
        return size(value) if key.startswith("bytes") else f"{value:,}"
    return value if isinstance(value, str) else _instant(value)


def _outcome(result: Result) -> Text:
    style = "green" if result.outcome == "done" else "yellow" if result.exit_code in (0, 3) else "bold red"
    return Text(result.outcome, style=style)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _instant(value: Any) -> str:
    return "–" if value is None else iso(value)


def size(count: int) -> str:
    """Returns bytes as text, in the unit that suits them."""
    scaled, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):  # noqa: B007  # the last one stands for all above
        if scaled < 1000:
            break
        scaled /= 1000
    return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
