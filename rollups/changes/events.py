"""Decides which time an event of a change stream has changed, as far as the event tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.models import model_of
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Span

Document = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What one event changed."""

    spans: Sequence[Span] = ()
    buckets: Sequence[Any] = ()  # `_id`s: the time that these cover now
    overflow: Sequence[Any] = ()  # `_id`s of overflow documents: the time that their buckets cover now
    open_ended: bool = False  # the buckets' time, and all after it
    unknown: bool = False  # and time that the event does not tell


class Transaction(NamedTuple):
    """The identity of a transaction. Its events come one after the other."""

    session: Any
    number: int


@dataclass(frozen=True)
class EventReader:
    """Reads events as `projection` leaves them."""

    policy: Policy
    fields: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", model_of(self.policy).span_values)

    def needed_fields(self, document: str) -> Document:
        """Returns the expression of what is needed of a document."""
        first, last = self.fields
        expressions = {"first": f"{document}.{first}", "last": f"{document}.{last}"}
        if self.policy.overflow is not None:
            expressions["ref"] = f"{document}.{self.policy.overflow.ref_field}"
        return expressions

    def new_readings(self, from_ms: int) -> Document:
        """Returns a query for insertions of buckets that hold nothing before the instant."""
        field = model_of(self.policy).starting_date
        if field is None:
            return {"operationType": "none"}
        inserted = {"ns.coll": self.policy.collection, "operationType": "insert"}
        return {**inserted, f"fullDocument.{field}": {"$gte": as_date(from_ms)}}

    def read(self, event: Document) -> Change:
        """Returns the change that an insertion, update, replacement or deletion made in the source or its
        overflow."""
        if event["ns"]["coll"] == self.policy.collection:
            return self._of_bucket(event)
        return self._of_overflow(event)

    def operation(self, event: Document) -> str:
        """Returns the operation of an event: insert, delete, move (to another series) or update (also of
        replacements)."""
        kind, touched = event["operationType"], touched_fields(event)
        is_bucket = event["ns"]["coll"] == self.policy.collection
        fields = (it for it in self.policy.series_fields if ".*." not in it)
        if is_bucket and any(touches(name, touched) for name in fields):
            return "move"
        return kind if kind in ("insert", "delete") else "update"

    def _of_bucket(self, event: Document) -> Change:
        identity, operation = event["documentKey"]["_id"], event["operationType"]
        spans = [*self._span(event["before"]), *self._span(event["now"])]
        is_known = operation == "insert" or event["is_before_known"]
        if operation != "update":
            return Change(spans, unknown=not is_known)
        first, last = (touches(name, touched_fields(event)) for name in self.fields)
        if is_known or not (first or last):
            return Change(spans, [identity])
        # If its first time is unchanged, all that the bucket ever held comes after it: mostly, it grows.
        return Change(spans, [identity], open_ended=not first, unknown=first)

    def _of_overflow(self, event: Document) -> Change:
        assert self.policy.overflow is not None
        identity, operation = event["documentKey"]["_id"], event["operationType"]
        owners = [state["ref"] for state in (event["before"], event["now"]) if "ref" in state]
        is_known = operation == "insert" or event["is_before_known"]
        if operation != "update":
            return Change(buckets=owners, unknown=not is_known)
        moved = touches(self.policy.overflow.ref_field, touched_fields(event))
        return Change(buckets=owners, overflow=[identity], unknown=moved and not is_known)

    def _span(self, state: Document) -> list[Span]:
        span = model_of(self.policy).covered(state.get("first"), state.get("last"))
        return [] if span is None else [span]


def projection(readers: Sequence[EventReader]) -> Document:
    """Returns what of an event is needed, and no more: a document may be large, and changes many."""
    update = "$updateDescription"
    return {
        "operationType": 1,
        "clusterTime": 1,
        "ns.coll": 1,
        "documentKey._id": 1,
        "lsid.id": 1,
        "txnNumber": 1,
        "mark": "$fullDocument.mark",
        "collection": "$fullDocument.collection",
        "now": _by_source(readers, "$fullDocument"),
        "before": _by_source(readers, "$fullDocumentBeforeChange"),
        "is_before_known": {"$gt": ["$fullDocumentBeforeChange", None]},
        "set": {"$map": {"input": {"$objectToArray": f"{update}.updatedFields"}, "in": "$$this.k"}},
        "removed": f"{update}.removedFields",
        "cut": f"{update}.truncatedArrays.field",
    }


def _by_source(readers: Sequence[EventReader], document: str) -> Document:
    branches = [
        {"case": {"$in": ["$ns.coll", list(it.policy.sources)]}, "then": it.needed_fields(document)}
        for it in readers
    ]
    return {"$switch": {"branches": branches, "default": {}}}


def touched_fields(event: Document) -> list[str]:
    """Returns the dotted names of all that an update set, removed or cut short."""
    return [*(event.get("set") or ()), *(event.get("removed") or ()), *(event.get("cut") or ())]


def touches(name: str, touched: Iterable[str]) -> bool:
    """Returns whether one of the touched fields is the named one, lies in it, or holds it."""
    return any(f"{it}.".startswith(f"{name}.") or f"{name}.".startswith(f"{it}.") for it in touched)


def transaction_of(event: Document) -> Transaction | None:
    """Returns the transaction that an event is part of."""
    return Transaction(event["lsid"]["id"], event["txnNumber"]) if "lsid" in event else None
