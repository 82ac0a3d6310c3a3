"""Holds, pauses, closed windows and receipts, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs.clock import iso
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import instant, number, outcome, outcome_table, plain_table, printable


def holds_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each hold of each policy."""
    heads = ("policy", "name", "series", "since", "until", "freezes", "placed", "by", "reason")
    table = plain_table("Holds", *heads)
    for result in results:
        for it in result.body.get("holds", ()):
            series = " ".join(f"{field}={value}" for field, value in it["series"].items()) or "all"
            since, until = (iso(it[key]) if it[key] else "–" for key in ("since", "until"))
            what = (it["name"], series, since, until, "yes" if it["freeze"] else "no")
            row = (result.policy, *what, iso(it["placed_at"]), it["by"], it["reason"])
            table.add_row(*map(printable, row))
    return table


def pauses_table(results: Sequence[Result]) -> RenderableType:
    """Returns a row for each policy, paused or not."""
    table = plain_table("Pauses", "policy", "paused since", "by", "reason")
    for result in results:
        it = result.body.get("paused")
        row = (iso(it["since"]), it["by"], it["reason"]) if it else ("–", "–", "–")
        table.add_row(result.policy, *map(printable, row))
    return table


def retired_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that has ended."""
    ended = [(it.policy, it.body["retired"]) for it in results if "retired" in it.body]
    return [
        Text(f"{policy}: {'is' if is_new else 'was'} retired; -p {policy} reads what it has archived")
        for policy, is_new in ended
    ]


def pause_lines(results: Sequence[Result]) -> list[RenderableType]:
    """Returns a line for each policy that is paused, or whose window is closed. Where a pause cut a run off,
    the error says so."""
    found = [(it.policy, it.paused or it.body.get("paused")) for it in results if it.error is None]
    lines = [
        f"{policy}: paused since {iso(it['since'])} by {it['by']}: {it['reason']}"
        for policy, it in found
        if it
    ]
    closed = ((it.policy, it.stopped, it.next_window) for it in results)
    lines += [f"{policy}: {why}; the next one opens {iso(at)}" for policy, why, at in closed if why and at]
    return [Text(printable(line), style="yellow") for line in lines]


Body = dict[str, Any]


#: Events of which their receipts say no more.
EVENTS = {
    "collections": "recorded: the collections of the archive, and how much must stay in them",
    "emptied": "gone: nothing was left in {commit}",
    "gap": "lost, with those before it",
    "gone": "copies removed: erased, or live again",
    "kept": "deleted by somebody else: the copies count",
    "rekept": "versions beside the archive rewritten by an erasure",
    "restore": "restored: live again",
    "superseded": "kept beside the archive: versions that count no more",
}


def event(receipt: Body) -> str:
    """Returns the event of a receipt that is not of a delete."""
    if receipt["kind"] in ("hold", "release"):
        did = "placed" if receipt["kind"] == "hold" else "released"
        return f"hold {receipt['hold']} {did} by {receipt['by']}"
    if receipt["kind"] == "expire":
        return f"gone from {receipt.get('commit') or receipt.get('into')}, by retain.archive"
    if receipt["kind"] == "time":
        return f"{iso(receipt['recorded'])} lifted, by {receipt['by']}: {receipt['reason']}"
    if receipt["kind"] == "retire":
        return f"the policy was retired by {receipt['by']}: {receipt['reason']}"
    if receipt["kind"] == "adopt":
        return f"taken over: {receipt['reason']}"
    if receipt["kind"] == "erase":
        return f"erased: {receipt['reason']}"
    if receipt["kind"] in ("tombstones", "undelete"):
        done = "placed" if receipt["kind"] == "tombstones" else "lifted"
        return f"tombstones {done}: {len(receipt['of'])}"
    return EVENTS[receipt["kind"]].format(**receipt)


def adopted_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `adopt` prints: which archives were taken over, and from whom."""
    table = outcome_table("Adopt", "policy", "taken over from", "at", "lineage")
    for result in results:
        it = result.body.get("adopted") or {}
        idle = "nobody: there was no need" if "adopted" in result.body and not it else "–"
        where = printable(it.get("from") or ("an unknown database" if it else idle))
        table.add_row(result.policy, where, instant(it.get("at")), number(it.get("lineage")), outcome(result))
    return table


def receipts_table(results: Sequence[Result]) -> RenderableType:
    """Returns what `receipts` prints: a row for each receipt."""
    table = outcome_table("Receipts", "policy", "number", "at", "done at", "by", "from", "buckets", "held by")
    for result in results:
        for it in result.body.get("deletes", []):
            held = it.get("held_by") or {}
            place = held.get("commit") or held.get("collection") or event(it)
            when = (number(it["sequence"]), instant(it["at"]), instant(it.get("done_at")), _who(it))
            what = (it.get("collection", "–"), number(it.get("buckets")), place)
            table.add_row(result.policy, *when, *what, outcome(result))
    return table


def _who(receipt: Body) -> str:
    """Returns who wrote a receipt, as `user@host`; a dash where it is of an earlier version."""
    return printable(f"{receipt['user']}@{receipt['host']}") if "user" in receipt else "–"
