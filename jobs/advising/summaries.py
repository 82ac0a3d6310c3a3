"""The usual questions answered from summaries of the same readings."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from pymongo.database import Database

from bucketwise.buckets.fields.selectors import series_text
from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.writing.documents import DocumentWriter
from bucketwise.buckets.writing.targets import target_of
from bucketwise.config.policies import Rollup
from bucketwise.jobs.advising.candidates import SPANS, made, timed
from bucketwise.jobs.advising.extract import Extract
from bucketwise.jobs.advising.scratch import DAILY, HOURLY, ROLLED, SUMMARIES
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.running.runner import Runner
from bucketwise.jobs.steps.working import ROLLUP
from bucketwise.jobs.stopping import Stop
from bucketwise.rollups.answers.summarize import Question
from bucketwise.rollups.answers.summarize import summarize as summarize_range

Document = dict[str, Any]


def from_summaries(database: Database[Document], extract: Extract, stop: Stop) -> Document:
    """Returns the milliseconds that an hour, a day and a month of one series take, and the bytes of all
    summaries of the readings."""
    rollup = Rollup(hourly=HOURLY, daily=DAILY)
    # A document a reading: buckets of sparse readings would be long, and be read for each of their days.
    target = target_of("reading", extract.policy, ROLLED, is_whole_minutes=False)
    policy = target.policy.model_copy(update={"name": SUMMARIES, "rollup": rollup})
    made(database, target)
    written = DocumentWriter(target, extract.series).add(extract.exact, None)
    while some := list(islice(written, 10_000)):
        database[ROLLED].insert_many(some, ordered=False)
    last = as_date(int(extract.exact.time[extract.exact.series_index == extract.busiest].max()))
    now = last + timedelta(days=2)
    quiet = ProgressDisplay(quiet=True)
    runner = Runner("rollup", [ROLLUP], database, None, now, stop, quiet, is_now_given=True)
    (result,) = runner.run_all([policy])
    if result.error is not None:
        return {"error": result.error}
    series = extract.series[extract.busiest]
    selector = {name: series_text(it) for name, it in zip(policy.series_names, series, strict=True)}
    found: Document = {}
    for name in SPANS:
        since, until = _window(last, name)
        answer = partial(summarize_range, database, policy, Question(since, until, selector), stop.check)
        found[name] = round(timed(answer), 3)
    sizes = [database.command("collStats", it)["size"] for it in rollup.targets.values()]
    return {"query_ms": found, "data_bytes": sum(sizes)}


def _window(last: datetime, name: str) -> tuple[datetime, datetime]:
    """Returns whole hours or days up to the one with the last reading."""
    if name == "hour":
        since = last.replace(minute=0, second=0, microsecond=0)
        return since, since + timedelta(hours=1)
    until = last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return until - timedelta(milliseconds=SPANS[name]), until
