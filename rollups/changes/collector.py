"""Collects what the events of a change stream have changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import bson

from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.models import model_of
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import HIGHEST
from bucketwise.rollups.summaries.documents import OPTIONS

Document = dict[str, Any]

#: The place of a sample on the way to what is in it, and one that ends the name of what was touched.
_WITHIN, _ADDED = re.compile(r"[.][0-9]+(?=[.])"), re.compile(r"[.][0-9]+$")


@dataclass(frozen=True)
class Change:
    """Tells what one event changed."""

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
        form = model_of(self.policy).own_form
        expressions = {"first": form.expression(document, first), "last": form.expression(document, last)}
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
        model = model_of(self.policy)
        form, touched = model.own_form, [_WITHIN.sub("", it) for it in touched_fields(event)]
        first, last = (any(touches(it, touched) for it in form.fields(field)) for field in self.fields)
        if not model.tells_first:  # samples tell: what is added to them tells its time itself
            first = any(touches(self.fields[0], [it]) and not _ADDED.search(it) for it in touched)
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


_BATCH_SIZE = 1000
#: Spans are widened to multiples of this, so that few remain. Windows begin and end at such instants.
_QUARTER_MS = 900_000
OPERATIONS = ("insert", "update", "move", "delete")


@dataclass
class ChangeSet:
    """What has changed since the last run: the spans of time, by operation (`EventReader.operation`), and how
    many events don't tell which time they changed. `has_any_event`: deletes of an archive run count too."""

    token: Mapping[str, Any]
    spans: Mapping[str, Spans]
    unknown: Counter[str]
    events: int
    has_any_event: bool

    def then(self, later: ChangeSet) -> ChangeSet:
        """Returns this, and what has changed after it."""
        spans = {kind: Spans([*own.spans, *later.spans[kind].spans]) for kind, own in self.spans.items()}
        return ChangeSet(
            later.token,
            spans,
            self.unknown + later.unknown,
            self.events + later.events,
            self.has_any_event or later.has_any_event,
        )

    @property
    def all_spans(self) -> list[Span]:
        """Returns all spans, of every operation."""
        return flatten(self.spans)


def flatten(spans: Mapping[str, Spans]) -> list[Span]:
    """Returns the spans of all kinds in one list."""
    return [span for of_kind in spans.values() for span in of_kind.spans]


class ChangeCollector:
    """Adds up events. Grows with the spans of time that have changed, not with the number of changes."""

    def __init__(self, source: Source, reader: EventReader) -> None:
        self._source = source
        self._reader = reader
        self._spans: dict[str, list[Span]] = {kind: [] for kind in OPERATIONS}
        self._buckets: dict[tuple[bytes, str, bool], Any] = {}
        self._overflow: dict[bytes, Any] = {}
        self._deletes: tuple[Transaction, list[Change]] | None = None  # of one transaction
        self._unknown: Counter[str] = Counter()
        self._events = 0
        self._has_any_event = False
        self._max_spans = _BATCH_SIZE

    def add(self, event: Document) -> None:
        """Takes in the next event of the stream. Deletes of a transaction wait until it is known whose it
        is."""
        self._has_any_event = True
        change, operation = self._reader.read(event), self._reader.operation(event)
        transaction = transaction_of(event)
        if self._deletes is not None and self._deletes[0] != transaction:
            self._keep_deletes()
        if operation == "delete" and transaction is not None:
            # It may be our own: then a receipt follows, later in the transaction.
            self._deletes = self._deletes or (transaction, [])
            self._deletes[1].append(change)
        else:
            self._take(change, operation)

    def drop(self, receipt: Document) -> int:
        """Drops the deletes of this transaction, which are our own: what they took is archived. Returns how
        many there were."""
        self._has_any_event = True
        if self._deletes is None or self._deletes[0] != transaction_of(receipt):
            return 0
        dropped, self._deletes = len(self._deletes[1]), None
        return dropped

    def changed(self, token: Mapping[str, Any]) -> ChangeSet:
        """Returns what the events add up to. `token`: the resume token behind the last one."""
        self._keep_deletes()
        self._look_up()
        spans = {kind: Spans(spans) for kind, spans in self._spans.items()}
        return ChangeSet(token, spans, self._unknown, self._events, self._has_any_event)

    def _keep_deletes(self) -> None:
        for change in self._deletes[1] if self._deletes is not None else ():
            self._take(change, "delete")
        self._deletes = None

    def _take(self, change: Change, operation: str) -> None:
        self._events += 1
        self._unknown[operation] += change.unknown
        self._spans[operation] += change.spans
        self._buckets.update({(_key(it), operation, change.open_ended): it for it in change.buckets})
        self._overflow.update({_key(it): it for it in change.overflow})
        enough = max(len(self._buckets), len(self._overflow)) >= _BATCH_SIZE
        if enough or sum(map(len, self._spans.values())) >= self._max_spans:
            self._look_up()

    def _look_up(self) -> None:
        """Looks up the times of changed buckets. One that is gone has an event of its own, here or in the
        next run."""
        for owner in self._source.owners(list(self._overflow.values())):
            self._buckets[_key(owner), "update", False] = owner
        ids: dict[tuple[str, bool], list[Any]] = {}
        for (_, operation, open_ended), identity in self._buckets.items():
            ids.setdefault((operation, open_ended), []).append(identity)
        for (operation, open_ended), identities in ids.items():
            for start, end in self._source.spans(identities):
                self._spans[operation].append((start, HIGHEST if open_ended else end))
        self._spans = {kind: _widen_to_quarters(spans) for kind, spans in self._spans.items()}
        self._max_spans = 2 * sum(map(len, self._spans.values())) + _BATCH_SIZE
        self._buckets.clear()
        self._overflow.clear()


def _widen_to_quarters(spans: Iterable[Span]) -> list[Span]:
    quarters = ((start // _QUARTER_MS, -(-end // _QUARTER_MS)) for start, end in spans)
    return list(Spans((start * _QUARTER_MS, end * _QUARTER_MS) for start, end in quarters).spans)


def _key(identity: Any) -> bytes:
    return bson.encode({"": identity}, codec_options=OPTIONS)
