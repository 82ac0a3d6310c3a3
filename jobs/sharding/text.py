"""Shard keys, as text."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from jobs.output.text.cells import plain_table, printable

Body = dict[str, Any]
_COLUMNS = ("key", "pattern", "values", "hottest shard", "one shard answers", "migrations", "jumbo")


def shard_tables(body: Body) -> list[RenderableType]:
    """Returns a table of the keys, then of each named key, and of the best candidate, the rest."""
    of = body["sharding"]
    table = plain_table(_title(of), *_COLUMNS, right=_COLUMNS[2:])
    for it in body["shard_keys"]:
        table.add_row(Text(_key(it), style="bold" if it["named"] else ""), *_row(it))
    shown: list[RenderableType] = [table]
    named = [it for it in body["shard_keys"] if it["named"]]
    best = [it for it in body["shard_keys"] if not it["named"]][:1]
    for it in (*named, *best):
        shown.append(Text(f"{_key(it)}: {printable(it['reason'])}"))
        shown += [Text(f"  {rule['severity']}: {printable(rule['message'])}") for rule in it["rules"]]
        shown += [Text(f"  {printable(command)}", style="dim") for command in it["commands"]]
    return shown


def _title(of: Body) -> str:
    asked = {"usual": "the usual queries", "file": "queries of the file", "profiler": "profiled queries"}
    return (
        f"Shard keys: {of['readings']:,} readings on {of['shards']} shards, by {of['sampled']:,} documents, "
        f"in the order of {printable(of['arrival'])}, and {asked[of['queries']]}"
    )


def _key(it: Body) -> str:
    return printable("{ " + ", ".join(f"{path}: {how}" for path, how in it["key"].items()) + " }")


def _row(it: Body) -> list[str]:
    if it["pattern"] is None:
        return ["refused", "", "", "", "", ""]
    shares = [f"{it[name]:.0%}" for name in ("hottest_share", "targeted_share")]
    counts = [f"{it[name]:,}" for name in ("cardinality", "migrations", "jumbo")]
    return [it["pattern"], counts[0], *shares, *counts[1:]]
