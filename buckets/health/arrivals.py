"""When readings of a collection were written, by entries of the oplog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bucketwise.buckets.fields.times import as_ms
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
