"""What happens to buckets, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.jobs.clock import iso
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import printable

Body = dict[str, Any]
_STATES = {
    "live": "in the source only",
    "both": "in the source, and in the archive",
    "archived": "in the offline archive",
    "online": "in the online archive",
    "quarantined": "in the source, quarantined",
}


_DONE = {
    "archive": "archived",
    "delete": "deleted from the source",
    "expire": "removed from the archive for good",
    None: "nothing",
}


def explain_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a paragraph for each bucket; where there is none, what is known instead."""
    bodies = ((it.policy, it.body) for it in results if "buckets" in it.body)
    return [Text(printable(line)) for policy, body in bodies for line in _lines(policy, body)]


def _lines(policy: str, body: Body) -> Iterator[str]:
    if not body["buckets"]:
        yield f"{policy}: no bucket was found: {body['state']}"
    if searched := body["searched"]:
        yield f"  {searched['read']:,} of {searched['commits']:,} commits were searched; --at names the day"
    for it in body["buckets"]:
        series = " ".join(f"{name}={value}" for name, value in (it["series"] or {}).items())
        yield f"{policy}: _id {extended_json(it['id'])}{f', {series}' if series else ''}"
        if it["first"] is not None:
            count = "" if it["readings"] is None else f"{it['readings']:,} readings, "
            yield f"  holds  {count}{iso(it['first'])} to {iso(it['last'])}"
        yield f"  is     {_STATES[it['state']]}"
        yield f"  rule   {it['rule']}"
        yield f"  next   {_next(it['next'])}"
        yield from (f"  held   by {hold['name']}: {hold['reason']}" for hold in it["holds"])
        yield from (f"  was    {_event(event)}" for event in it["history"])


def _next(it: Body) -> str:
    done = _DONE[it["action"]]
    return done if it["at"] is None else f"{done} by a run after {iso(it['at'])}"


def _event(it: Body) -> str:
    parts = [it["event"]]
    parts += [f"in commit {it['commit']}"] if it["commit"] else []
    parts += [f"receipt {it['receipt']}"] if it["receipt"] else []
    parts += [f"by `{it['verb']}`, run {it['run']}"] if it["run"] else []
    parts += [it["detail"]] if it["detail"] else []
    at = iso(it["at"]) if it["at"] else "–"
    return f"{at}  {', '.join(parts)}"
