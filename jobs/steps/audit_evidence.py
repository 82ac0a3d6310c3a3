"""Evidence in an audit, as JSON: where each day is, how much data there is, and how it is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.attestation import attestation
from bucketwise.archivers.evidence.coverage import CoverageQuery, Row, coverage
from bucketwise.archivers.evidence.volumes import (
    Month,
    Volume,
    by_month,
    deleted_by_month,
    runs,
    summaries_by_month,
)
from bucketwise.archivers.kinds import archive_of
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.jobs.steps.holds import hold_body
from bucketwise.rollups.holds import Holds

Body = dict[str, Any]
T = TypeVar("T")
_VOLUMES = {"live": "readings", "archived": "readings", "online": "readings", "summaries": "count"}


def evidence_body(context: ArchiveContext) -> Body:
    """Returns the evidence of one policy as JSON. Values that can't be told, because the archive is not all
    there or the range is too long, are null; `untold` says why."""
    untold: list[str] = []

    def known(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except (HaltedError, UsageError) as error:  # damage is a finding already
            untold.append(str(error))
            return None

    rows = known(lambda: coverage(context, archive_of(context).evidence, CoverageQuery()))
    deleted = known(lambda: deleted_by_month(context))
    summaries = summaries_by_month(context.database, context.policy)
    return {
        "coverage": None if rows is None else _coverage_body(rows),
        "months": None if rows is None else [_month_body(it) for it in by_month(rows, summaries)],
        "deleted_by_month": None if deleted is None else [asdict(it) for it in deleted],
        "holds": [hold_body(it) for it in Holds(context.database, context.policy.identity).active()],
        "proof": _proof_body(context),
        "untold": untold,
    }


def _coverage_body(rows: list[Row]) -> Body:
    states = Counter(row.state for row in rows)
    return {"states": dict(states), "runs": [it._asdict() for it in runs(rows)]}


def _month_body(month: Month) -> Body:
    return {"month": month.month, **{it: _volume_body(getattr(month, it), _VOLUMES[it]) for it in _VOLUMES}}


def _volume_body(volume: Volume, what: str) -> Body:
    return {what: volume.count, "bytes": volume.bytes}


def _proof_body(context: ArchiveContext) -> Body:
    found = attestation(context)
    return {
        "heads": [it.model_dump() for it in found.heads],
        "checkpoint": found.checkpoint and found.checkpoint._asdict(),
        "receipt": found.receipt and found.receipt.model_dump() | _told(found.last or {}),
        "events": [{"kind": it["kind"], **_told(it), "reason": it.get("reason")} for it in found.events],
        "key": found.key,
        "ownership": found.ownership and found.ownership._asdict(),
        "drills": {
            "days": found.days,
            "drilled": found.drilled,
            "oldest": found.oldest_drill,
            "last": found.last_drill,
        },
    }


def _told(receipt: Body) -> Body:
    """Returns when a receipt was written, by both clocks, and by whom; null where it does not say."""
    return {key: receipt.get(key) for key in ("at", "done_at", "host", "user")}
