"""Quarantined buckets whose readings are not among what is printed."""

from __future__ import annotations

from collections.abc import Sequence

from buckets.fields.selectors import extended_json
from jobs import logs
from jobs.output.report import Result
from jobs.output.text.tables import printable

_MOST_QUARANTINED = 20


def tell_quarantined(results: Sequence[Result]) -> None:
    """Reports quarantined buckets on stderr, since stdout has the readings."""
    for body in (result.body for result in results if result.body.get("quarantined")):
        for it in body["quarantine"][:_MOST_QUARANTINED]:
            told = printable(f"_id {extended_json(it['id'])}, {it['field']}: {it['reason']}")
            logs.complain(f"quarantined, and left out: {told}", "")
        more = body["quarantined"] - len(body["quarantine"][:_MOST_QUARANTINED])
        if more > 0:
            logs.complain(f"{more:,} more quarantined: `bucketwise run --json` lists them", "")
