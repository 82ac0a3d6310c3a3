"""`bucketwise advise`: the model in use, findings, and what other models would take."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.config.errors import UsageError
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.job import Job, collection_names
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.streams import check_folder, write_atomically
from bucketwise.jobs.output.tables import counted, number
from bucketwise.jobs.output.text import printable, size

if TYPE_CHECKING:
    from bucketwise.buckets.health import Finding, Sampled
    from bucketwise.jobs.advise.candidates import Extract, Scratch
    from bucketwise.jobs.advise.server import CollectionStats
    from bucketwise.jobs.core.subject import Subject

Body = dict[str, Any]


def advise_on(
    call: Call, name: str, scratch: str | None, readings: int, candidates: bool, html: Path | None
) -> Report:
    """Looks at a sample of a collection, and tries it in other models. `scratch`: a database to make on the
    server; `readings`: how many are tried. Raises UsageError."""
    from bucketwise.buckets.health import arrival_by_ids, findings, late_findings, reading_findings
    from bucketwise.jobs.advise.candidates import extract, scratch_database
    from bucketwise.jobs.advise.server import by_oplog, collection_stats, hot_share, of_indexes, working_set
    from bucketwise.jobs.core.subject import subject_of

    progress = call.progress
    with call.database() as database:
        with progress.step(f"looking at {name}"):
            subject = subject_of(call, database, name)
            stats = collection_stats(subject)
            sampled = _sampled(subject, stats)
            each = sampled.fit.readings_a_bucket or 1.0
            series = sampled.decoded.columns.series
            part = extract(subject.source, series, readings, each, call.stop.check)
            hot = hot_share(subject.policy, sampled.fit.span)
            arrival = arrival_by_ids(sampled.batch.main, sampled.decoded) or by_oplog(subject, sampled.policy)
            found = [
                *findings(sampled),
                *late_findings(arrival, subject.policy, sampled.scaled),
                *reading_findings(part.exact, subject.policy),
                *of_indexes(subject, stats),
                *working_set(stats, hot),
            ]
        body = _body(subject, stats, sampled, part, found)
        body["arrival"] = {"by": arrival.by, "writes": len(arrival.late), "told": arrival.basis}
        if candidates and len(part.exact):
            with scratch_database(database, scratch) as made:
                body |= _candidates(made, part, body, call)
            body["recommendation"] = recommended(body)
            body["candidates"].append(_with_archive(body, hot))
    report = Report(call.command, call.now, [], advice_lines(body), None, 0, body)
    if html is not None:
        with write_atomically(html) as file:
            file.write(advice_page(report.plain()).encode())
    return report


def _sampled(subject: Subject, stats: CollectionStats) -> Sampled:
    from bucketwise.buckets.decoding.decode import decode
    from bucketwise.buckets.health import Sampled
    from bucketwise.buckets.sampling.fit import fit_of
    from bucketwise.buckets.sampling.sample import sample

    policy = subject.policy
    if subject.guess is not None:  # what some documents disagree with is to be told
        policy = policy.model_copy(update=subject.guess.left_out)
    batch = sample(subject.source)
    return Sampled(batch, decode(batch, policy), fit_of(batch, policy), policy, stats.documents)


def _body(
    subject: Subject, stats: CollectionStats, sampled: Sampled, part: Extract, found: list[Finding]
) -> Body:
    from bucketwise.buckets.models import model_of

    policy, fit = subject.policy, sampled.fit
    each = fit.readings_a_bucket
    readings = None if stats.documents is None or each is None else round(stats.documents * each)
    return {
        "collection": policy.collection,
        "model": model_of(policy).name,
        "policy": None if subject.guess else policy.name,
        "evidence": subject.guess.evidence if subject.guess else [],
        "series_fields": list(policy.series_fields),
        "value_fields": list(policy.value_fields),
        "current": {**asdict(stats), "readings": readings},
        "sample": {
            "buckets": fit.sampled,
            "readings": fit.readings,
            "readings_a_bucket": each,
            "capacity": sampled.capacity,
            "fill": sampled.fill,
            "bucket_bytes": sampled.bucket_bytes,
            "tried_readings": len(part.exact),
            "tried": part.how,
            "uncarried": part.losses.by_reason(),
        },
        "findings": [it._asdict() for it in found],
        "candidates": [],
        "summaries": None,
        "recommendation": None,
    }


def _candidates(scratch: Scratch, part: Extract, body: Body, call: Call) -> Body:
    from bucketwise.jobs.advise.candidates import from_summaries, measured, scaled

    database, held = scratch
    progress = call.progress

    def check() -> None:
        call.stop.check()
        held()

    readings = body["current"]["readings"] or len(part.exact)
    factor = readings / len(part.exact)
    found = []
    with progress.step(f"trying {len(part.exact):,} readings in each model"):
        for it in measured(database, part, check):
            found.append(scaled(it, factor))
            progress("models", 1)
        check()
        summaries = from_summaries(database, part, call.stop)
    if "data_bytes" in summaries:
        summaries["data_bytes"] = round(summaries["data_bytes"] * factor)
    return {"candidates": found, "summaries": summaries}


def _with_archive(body: Body, hot: float) -> Body:
    """Returns the model as it is, with what is no longer in use in a collection of its own: by its sizes
    now."""
    from bucketwise.jobs.advise.candidates import SIZES

    current = body["current"]

    def part(share: float) -> Body:
        return {key: None if current[key] is None else round(current[key] * share) for key in SIZES}

    name = f"{body['model']} + online archive"
    return {
        "model": name,
        **part(hot),
        "archive": part(1 - hot),
        "query_ms": {},
        "readings_per_second": {},
        "unfit": None,
    }


#: A model that takes less by so much is worth a rewrite.
_LEAST_SAVING = 0.2


def recommended(body: Body) -> Body | None:
    """Returns the model that takes the least bytes of data and indexes, where that is a fifth less than
    today's at least; None where no model does."""
    now, name = body["current"], body["collection"]
    if now["data_bytes"] is None or now["index_bytes"] is None:
        return None
    before = now["data_bytes"] + now["index_bytes"]
    sizes = {
        it["model"]: it["data_bytes"] + it["index_bytes"] for it in body["candidates"] if not it["unfit"]
    }
    best = min(sizes, key=sizes.__getitem__, default=None)
    if best is None or sizes[best] > before * (1 - _LEAST_SAVING):
        return None
    into = f"{name}_{best.replace('-', '_')}"
    command = shlex.join(["bucketwise", "remodel", name, "--to", best, "--into", into])
    return {"model": best, "bytes": sizes[best], "bytes_now": before, "command": command}


QUERIES = ("last", "hour", "day", "month")

_HEADS = [
    "model", "documents", "data", "on disk", "indexes", "inserts/s", "updates/s",
    *(f"{it} ms" for it in QUERIES),
]  # fmt: skip


def advice_lines(body: Body) -> list[RenderableType]:
    """Returns what `advise` prints."""
    return [Text(printable(it)) for it in _head(body)] + [
        _findings(body),
        *_candidate_tables(body),
        Text(printable(_recommendation(body))),
    ]


def _recommendation(body: Body) -> str:
    """Returns the last line: what to do."""
    found = len(body["findings"])
    first = f"see to the {counted(found, 'finding')} above" if found else ""
    if (it := body["recommendation"]) is not None:
        less = 1 - it["bytes"] / it["bytes_now"]
        takes = (
            f"{it['model']} takes {size(it['bytes'])} instead of {size(it['bytes_now'])} ({less:.0%} less)"
        )
        return f"Recommendation: {f'{first}; then ' if first else ''}{takes}: `{it['command']}`"
    tried = "; no model that was tried takes a fifth less" if body["candidates"] else ""
    return f"Recommendation: {f'{first}, and ' if first else ''}keep {body['model']}{tried}"


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
    table = Grid("Findings", ("code", "field", "what", "cost", "remedy"))
    for it in body["findings"]:
        table.add_row(
            *(Text(printable(it[key] or "–")) for key in ("code", "field", "message", "cost", "remedy"))
        )
    return table if body["findings"] else Text("Nothing to improve was found")


def _candidate_tables(body: Body) -> list[RenderableType]:
    if not body["candidates"]:
        return []
    table = Grid("Models", _HEADS)
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
    from bucketwise.jobs.output.page import render

    page, _ = render(
        "advice.html", {}, report=report, head=_head(report), rows=candidate_rows(report), heads=_HEADS
    )
    return page


Name = Annotated[
    str,
    typer.Argument(metavar="COLLECTION", autocompletion=collection_names, help="The collection to look at."),
]

ScratchName = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        metavar="DATABASE",
        help="Try models in a new database of the server, dropped at the end. Default: an embedded MongoDB.",
    ),
]

Readings = Annotated[
    int, typer.Option("--readings", min=100, max=5_000_000, help="Number of readings to try models with.")
]

NoCandidates = Annotated[bool, typer.Option("--no-candidates", help="Only findings: try no other models.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page.")]

ShardKeys = Annotated[
    str | None,
    typer.Option(
        "--shard-keys",
        metavar="A,B;C",
        help="Compare shard keys: these and likely ones. A:hashed for a hashed field.",
    ),
]

_SHARDS = 3

Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=2,
        max=1000,
        metavar="N",
        help=f"Compare shard keys for this many shards. Default: {_SHARDS}.",
    ),
]

Queries = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="For shard keys: JSON filters, one a line. Default: those of the profiler, else usual ones.",
    ),
]

ShardReadings = Annotated[
    float | None,
    typer.Option(
        "--shard-readings",
        min=1,
        max=1e12,
        metavar="N",
        help="For shard keys: simulate this many readings, up to 1e12. Default: as many as there are.",
    ),
]


def advise(
    call: Call,
    name: Name,
    *,
    scratch: ScratchName = None,
    readings: Readings = 50_000,
    no_candidates: NoCandidates = False,
    html: Html = None,
    shard_keys: ShardKeys = None,
    shards: Shards = None,
    queries: Queries = None,
    shard_readings: ShardReadings = None,
) -> Report:
    """Tell how well a collection's model is kept, and what others would take.

    Looks at a bounded sample and changes nothing: fill and sizes of buckets, fields that disagree,
    duplicates, gaps, late arrival, indexes, the working set; each with its cost and its remedy. Then the
    sample is written in other models, measured, and scaled to the whole collection. With --shard-keys or
    --shards it compares shard keys instead: where writes and data go, and how many shards a query needs.
    """
    from bucketwise.jobs.advise.shard_keys import shard_keys_of

    if html is not None:
        check_folder("--html", html)
    call.needs_policies = False
    if any(it is not None for it in (shard_keys, shards, queries, shard_readings)):
        if html is not None or scratch is not None:
            raise UsageError(
                "--html and --scratch are about models, not about shard keys: leave them out, or run twice"
            )
        return shard_keys_of(call, name, shard_keys, shards or _SHARDS, queries, shard_readings)
    return advise_on(call, name, scratch, readings, not no_candidates, html)


JOB = Job(
    advise,
    beside=keeping.AdviseWhole,
    examples=(
        "bucketwise advise ticks",
        "bucketwise advise iot --html iot.html",
        "bucketwise advise ticks --scratch advise_scratch --readings 200000 --json",
        "bucketwise advise ticks --shard-keys 'symbol,d;_id:hashed' --shards 4",
    ),
    answers=True,
)
