"""`bucketwise restore`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from pymongo.database import Database

from config.errors import UsageError
from jobs.asked import Series, one_policy, parse_series
from jobs.call import Call
from jobs.clock import parse_range
from jobs.connect import Document
from jobs.options import Since, Until
from jobs.report import Report
from jobs.runner import Runner
from jobs.steps import restore_step
from jobs.stopping import interruptible
from jobs.tables import restore_table

EXAMPLES = [
    "bucketwise restore -p ticks --since 2018-06-30 --until 2018-07-01 --to ticks_back",
    "bucketwise restore -p iot --since 2018-08-29 --until 2018-08-30 --series deviceid=1234 --to iot",
]
To = Annotated[str, typer.Option("--to", metavar="COLLECTION", help="Where the buckets go.")]


def restore(call: Call, *, to: To, since: Since = None, until: Until = None, series: Series = None) -> Report:
    """Bring archived buckets back.

    They come back as they were, byte for byte. A bucket with a reading in the range comes back whole,
    with its overflow. Documents that are in the target already and equal stay; no other document is ever
    written over.
    """
    start, end = parse_range(since, until)
    wanted = parse_series(series)
    policy = one_policy(call)
    with call.database() as database:
        _confirm(call, database, to)
        runner = Runner.of(call, database, [restore_step(to, wanted)], since=start, until=end)
        results = runner.run_all([policy])
    return Report(call.command, call.now, results, [restore_table(results)])


def _confirm(call: Call, database: Database[Document], to: str) -> None:
    """Ask before documents are added to others. Without a terminal nobody is asked."""
    if call.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if database[to].find_one({}, {"_id": 1}) is None:
        return
    with interruptible():
        sys.stderr.write(f"The collection {to} holds documents already. Restore into it? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("not confirmed; nothing was restored")
