"""When readings of a collection were written, by entries of the oplog, and how late they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from bson import ObjectId
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.health.findings import Finding, share, span
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.config.policies import Policy

Document = dict[str, Any]
_DIFF_VERSION = 2


class Write(NamedTuple):
    """What was written, and when by the server's clock, in milliseconds. `identity`: the `_id` of a changed
    document, of which `fields` is only what changed; None where it is all."""

    at_ms: int
    identity: Any | None
    fields: Document


def writes(entry: Mapping[str, Any], collection_id: Any) -> Iterator[Write]:
    """Yields the inserts and updates in an entry of the oplog, also of a transaction. `collection_id`: a
    UUID."""
    at = as_ms(entry["wall"])
    for change in [entry, *(entry["o"].get("applyOps", []) if entry["op"] == "c" else [])]:
        if change.get("ui") != collection_id or change["op"] not in ("i", "u"):
            continue
        fields = change["o"]
        if change["op"] == "i" or "_id" in fields:  # new, or replaced
            yield Write(at, None, fields)
        elif fields.get("$v") == _DIFF_VERSION:
            yield Write(at, change["o2"]["_id"], _set(fields["diff"]))


def _set(diff: Mapping[str, Any]) -> Document:
    """Returns the fields that an update sets, nested as in the document; of an array, the elements that it
    sets."""
    fields = {**diff.get("u", {}), **diff.get("i", {})}
    for key, inner in diff.items():
        if key[0] == "s":
            fields[key[1:]] = _elements(inner) if inner.get("a") is True else _set(inner)
    return fields


def _elements(diff: Mapping[str, Any]) -> list[Any]:
    return [inner if key[0] == "u" else _set(inner) for key, inner in diff.items() if key[0] in "us"]


def has_readings(write: Write, policy: Policy) -> bool:
    """Returns whether a write is of readings, and not of other fields beside them."""
    fields = model_of(policy).reading_fields
    return write.identity is None or any(split(it)[0] in write.fields for it in fields)


def header_projection(policy: Policy) -> dict[str, int]:
    """Returns the projection to what readings have in common in a document: its first time and series."""
    model = model_of(policy)
    times = model.own_form.fields(model.first_field)
    series = [it for it in policy.series_fields if "*" not in it]
    arrays = [".".join(model.attributes.array)] if model.attributes else []
    paths = sorted({*times, *series, *arrays, *filter(None, [policy.local_offset_field])})
    return {it: 1 for it in paths if not any(it.startswith(f"{other}.") for other in paths)}


def applied(header: Mapping[str, Any], fields: Mapping[str, Any]) -> Document:
    """Returns a document with what was written into it."""
    document = dict(header)
    for key, value in fields.items():
        nested = document.get(key)
        is_nested = isinstance(value, Mapping) and isinstance(nested, Mapping)
        document[key] = applied(nested, value) if is_nested else value  # type: ignore[arg-type]
    return document


_SETTLED_MS = 600_000


@dataclass(frozen=True)
class Arrival:
    """The milliseconds from its last reading to each known write. `by`: "_id" or "oplog", None where neither
    tells; `basis`: what was looked at, or why nothing was."""

    late: NDArray[np.float64]
    by: str | None
    basis: str


def arrival_by_ids(main: Docs, decoded: Decoded) -> Arrival | None:
    """Returns how late buckets came by the times in their ObjectIds; None where fewer than half have one."""
    ids = [main.legible_id(int(unit)) for unit in decoded.units]
    written = np.array([it.generation_time.timestamp() if isinstance(it, ObjectId) else np.nan for it in ids])
    late: NDArray[np.float64] = written * 1000 - decoded.last
    known = late[np.isfinite(late)]
    return Arrival(known, "_id", "by the time in their ObjectIds") if 2 * len(known) > len(ids) else None


def late_findings(arrival: Arrival, policy: Policy, scaled: Callable[[float], str]) -> Iterator[Finding]:
    """Yields findings about readings that came later than a roll-up waits. `scaled`: names so many sampled
    buckets."""
    settle = policy.rollup.settle.total_seconds() * 1000 if policy.rollup else _SETTLED_MS
    after = arrival.late[arrival.late > settle]
    if not len(after):
        return
    count, total, longest = len(after), len(arrival.late), span(float(after.max()))
    is_sample = arrival.by == "_id"
    who = scaled(count) if is_sample else f"{count:,} of {total:,} writes"
    came = "were written" if is_sample else "came"
    what = "buckets" if is_sample else "writes"
    usual = span(float(np.median(after)))
    yield Finding(
        "late",
        arrival.by if is_sample else None,
        f"{who} {came} more than {span(settle)} after their last reading: up to {longest}, {arrival.basis}",
        f"the windows of {share(count, total)} of the {what} are rolled up twice: before they came in, and "
        "after",
        f"none for what was imported later; else let rollup.settle be {usual} or more, and rollup.recheck "
        f'more than {longest} where late_data is "scan"',
    )
