"""Tables and lines for people: their cells and frames, and what several jobs print."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from bucketwise.jobs.core import logs
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job
from bucketwise.jobs.output.grid import Attention, Grid
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text import duration, first_of, printable, size

Body = dict[str, Any]

#: Columns that are not called as their keys.
_HEADS = {
    "bytes": "size", "bytes_before": "size before", "bytes_after": "after",
    "output": "to", "pinned_until": "until",
}  # fmt: skip


def outcome_table(title: str, *heads: str, minor: Collection[str] = ()) -> Grid:
    """Returns one without rows, whose last column is the outcome."""
    return Grid(title, (*heads, "outcome"), minor)


def table_of(title: str, results: Sequence[Result], *keys: str, step: str = "") -> Grid:
    """Returns a row for each policy that has values of these keys, and none where all of them are zero.
    `step`: that of the step, where there are several."""
    table = outcome_table(title, "policy", *(_HEADS.get(it, it.replace("_", " ")) for it in keys))
    rows = [(it, [_body_of(it, step).get(key) for key in keys]) for it in results]
    for result, values in telling(rows):
        table.add_row(result.policy, *map(cell, keys, values), outcome(result))
    return table


def telling(rows: Sequence[tuple[Result, list[Any]]]) -> Sequence[tuple[Result, list[Any]]]:
    """Returns the rows that have values. Where all of these are zero there are none: the closing line says
    that there was nothing to do."""
    if not any(it for _, values in rows for it in values if not isinstance(it, str)):
        return []
    return [(it, values) for it, values in rows if any(value is not None for value in values)]


def _body_of(result: Result, step: str) -> Body:
    inner = result.body.get(step)
    return inner if isinstance(inner, dict) else result.body


def cell(key: str, value: Any) -> str:
    """Returns the value of a key as text."""
    if isinstance(value, int):
        return size(value) if key.startswith("bytes") else f"{value:,}"
    return value if isinstance(value, str) else instant(value)


def outcome(result: Result) -> Text:
    """Returns how a policy's turn ended, in its colour."""
    style = "green" if result.outcome == "done" else "yellow" if result.exit_code in (0, 3) else "bold red"
    return Text(result.outcome, style=style)


def number(value: int | None, none: str = "–") -> str:
    """Returns a number with commas between thousands; `none` where there is none."""
    return none if value is None else f"{value:,}"


def number_range(first: int, last: int) -> str:
    """Returns numbers from the first to the last as text: 1–8, or 9."""
    return "–".join(dict.fromkeys(map(number, (first, last))))


def instant(value: Any) -> str:
    """Returns an instant as text; a dash for none."""
    return "–" if value is None else iso(value)


_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}
_MOST_QUARANTINED, _MOST_NAMED = 20, 3

_ODD_SUMMARIES = {
    "missed": "summaries lack readings that came late: the others of their time are gone from the "
    "collection, by a TTL index, another policy's archive, retain.archive, or by hand",
    "outdated": "summaries stay as earlier settings made them, since their readings are gone",
    "gone": "summaries count readings that are neither live nor archived: somebody took them out, and "
    "`bucketwise audit` says what to do",
}


def job_table(job: Job, results: Sequence[Result]) -> Grid:
    """Returns the table of a job: a row for each policy."""
    return table_of(job.title, results, *job.columns, step=job.name)


def findings_table(title: str, findings: Iterable[Body]) -> Grid:
    """Returns findings as a table. Those that say the same are one row."""
    table = Grid(title, ("severity", "policy", "code", "place", "message"))
    same = defaultdict[tuple[Any, ...], list[Body]](list)
    for it in findings:
        same[it["severity"], it["policy"], it["code"], it["message"]].append(it)
    for (severity, policy, code, message), some in same.items():
        table.needs_attention |= severity != "ok"
        more = f" (so it is at {len(some):,} places; --json names them)" if len(some) > 1 else ""
        place = some[0]["place"]
        cells = (policy, code, place, f"{message.removeprefix(f'{place}: ')}{more}")
        style = _STYLES[severity]
        table.add_row(Text(severity, style=style), *(Text(printable(it or "–")) for it in cells))
    return table


def fit_lines(results: Iterable[Result], *, is_full: bool = False) -> list[RenderableType]:
    """Returns how each policy's documents are understood, where some were looked at and something is odd, or
    `is_full`."""
    steps = (
        (it.policy, [it.body, *(it.body.get(step, {}) for step in ("rollup", "archive"))]) for it in results
    )
    found = ((policy, body["fit"]) for policy, bodies in steps for body in bodies if body.get("fit"))
    told = ((policy, fit) for policy, fit in found if fit["sampled"] and (is_full or _is_odd(fit)))
    return [Text(printable(f"{policy}: {_fit(fit)}")) for policy, fit in told]


def _is_odd(fit: Body) -> bool:
    """Returns whether some buckets do not fit, or values are not finite numbers."""
    if not fit["readings"] or fit["buckets"] < fit["sampled"]:
        return True
    return any(share < 1 for share in fit["finite"].values())


def _fit(fit: Body) -> str:
    parts = [f"{fit['sampled']:,} buckets were looked at, {fit['buckets']:,} fit"]
    if fit["readings"]:
        parts.append(f"{fit['readings_a_bucket']:.4g} readings a bucket, of {fit['series']:,} series")
        parts.append(f"{instant(fit['first'])} to {instant(fit['last'])}")
        parts += [f"{share:.4g} of `{name}` finite" for name, share in fit["finite"].items()]
    parts += [f"e.g. {_example(it)}" for it in fit["examples"]]
    if fit["unused_fields"]:
        parts.append(f"not used: {', '.join(fit['unused_fields'])}")
    for path, it in fit.get("kinds", {}).items():
        keys = ", ".join(f'{key} = "{value}"' for key, value in it["keys"].items())
        parts.append(f"`{path}`: {it['why']} (values.{path}: {keys})")
    return "; ".join(parts)


def _example(it: Body) -> str:
    values = " ".join(f"{name}={statistic(value)}" for name, value in it["values"].items())
    return f"{_series(it)} at {instant(it['time'])}: {values}"


def statistic(value: Any) -> str:
    """Returns a number of a summary as text, the numbers of states, or a state itself."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {statistic(it)}" for key, it in value.items()) or "–"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def leftover_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns lines on buckets that stay, and why, and on quarantined ones."""
    lines: list[RenderableType] = []
    for result in results:
        # A bucket that both steps met is shown once.
        bodies = [result.body.get(step, {}) for step in ("rollup", "archive")] + [result.body]
        stops = [limit["stops"] for body in bodies if (limit := body.get("limit")) and limit["stops"]]
        lines += [Attention(f"{result.policy}: {it}", "bold red") for it in stops]
        reasons = [it for body in bodies for it in body.get("reasons", [])]
        lines += [Text(f"{result.policy}: {it['count']:,} stay: {it['reason']}") for it in reasons]
        lines += [Attention(f"{result.policy}: {it}") for body in bodies for it in _numberless(body)]
        late_reasons = [late["reason"] for body in bodies if (late := body.get("late")) and late["reason"]]
        lines += [Text(f"{result.policy}: late readings: {reason}") for reason in late_reasons]
        for key, what in _ODD_SUMMARIES.items():
            counts = (count for body in bodies if (count := body.get(key)))
            lines += [Attention(f"{result.policy}: {it:,} {what}") for it in counts]
        found = {_id_text(it): it for body in bodies for it in body.get("quarantine", [])}
        told, count = _by_reason(found)
        lines += [Attention(f"{result.policy}: {it}") for it in told]
        more = max(body.get("quarantined", 0) for body in bodies) - count
        if more > 0:
            lines.append(Attention(f"{result.policy}: {more:,} more quarantined: see --json"))
    return lines


def _by_reason(found: Mapping[str, Body]) -> tuple[list[str], int]:
    """Returns a line for each reason why buckets, by `_id`, are quarantined; and of how many they tell."""
    same = defaultdict[tuple[str, str], list[str]](list)
    for key, it in found.items():
        same[it["field"], it["reason"]].append(key)
    lines, count = list[str](), 0
    for (field, reason), keys in list(same.items())[:_MOST_QUARANTINED]:
        count += len(keys)
        named = ", ".join(keys[:_MOST_NAMED]) + (", …" if len(keys) > _MOST_NAMED else "")
        number = f"{len(keys):,} quarantined" if len(keys) > 1 else "quarantined"
        lines.append(f"{number}: _id {named}, {field}: {reason}")
    return lines, count


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


def _id_text(quarantined: Body) -> str:
    from bucketwise.buckets.fields.selectors import extended_json  # it brings BSON

    return extended_json(quarantined["id"])


def report_quarantined(results: Sequence[Result]) -> None:
    """Reports quarantined buckets on stderr, since stdout has the readings."""
    for body in (result.body for result in results if result.body.get("quarantined")):
        for it in body["quarantine"][:_MOST_QUARANTINED]:
            bucket = printable(f"_id {_id_text(it)}, {it['field']}: {it['reason']}")
            logs.complain(f"quarantined, and left out: {bucket}", "")
        more = body["quarantined"] - len(body["quarantine"][:_MOST_QUARANTINED])
        if more > 0:
            logs.complain(f"{more:,} more quarantined: `bucketwise run --json` lists them", "")


def lake_lines(results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yields a line for each table that has changed, or could not."""
    for result in results:
        body = result.body.get("lake") or {}
        if "error" in body:
            yield Attention(f"{result.policy}: its Iceberg table is behind: {body['error']}")
        elif body.get("added") or body.get("removed"):
            yield lake_line(result.policy, body["added"], body["removed"], body["snapshot"])


def lake_line(policy: str, added: int, removed: int, snapshot: int) -> Text:
    """Returns a line on what has changed in a policy's Iceberg table."""
    return Text(f"{policy}: Iceberg table: {added:,} parts added, {removed:,} taken out; snapshot {snapshot}")


def publish_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that a run has published, or could not."""
    bodies = [(it.policy, it.body["publish"]) for it in results if "publish" in it.body]
    return [
        Attention(f"{policy}: not published: {body['error']}")
        if "error" in body
        else Text(f"{policy}: {body['keys']:,} keys published")
        for policy, body in bodies
    ]


def pause_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that is paused, or whose window is closed. Where a run was cut off,
    the error says so."""
    found = [(it.policy, it.paused or it.body.get("paused")) for it in results if it.error is None]
    paused = [
        Attention(f"{policy}: paused since {iso(it['since'])} by {it['by']}: {it['reason']}")
        for policy, it in found
        if it
    ]
    closed = ((it.policy, it.stopped, it.next_window) for it in results)
    lines = [f"{policy}: {why}; the next one opens {iso(at)}" for policy, why, at in closed if why and at]
    return [*paused, *(Text(printable(line), style="yellow") for line in lines)]


def notes(results: Sequence[Result]) -> list[RenderableType]:
    """Returns what followed the steps, and which policies were left alone."""
    return [*lake_lines(results), *publish_lines(results), *pause_lines(results)]


_WIDTH_OF_FILES = 2000  # where output is no terminal, nothing is folded


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # rich would end the process with 1, whatever the report says


def print_tables(tables: Iterable[RenderableType], out: TextIO) -> None:
    """Prints tables and lines. Raises BrokenPipeError if the reader has gone."""
    width = None if out.isatty() else _WIDTH_OF_FILES
    console = _Console(file=out, width=width, markup=False, highlight=False)
    for table in tables:
        console.print(table, soft_wrap=isinstance(table, Text), crop=False)  # whole lines, to be copied from


#: What a plan calls what a run calls otherwise.
_TITLES = {
    "Roll-up": "Would be rolled up",
    "Archive": "Would be archived",
    "Compact": "Would be merged",
    "Expired summaries": "Summaries that would expire",
}
#: So many policies that need attention are named.
_MOST_ODD = 10
_CONSONANT_Y = re.compile("(?<![aeiou])y$")
_PLANNED_HEADS = {"deleted": "to delete"}
#: Columns of what only a run can tell.
_UNKNOWN = ("parts", "size")


def counted(count: int, one: str) -> str:
    """Returns a number with its noun: 1 policy, 2 policies."""
    if count == 1:
        return f"1 {one}"
    return f"{count:,} {_CONSONANT_Y.sub('ie', one)}s"


def sums(results: Sequence[Result], *keys: str) -> list[int]:
    """Returns the sum of each of these keys over policies."""
    return [sum(it.body.get(key) or 0 for it in results) for key in keys]


def closing(results: Sequence[Result], what: str) -> list[Text]:
    """Returns the line: how many policies, what was done, and which need attention."""
    if not results:
        return []
    done = what if any(it.body for it in results) else "none was worked on"
    return [Text(f"{counted(len(results), 'policy')}: {done}{attention(results)}")]


def attention(results: Sequence[Result]) -> str:
    """Returns which policies need attention, and how they ended; nothing where none does."""
    odd = [f"{it.policy} ({it.outcome})" for it in results if it.outcome != "done"]
    if not odd:
        return ""
    return f"; {len(odd):,} {'needs' if len(odd) == 1 else 'need'} attention: {first_of(odd, _MOST_ODD)}"


def run_closing(results: Sequence[Result]) -> list[Text]:
    """Returns the line of `run`, `rollup` and `archive`."""
    seconds = sum(sum(it.measures.seconds.values()) for it in results)
    removed, stored = (_total(results, "archive", key) for key in ("removed_bytes", "bytes"))
    done = [
        *_some(_rolled_up(results), "{} rolled up", "reading"),
        *_some(_total(results, "archive", "buckets"), "{} archived", "bucket"),
        *([f"{size(removed)} removed"] if removed else []),
        *([f"{size(stored)} added to the archive"] if stored else []),
        *_some(_expired(results), "{} expired", "summary"),
    ]
    idle = "nothing was due" if any(it.exit_code in (0, 3) for it in results) else "nothing was done"
    return closing(results, f"{', '.join(done) or idle}; {seconds:.1f} s")


def plan_closing(results: Sequence[Result]) -> list[Text]:
    """Returns the line of `plan` and `archive --dry-run`."""
    would = [
        *_some(_rolled_up(results), "roll up {}", "reading"),
        *_some(_total(results, "archive", "buckets"), "archive {}", "bucket"),
        *_some(_total(results, "archive", "deleted"), "delete {}", "bucket"),
        *_some(_expired(results), "expire {}", "summary"),
    ]
    what = "a run would find nothing to do"
    if would:
        what = f"a run would {', '.join(would)}{_estimated(results)}"
    return closing(results, f"{what}. Nothing was changed")


def _estimated(results: Sequence[Result]) -> str:
    """Returns what it would take by the last runs of the policies, as far as these tell."""
    sizes = {"added to the archive": "bytes", "removed": "removed_bytes"}
    counts = ((what, _total(results, "estimate", key)) for what, key in sizes.items())
    told = [f"about {size(count)} {what}" for what, count in counts if count]
    seconds = _total(results, "estimate", "seconds")
    told += [f"about {duration(seconds)}"] if seconds else []
    return f"; by the last runs {', '.join(told)}" if told else ""


def in_future(table: Grid) -> Grid:
    """Returns a table of a run as that of a plan, without what only a run can tell."""
    kept = [at for at, head in enumerate(table.heads) if head not in _UNKNOWN]
    heads = [_PLANNED_HEADS.get(it, re.sub(r"^(.+) written$", r"\1 to write", it)) for it in table.heads]
    rows = [[row[at] for at in kept] for row in table.rows]
    title = _TITLES.get(table.title, table.title)
    return replace(table, title=title, heads=[heads[at] for at in kept], rows=rows)


def _total(results: Sequence[Result], step: str, key: str) -> int:
    """Returns the sum of a key of a step, of a verb with one step or with several."""
    return sum(_body_of(it, step).get(key) or 0 for it in results)


def _rolled_up(results: Sequence[Result]) -> int:
    """Returns how many readings were rolled up; an archive has a count of its own."""
    bodies = (_body_of(it, "rollup") for it in results)
    return sum(it.get("readings") or 0 for it in bodies if "hourly" in it)


def _expired(results: Sequence[Result]) -> int:
    """Returns how many summaries have expired."""
    found = (result.body.get("expiry", {}) for result in results)
    return sum(it for body in found for it in body.values() if type(it) is int)


def _some(count: int, text: str, noun: str) -> list[str]:
    return [text.format(counted(count, noun))] if count else []
