"""Findings about a collection: how well its documents keep to their model, what it costs where they don't,
and when they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from bson import ObjectId
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import DATE, OBJECT_ID, STRING, TIMESTAMP, TYPE_NAMES, elements
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.times import as_date, as_ms, as_text
from bucketwise.buckets.layouts.layout import by_type
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.sampling.fit import Fit
from bucketwise.buckets.writing import ExactReadings
from bucketwise.config.policies import Policy


class Finding(NamedTuple):
    """Something to improve. `code` is stable; the texts are for people."""

    code: str
    field: str | None
    message: str
    cost: str
    remedy: str


def share(part: float, whole: float) -> str:
    """Returns a share as text, such as "4.2 %"."""
    return f"{100 * part / whole:.3g} %" if whole else "none"


def span(ms: float) -> str:
    """Returns a length of time as people say it: such as 45 s, 12 min, 3.5 h, 2 d."""
    for length, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= length:
            return f"{ms / length:,.0f} {unit}" if ms >= 100 * length else f"{ms / length:.3g} {unit}"
    return f"{ms:.0f} ms"


#: A bucket is well filled from this share of its room on, and large from so many times the usual bytes on.
_FILLED, _LARGE = 0.5, 10
_LARGE_BYTES, _HUGE_BYTES, _LIMIT = 64_000, 4_000_000, 16 * 2**20
_MIN_BUCKETS = 20
_OFFSETS = ("offset", "tz", "timezone", "utcoffset")


@dataclass(frozen=True)
class Sampled:
    """Sampled buckets, as a policy reads them. `total`: buckets of the whole collection, if known."""

    batch: Batch
    decoded: Decoded
    fit: Fit
    policy: Policy
    total: int | None

    @property
    def capacity(self) -> int | None:
        """Returns how many readings a bucket of slots has room for, or what a large bucket of samples holds;
        None for a document a reading."""
        return model_of(self.policy).room(self.decoded.columns.lengths)

    @property
    def fill(self) -> float | None:
        """Returns how much of its room a bucket uses on average."""
        lengths, room = self.decoded.columns.lengths, self.capacity
        return float(np.minimum(lengths, room).mean()) / room if room and len(lengths) else None

    @property
    def bucket_bytes(self) -> dict[str, int]:
        """Returns the sizes of buckets in bytes."""
        sizes = np.asarray(self.batch.sizes)
        at = {"least": 0, "median": 50, "p95": 95, "largest": 100}
        return {name: round(float(np.percentile(sizes, it))) for name, it in at.items()} if len(sizes) else {}

    def scaled(self, count: float) -> str:
        """Returns a count as text, such as "3 of 900 sampled buckets, about 3,000 of the collection"."""
        counted = f"{count:,.0f} of {len(self.batch):,} sampled buckets"
        if self.total is None or not len(self.batch):
            return counted
        return f"{counted}, about {count / len(self.batch) * self.total:,.0f} of the collection"


def findings(sampled: Sampled) -> Iterator[Finding]:
    """Yields the findings, those of the model first."""
    for check in (_fill, _sizes, _broken, _slots, _values, _times, _unused):
        yield from check(sampled)


def _fill(sampled: Sampled) -> Iterator[Finding]:
    fill, room = sampled.fill, sampled.capacity
    if fill is None or not room or fill >= _FILLED:
        return
    each = fill * room
    needless = (1 - fill) * (sampled.total or len(sampled.batch))
    yield Finding(
        "underfilled",
        None,
        f"buckets hold {each:.3g} readings on average, and have room for {room:,}",
        f"about {needless:,.0f} documents with their index entries that full buckets would not need",
        "let a bucket span more time, or close it by size; the candidates show what that takes",
    )


def _sizes(sampled: Sampled) -> Iterator[Finding]:
    sizes = np.asarray(sampled.batch.sizes)
    if not len(sizes):
        return
    usual, largest = float(np.median(sizes)), int(sizes.max())
    large = sizes > max(_LARGE * usual, _LARGE_BYTES)
    if not large.any() and largest < _HUGE_BYTES:
        return
    remedy = "close buckets by size: at some hundred readings"
    if sampled.policy.overflow is None and model_of(sampled.policy).may_overflow:
        remedy += ", or move what is beyond them into overflow (see docs/bucket-models.md)"
    yield Finding(
        "outliers",
        None,
        f"{sampled.scaled(int(large.sum()))} are far larger than the usual {usual:,.0f} bytes: "
        f"up to {largest:,}",
        f"each read or update of the largest moves {largest:,} bytes, {share(largest, _LIMIT)} of the 16 MB "
        "that a document may have",
        remedy,
    )


def _broken(sampled: Sampled) -> Iterator[Finding]:
    kept = model_of(sampled.policy).kept_fields
    found = Counter(
        (bucket.field, bucket.field in kept or "bounds" in bucket.reason)
        for bucket in sampled.fit.quarantined
    )
    for (name, is_kept), count in found.most_common():
        example = next(bucket for bucket in sampled.fit.quarantined if bucket.field == name)
        yield Finding(
            "fields-disagree" if is_kept else "breaks-model",
            name,
            f"{sampled.scaled(count)}: {example.reason}",
            "such buckets are quarantined: never rolled up, never archived, so they stay for good",
            "mend the field in these documents and in what writes them, or leave its key out of the policy"
            if is_kept
            else "mend the documents, or name in the policy what they hold",
        )


def _slots(sampled: Sampled) -> Iterator[Finding]:
    step, room = model_of(sampled.policy).slot_ms, sampled.capacity or 1
    if step is None or len(sampled.decoded.units) < _MIN_BUCKETS:
        return
    filled = np.bincount(sampled.decoded.columns.time // step % room, minlength=room) > 0
    never = np.flatnonzero(~filled)
    if not len(never) or len(never) == room:
        return
    used = np.flatnonzero(filled)
    stride = int(np.gcd.reduce(used)) if len(used) > 1 else room
    examples = ", ".join(map(str, never[:5].tolist())) + (" …" if len(never) > 5 else "")
    yield Finding(
        "slots-unused",
        sampled.policy.value_fields[0],
        f"{len(never):,} of {room:,} slots hold nothing in any of {len(sampled.decoded.units):,} buckets: "
        f"{examples}",
        f"a bucket holds {room - len(never):,} readings at most: {room / max(1, len(used)):.3g} times the "
        "documents that full ones would take",
        f"a slot of {span(step * stride)} would do"
        if stride > 1
        else "none, if these times are never measured; else look at what writes them",
    )


def _values(sampled: Sampled) -> Iterator[Finding]:
    contents = {
        ValueKind.MISSING: "nothing",
        ValueKind.NONFINITE: "NaN or infinity",
        ValueKind.NONNUMERIC: "no number",
    }
    for name, held in sampled.fit.held.items():
        for kind, content in contents.items():
            if held[kind]:
                yield Finding(
                    "no-numbers",
                    name,
                    f"{share(held[kind], sampled.fit.readings)} of the sampled readings hold {content}",
                    f"{held[kind]:,} of {sampled.fit.readings:,} readings that are in no sum or percentile",
                    "leave the field out where nothing was measured"
                    if kind
                    else "none, if that is as it should be",
                )


_FORMS = {STRING: "text", OBJECT_ID: "ObjectIds", TIMESTAMP: "BSON Timestamps"}


def _times(sampled: Sampled) -> Iterator[Finding]:
    kinds = {
        kind
        for piece in sampled.decoded.pieces
        for cells in [piece.shape.times or [(x,) for x in (piece.shape.start,) if x]]
        for kind, _, _ in by_type(cells)
    } - {DATE}
    field = model_of(sampled.policy).time_field
    for kind in sorted(kinds):
        form = _FORMS.get(kind, f"numbers ({TYPE_NAMES[kind]})")
        yield Finding(
            "times-not-dates",
            field,
            f"times are {form}, and no dates",
            "20 bytes or more a time instead of 8, and texts with offsets from UTC don't sort as time does"
            if kind == STRING
            else "no TTL index, $dateTrunc or zone of MongoDB works on them",
            "write dates; `bucketwise remodel` rewrites what is there",
        )
    if sampled.decoded.columns.local is not None:
        offsets = np.unique(sampled.decoded.columns.time - sampled.decoded.columns.local)
        if len(offsets) > 1:
            examples = ", ".join(f"{-ms / 3_600_000:+.3g} h" for ms in offsets[:6].tolist())
            yield Finding(
                "local-offsets",
                sampled.policy.local_offset_field,
                f"readings are of {len(offsets):,} offsets from UTC: {examples}",
                "a day of one place is cut in two by the days of another",
                "none: days follow each reading's own clock",
            )
    elif unused := [
        name for name in sampled.fit.fields.unused if name.rpartition(".")[2].lower() in _OFFSETS
    ]:
        yield Finding(
            "offset-unused",
            unused[0],
            f"documents hold an offset or a zone in {unused[0]}, and the policy doesn't use it",
            "days begin at midnight of rollup.timezone, whatever the clock at the place shows",
            "name it with local_offset_field if it is in minutes; if all are of one zone, name that in "
            "rollup.timezone",
        )


def _unused(sampled: Sampled) -> Iterator[Finding]:
    sizes: Counter[str] = Counter()
    for document in sampled.batch.main:
        for start, value, end in elements(document):
            name = document[start + 1 : value - 1].decode("utf-8", "backslashreplace")
            if name in sampled.fit.fields.unused:
                sizes[name] += end - start
    for name, size in sizes.most_common(5):
        total = sum(map(len, sampled.batch.main))
        yield Finding(
            "fields-unused",
            name,
            "no key of the policy names this field",
            f"{share(size, total)} of the bytes of the sampled documents",
            "leave it out of what is written, if nothing reads it",
        )


#: A gap is so many times the usual interval; there is a usual one if so many intervals are about as long.
_GAP, _REGULAR, _ABOUT = 10, 0.8, 0.2


def reading_findings(exact: ExactReadings, policy: Policy) -> Iterator[Finding]:
    """Yields findings about duplicate readings and about the time between readings. `exact`: by series, then
    time."""
    is_same_series = np.diff(exact.series_index) == 0
    steps = np.diff(exact.time)[is_same_series]
    duplicates = int((steps == 0).sum())
    if duplicates:
        yield Finding(
            "duplicates",
            None,
            f"{duplicates:,} of {len(exact):,} readings have the series and the time of another one",
            f"{share(duplicates, len(exact))} of the readings count twice in each count, sum and average",
            model_of(policy).against_duplicates,
        )
    steps = steps[steps > 0]
    if len(steps) < 2:
        return
    usual = float(np.median(steps))
    if policy.expected_interval is not None:
        usual = policy.expected_interval.total_seconds() * 1000
    is_regular = (np.abs(steps - usual) <= _ABOUT * usual).mean() >= _REGULAR
    holes = steps > _GAP * usual
    if is_regular and holes.any():
        missing = int((steps[holes] / usual - 1).sum())
        ends = exact.time[1:][is_same_series][np.diff(exact.time)[is_same_series] == steps.max()]
        yield Finding(
            "gaps",
            None,
            f"readings come every {span(usual)}; gaps of more than {_GAP} times that: {int(holes.sum()):,}. "
            f"The longest gap, {span(float(steps.max()))}, ended at {as_text(as_date(int(ends[0])))}",
            f"about {missing:,} readings beside {len(exact):,}, nights and holidays of the source among them",
            f'if they should: expected_interval = "{usual / 1000:.0f}s" and max_hole let `audit` tell',
        )


Document = dict[str, Any]
_DIFF_VERSION = 2


class Write(NamedTuple):
    """Tells what was written, and when by the server's clock, in milliseconds. `identity`: the `_id` of a
    changed document, of which `fields` is only what changed; None where it is all."""

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
