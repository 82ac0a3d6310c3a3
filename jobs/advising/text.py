"""Advice as text, and as an HTML page."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.jobs.output.page.template import render
from bucketwise.jobs.output.text.cells import number, plain_table, printable, size

Body = dict[str, Any]
QUERIES = ("last", "hour", "day", "month")
_HEADS = ["model", "documents", "data", "on disk", "indexes", "inserts/s", "updates/s"]
_HEADS += [f"{it} ms" for it in QUERIES]


def advice_lines(body: Body) -> list[RenderableType]:
    """Returns what `advise` prints."""
    return [Text(printable(it)) for it in _head(body)] + [_findings(body), *_candidates(body)]


def _head(body: Body) -> list[str]:
    now, sample, arrival = body["current"], body["sample"], body["arrival"]
    by = f"policy {body['policy']}" if body["policy"] else "; ".join(body["evidence"][:1])
    fill = "" if sample["fill"] is None else f"; buckets are filled to {sample['fill']:.0%} on average"
    return [
        f"{body['collection']}: model {body['model']} ({by})",
        f"{number(now['documents'])} documents, {number(now['readings'])} readings; "
        f"data {size(now['data_bytes'])}, on disk {size(now['storage_bytes'])}, "
        f"indexes {size(now['index_bytes'])}",
        f"sampled: {sample['buckets']:,} buckets with {sample['readings']:,} readings{fill}; bytes a bucket: "
        + ", ".join(f"{name} {count:,}" for name, count in sample["bucket_bytes"].items()),
        f"arrival: {arrival['writes']:,} writes, {arrival['told']}"
        if arrival["by"]
        else f"arrival is not known: {arrival['told']}",
    ]


def _findings(body: Body) -> RenderableType:
    table = plain_table("Findings", "code", "field", "what", "cost", "remedy")
    for it in body["findings"]:
        table.add_row(
            *(Text(printable(it[key] or "–")) for key in ("code", "field", "message", "cost", "remedy"))
        )
    return table if body["findings"] else Text("Nothing to improve was found")


def _candidates(body: Body) -> list[RenderableType]:
    if not body["candidates"]:
        return []
    table = plain_table("Models", *_HEADS, right=_HEADS[1:])
    for row in candidate_rows(body):
        table.add_row(*row)
    sample = body["sample"]
    notes = [
        f"Measured with {sample['tried_readings']:,} readings ({sample['tried']}), and scaled to the whole "
        "collection. Speeds are of this machine, with a warm cache: readings a second, milliseconds a query "
        "of one series.",
        *(f"{it['model']}: no place for {it['unfit']}" for it in body["candidates"] if it["unfit"]),
    ]
    return [table, *(Text(printable(it)) for it in notes)]


def candidate_rows(body: Body) -> list[list[str]]:
    """Returns a row a model that was measured, one for what an archive beside today's takes, and one for
    summaries."""
    rows = []
    for it in body["candidates"]:
        if it["unfit"] is None:
            speeds = [number(it["readings_per_second"].get(key)) for key in ("inserts", "updates")]
            rows.append([it["model"], *_sizes(it), *speeds, *_ms(it)])
        if "archive" in it:
            rows.append(["  its archive", *_sizes(it["archive"]), *["–"] * (2 + len(QUERIES))])
    if body["summaries"] and "query_ms" in body["summaries"]:
        rows.append(
            ["summaries", "–", size(body["summaries"]["data_bytes"]), *["–"] * 4, *_ms(body["summaries"])]
        )
    return rows


def _sizes(it: Body) -> list[str]:
    return [number(it["documents"]), *(size(it[f"{key}_bytes"]) for key in ("data", "storage", "index"))]


def _ms(it: Body) -> list[str]:
    return [f"{it['query_ms'][name]:.2f}" if name in it["query_ms"] else "–" for name in QUERIES]


def advice_page(report: Body) -> str:
    """Returns the page of a report, made of its JSON."""
    page, _ = render(
        "advice.html", {}, report=report, head=_head(report), rows=candidate_rows(report), heads=_HEADS
    )
    return page
