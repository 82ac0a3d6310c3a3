"""Series: the values of the series fields, one series where MongoDB holds them equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import bson
import numpy as np
from bson.errors import InvalidBSON
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import (
    BINARY,
    BOOL,
    DATE,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    NOTHING,
    OBJECT_ID,
    STRING,
    decode_value,
    extent,
    first_at,
)
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.distinct import distinct_numbers, distinct_rows
from bucketwise.buckets.fields.selectors import Selector, series_text
from bucketwise.buckets.layouts.layout import (
    Cell,
    Element,
    Flags,
    Group,
    Path,
    by_size,
    by_type,
    read_bytes,
    steps,
)
from bucketwise.buckets.models.shape import Breach, Shape, find, need, split
from bucketwise.config.policies import Policy

#: Types that a series field in a sample may have.
SERIES_TYPES_IN_SAMPLE = (STRING, INT32, INT64, DOUBLE, BOOL, OBJECT_ID, DATE, BINARY)
#: Bytes of such a value, at most.
_MAX_IN_SAMPLE = 512
_TYPES = (*SERIES_TYPES_IN_SAMPLE, DOCUMENT)
#: Summaries hold it twice, and reports as text. A document there lies two levels deeper than in its bucket.
_MAX_BYTES, _MAX_LEVELS = 1 << 20, 150


class SeriesTable:
    """The distinct series seen so far, each with its index."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._index: dict[bytes, int] = {}
        self._shared: list[Values] = []

    def index(self, series: Series) -> int:
        """Returns the index of a series, and adds the series if it is new."""
        key = series_key(series)
        if key not in self._index:
            self._index[key] = len(self.series)
            self.series.append(series)
        return self._index[key]

    def of_group(self, group: Group, policy: Policy) -> tuple[NDArray[np.int32], dict[int, Breach]]:
        """Returns the series of each document, and the faults by row of the group. Where samples tell their
        own series, gives what the document adds to these: see `of_readings`."""
        values, of_row, breaches = _of_documents(group, policy)
        if policy.sample_series:
            self._shared += values
            return (len(self._shared) - len(values) + of_row).astype(np.int32), breaches
        return self._indices(values)[of_row], breaches

    def of_readings(
        self, group: Group, shape: Shape, present: Flags | None, shared: NDArray[np.int32], policy: Policy
    ) -> tuple[NDArray[np.int32], dict[int, Breach]]:
        """Returns the series of each document's readings, (n, k), where samples tell their own, and the
        faults by row. `shared`: what `of_group` gave for the bucket of each document."""
        inner, of_reading, breaches = _of_samples(group, shape, present, policy)
        pairs = shared[:, None].astype(np.int64) * len(inner) + of_reading
        used, which = distinct_numbers(pairs, len(self._shared) * len(inner))
        wanted = np.zeros(len(used), dtype=np.bool_)
        wanted[which if present is None else which[present]] = True
        found = np.zeros(len(used), dtype=np.int32)
        for i in np.flatnonzero(wanted).tolist():
            values = {**self._shared[used[i] // len(inner)], **inner[used[i] % len(inner)]}
            if len(values) == len(policy.series_names):  # else something is wrong with one
                found[i] = self.index(tuple(values[name] for name in policy.series_names))
        return found[which], breaches

    def _indices(self, values: list[Values]) -> NDArray[np.int32]:
        return np.array([self.index(tuple(it.values())) if it is not _NONE else 0 for it in values], np.int32)


#: Series field -> value. Less where something is wrong.
Values = dict[str, Any]
_NONE: Values = {}


def _of_documents(group: Group, policy: Policy) -> tuple[list[Values], NDArray[np.int64], dict[int, Breach]]:
    """Returns the values of series fields in the documents of a group: all distinct ones, which of them each
    row has, and the faults by row."""
    named = zip(policy.series_names, policy.series_fields, strict=True)
    fields = {name: path for name, path in named if name not in policy.sample_series}
    defaults = {
        name: _canonical(fields[name], value)
        for name, value in policy.default_series.items()
        if name in fields and find(group.layout, split(fields[name])) is None
    }
    elements = {
        name: need(group.layout, split(path), _TYPES, "series")
        for name, path in fields.items()
        if name not in defaults
    }
    n = len(group.members)
    if not elements:
        return [defaults], np.zeros(n, dtype=np.int64), {}
    spans = np.ascontiguousarray(
        np.hstack([group.matrix[:, e.start : e.start + e.size] for e in elements.values()])
    )
    keys = spans.view(f"S{spans.shape[1]}").ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    found: list[Values] = []
    breaches: dict[int, Breach] = {}
    for i, row in enumerate(first.tolist()):
        try:
            values = {name: _decoded(e, group.raw(row, e)) for name, e in elements.items()}
            told = {name: _canonical(fields[name], value) for name, value in values.items()} | defaults
            found.append({name: told[name] for name in fields})
        except Breach as breach:
            found.append(_NONE)
            breaches.update(dict.fromkeys(np.flatnonzero(inverse == i).tolist(), breach))
    return found, inverse, breaches


def _of_samples(
    group: Group, shape: Shape, present: Flags | None, policy: Policy
) -> tuple[list[Values], NDArray[np.int64], dict[int, Breach]]:
    """Returns the values of series fields in samples: all distinct ones, which of them each reading has, (n,
    k), and the faults by row."""
    parts = [_typed(group, cells) for cells in shape.series.values()]
    keys, which = distinct_rows(np.concatenate(parts, axis=2))
    found: list[Values] = []
    breaches: dict[int, Breach] = {}
    for i, key in enumerate(keys):
        values: Values = {}
        for name, cells, part in zip(shape.series, shape.series.values(), parts, strict=True):
            raw, key = key[: part.shape[2]], key[part.shape[2] :]
            if raw[0] in (0, *NOTHING):  # nothing is there, or null
                if name in policy.default_series:
                    values[name] = _canonical(name, policy.default_series[name])
                continue
            try:
                path = next(element.path for cell in cells for element in cell)
                values[name] = _scalar(path, raw)
            except Breach as breach:
                holding = (which == i) if present is None else (which == i) & present
                breaches.update(dict.fromkeys(np.flatnonzero(holding.any(axis=1)).tolist(), breach))
        found.append(values)
    return found or [_NONE], which, breaches


def _typed(group: Group, cells: Sequence[Cell]) -> NDArray[np.uint8]:
    """Returns type and value of what stands in these cells, (n, k, width), with zeros behind shorter ones."""
    widest = max((element.size for cell in cells for element in cell), default=0)
    if widest > _MAX_IN_SAMPLE:
        path = next(".".join(it.path) for cell in cells for it in cell if it.size == widest)
        limit = f"in a sample at most {_MAX_IN_SAMPLE} can be"
        raise Breach(path, f"no series: its value has {widest:,} bytes, and {limit}")
    found = np.zeros((len(group.members), len(cells), 1 + widest), dtype=np.uint8)
    for kind, at, elements in by_type(cells):
        for size, indices in by_size(elements).items():
            values = read_bytes(group.matrix, [elements[i].start for i in indices], size)
            places = steps([at[i] for i in indices])
            if group.present is None:
                found[:, places, 0] = kind
                found[:, places, 1 : 1 + size] = values
            else:
                present = group.present[:, [elements[i].flag for i in indices]]
                found[:, places, 0] = np.where(present, kind, found[:, places, 0])
                merged = np.where(present[:, :, None], values, found[:, places, 1 : 1 + size])
                found[:, places, 1 : 1 + size] = merged
    return found


def _scalar(path: Path, typed: bytes) -> Any:
    kind = typed[0]
    size, _, _ = extent(typed, kind, 1)
    return _canonical(".".join(path), _decoded(Element(path, kind, 0, size, 0, 0), typed[1 : 1 + size]))


def _decoded(element: Element, raw: bytes) -> Any:
    name = ".".join(element.path)
    if len(raw) > _MAX_BYTES:
        raise Breach(name, f"no series: its value has {len(raw):,} bytes, and at most {_MAX_BYTES:,} can be")
    try:
        value = decode_value(element.type, raw)
    except InvalidBSON as error:
        raise Breach(name, f"no series: {error}") from error
    if isinstance(value, dict):
        _check_storable(name, value)
        if bson.encode(value, codec_options=_CODEC) != raw:
            raise Breach(name, "no series: the document holds a field twice, or a value of a deprecated type")
    return value


def _check_storable(name: str, value: Any, level: int = 1) -> None:
    """Raises Breach where a value can't be in a summary's `_id`: it is too deep, or a name in it begins with
    $."""
    if level > _MAX_LEVELS:
        raise Breach(name[:80], f"no series: the document is more than {_MAX_LEVELS} levels deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.startswith("$"):
                raise Breach(f"{name}.{key}", "no series: the name of a field in it begins with $")
            _check_storable(f"{name}.{key}", inner, level + 1)
    if isinstance(value, list):
        for inner in value:
            _check_storable(name, inner, level + 1)


def series_key(series: Series) -> bytes:
    """Returns bytes that are equal for equal series."""
    return bson.encode({str(i): _keyed(value) for i, value in enumerate(series)}, codec_options=_CODEC)


_CODEC: Any = bson.CodecOptions(uuid_representation=4, tz_aware=True)


def _keyed(value: Any) -> Any:
    return bson.Int64(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _canonical(name: str, value: Any) -> Any:
    """Returns whole numbers as ints, whatever their BSON type."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Breach(name, f"no series: {value} is not a finite number")
        return int(value) if value.is_integer() and -(2**63) <= value < 2**63 else value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_canonical(name, inner) for inner in value]
    return value


def is_of_series(policy: Policy, document: bytes, selector: Selector) -> bool:
    """Returns whether a bucket is of the series asked for. One whose series lie in its samples may be."""
    return all(
        name in policy.sample_series
        or series_text_at(policy, name, first_at(document, split(policy.stored_series[name]))) == text
        for name, text in selector.items()
    )


def series_text_at(policy: Policy, name: str, raw: bytes) -> str:
    """Returns the text of a series field as series have it: whole numbers are ints, whatever their BSON type.
    `raw`: as `first_at` gives the value; empty where there is none."""
    value = as_queried(raw)
    if value is None:
        value = policy.default_series.get(name)
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**63
    return series_text(int(value) if is_whole else value)
