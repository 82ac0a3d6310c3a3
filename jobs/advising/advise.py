"""Advice on a collection: the model in use, findings, and what other models would take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.health.finding import Finding
from bucketwise.buckets.health.lasting import reading_findings
from bucketwise.buckets.health.late import arrival_by_ids, late_findings
from bucketwise.buckets.health.sampled import Sampled, findings
from bucketwise.buckets.sampling.fit import fit_of
from bucketwise.buckets.sampling.sample import sample
from bucketwise.jobs.advising.candidates import SIZES, measured, scaled
from bucketwise.jobs.advising.extract import Extract, extract
from bucketwise.jobs.advising.oplog import by_oplog
from bucketwise.jobs.advising.scratch import Scratch, scratch_database
from bucketwise.jobs.advising.server import (
    CollectionStats,
    collection_stats,
    hot_share,
    of_indexes,
    working_set,
)
from bucketwise.jobs.advising.subject import Subject, subject_of
from bucketwise.jobs.advising.summaries import from_summaries
from bucketwise.jobs.advising.text import advice_lines, advice_page
from bucketwise.jobs.call import Call
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.streams import write_atomically

Body = dict[str, Any]


@dataclass(frozen=True)
class AdviseOptions:
    """The options of `advise`. `scratch`: a database to make on the server; `readings`: how many are
    tried."""

    scratch: str | None
    readings: int
    candidates: bool
    html: Path | None


def advise_on(call: Call, name: str, options: AdviseOptions) -> Report:
    """Looks at a sample of a collection, and tries it in other models. Raises UsageError."""
    progress = call.progress
    with call.database() as database:
        with progress.step(f"looking at {name}"):
            subject = subject_of(call, database, name)
            stats = collection_stats(subject)
            sampled = _sampled(subject, stats)
            each = sampled.fit.readings_a_bucket or 1.0
            series = sampled.decoded.columns.series
            part = extract(subject.source, series, options.readings, each, call.stop.check)
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
        if options.candidates and len(part.exact):
            with scratch_database(database, options.scratch) as scratch:
                body |= _candidates(scratch, part, body, call)
            body["candidates"].append(_with_archive(body, hot))
    report = Report(call.command, call.now, [], advice_lines(body), None, 0, body)
    if options.html is not None:
        with write_atomically(options.html) as file:
            file.write(advice_page(report.plain()).encode())
    return report


def _sampled(subject: Subject, stats: CollectionStats) -> Sampled:
    policy = subject.policy
    if subject.guess is not None:  # what some documents disagree with is to be told
        policy = policy.model_copy(update=subject.guess.left_out)
    batch = sample(subject.source)
    return Sampled(batch, decode(batch, policy), fit_of(batch, policy), policy, stats.documents)


def _body(
    subject: Subject, stats: CollectionStats, sampled: Sampled, part: Extract, found: list[Finding]
) -> Body:
    policy, fit = subject.policy, sampled.fit
    each = fit.readings_a_bucket
    readings = None if stats.documents is None or each is None else round(stats.documents * each)
    return {
        "collection": policy.collection,
        "model": policy.model,
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
    }


def _candidates(scratch: Scratch, part: Extract, body: Body, call: Call) -> Body:
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
