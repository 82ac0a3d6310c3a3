"""What several jobs say in the same words of the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bucketwise.archivers.report import DeleteLimit
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.fields.selectors import id_as_json
from bucketwise.jobs.core.turn import pick
from bucketwise.rollups.holds import Hold
from bucketwise.rollups.rolling.expiry import ExpiryLimit

Body = dict[str, Any]


def quarantine_body(found: list[Quarantined], total: int) -> Body:
    """Returns quarantined buckets as JSON: the total, and those found with their reasons."""
    named = [{"id": id_as_json(it.id), **pick(it, "field", "reason")} for it in found]
    return {"quarantined": total, "quarantine": named}


def hold_body(hold: Hold) -> Body:
    """Returns a hold as JSON."""
    return {
        **pick(hold, "name", "reason", "placed_at", "by", "freeze"),
        **pick(hold.within, "since", "until"),
        "series": dict(hold.series),
    }


def held_body(held: Mapping[str, int]) -> Body:
    """Returns how much stays for each hold as JSON; nothing where no hold keeps anything."""
    return {"held": dict(sorted(held.items()))} if held else {}


def limit_body(limit: DeleteLimit | ExpiryLimit) -> Body:
    """Returns a limit on what a run removes as a plan's JSON."""
    stops = f"this run would stop: {limit.message}" if limit.is_exceeded else None
    return {"due": limit.due, "of": limit.total, "most": limit.most, "stops": stops}
