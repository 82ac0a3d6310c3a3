"""What a changed policy file does that changing it back does not undo: a sentence for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bucketwise.config.durations import parse_duration
from bucketwise.config.models import LAYOUT_KEYS
from bucketwise.jobs.core.clock import iso

Body = dict[str, Any]

_SOURCE = (*sorted(LAYOUT_KEYS), "collection")


def irreversible(policy: str, body: Body) -> list[str]:
    """Returns the sentences on one policy, from its comparison in the words of the JSON."""
    return [
        f"policy {policy}: {it}"
        for it in (*_deleted(body), *_ended(body), *_of_summaries(body), *_broken(body))
    ]


def _deleted(body: Body) -> Iterator[str]:
    if when := _when(body, "deleted"):
        keys = _keys(body, "archive", *_SOURCE)
        yield f"{keys}: more buckets are deleted, {when}: only a restore brings them back"


def _ended(body: Body) -> Iterator[str]:
    for it in body["changed"]:
        if it["key"] == "retain.archive" and _is_shorter(it["against"], it["today"]):
            stands = "after its tombstone has stood for retain.archive_grace"
            yield f"{_keys(body, 'retain.archive')}: what is archived longer is removed for good, {stands}"


def _is_shorter(span: str | None, than: str | None) -> bool:
    """Returns whether a span is shorter, both as the policy file writes them; None: forever."""
    ends, before = (None if it is None else parse_duration(it) for it in (span, than))
    return ends is not None and (before is None or ends < before)


def _of_summaries(body: Body) -> Iterator[str]:
    for level in body["now"]["difference"]["summaries"]:
        if when := _when(body, "summaries", level):
            past = f"{_keys(body, f'retain.{level}')}: more {level} summaries are past it, {when}"
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
            keys = _keys(body, "rollup", *_SOURCE)
            yield (
                f"{keys}: {count:,} {level} summaries {since} are of readings that are neither live nor "
                "archived: they can't be rolled up again"
            )


def _broken(body: Body) -> Iterator[str]:
    if (more := body["in_90_days"]["difference"]["quarantined"]) > 0 and body["only_in"] is None:
        yield f"{_keys(body, *_SOURCE)}: {more:,} more buckets break their model: they are left out and stay"


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
