"""What is measured: the values of the series fields, made one where MongoDB holds them equal."""

from __future__ import annotations

import math
from typing import Any

import bson
import numpy as np
from bson.errors import InvalidBSON
from numpy.typing import NDArray

from buckets.bsontypes import (
    BINARY,
    BOOL,
    DATE,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    OBJECT_ID,
    STRING,
    decode_value,
)
from buckets.columns import Series
from buckets.layout import Element, Group
from buckets.shape import Breach, need, split

_TYPES = (STRING, INT32, INT64, DOUBLE, BOOL, OBJECT_ID, DATE, BINARY, DOCUMENT)
#: Summaries hold it twice, and reports as text. A document there lies two levels deeper than in its bucket.
_MOST_BYTES, _MOST_LEVELS = 1 << 20, 150


class SeriesTable:
    """The distinct series seen so far, each with its index."""

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._index: dict[bytes, int] = {}

    def index(self, series: Series) -> int:
        key = series_key(series)
        if key not in self._index:
            self._index[key] = len(self.series)
            self.series.append(series)
        return self._index[key]

    def of_group(self, group: Group, fields: tuple[str, ...]) -> tuple[NDArray[np.int32], dict[int, Breach]]:
        """The series of each document, and what is wrong with whose (by row in the group)."""
        elements = [need(group.layout, split(name), _TYPES, "series") for name in fields]
        n = len(group.members)
        if not elements:
            return np.full(n, self.index(()), dtype=np.int32), {}
        spans = np.ascontiguousarray(
            np.hstack([group.matrix[:, e.start : e.start + e.size] for e in elements])
        )
        keys = spans.view(f"S{spans.shape[1]}").ravel()
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        found = np.zeros(len(first), dtype=np.int32)
        breaches: dict[int, Breach] = {}
        for i, row in enumerate(first):
            try:
                values = [_decoded(e, group.raw(int(row), e)) for e in elements]
                found[i] = self.index(
                    tuple(_canonical(name, value) for name, value in zip(fields, values, strict=True))
                )
            except Breach as breach:
                breaches.update(dict.fromkeys(np.flatnonzero(inverse == i).tolist(), breach))
        return found[inverse], breaches


def _decoded(element: Element, raw: bytes) -> Any:
    name = ".".join(element.path)
    if len(raw) > _MOST_BYTES:
        raise Breach(name, f"no series: its value has {len(raw):,} bytes, and at most {_MOST_BYTES:,} can be")
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
    """A summary's `_id` holds the document, and may hold less than a bucket."""
    if level > _MOST_LEVELS:
        raise Breach(name[:80], f"no series: the document is more than {_MOST_LEVELS} levels deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.startswith("$"):
                raise Breach(f"{name}.{key}", "no series: the name of a field in it begins with $")
            _check_storable(f"{name}.{key}", inner, level + 1)
    if isinstance(value, list):
        for inner in value:
            _check_storable(name, inner, level + 1)


def series_key(series: Series) -> bytes:
    """Equal for equal series."""
    return bson.encode({str(i): _keyed(value) for i, value in enumerate(series)}, codec_options=_CODEC)


_CODEC: Any = bson.CodecOptions(uuid_representation=4, tz_aware=True)


def _keyed(value: Any) -> Any:
    return bson.Int64(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _canonical(name: str, value: Any) -> Any:
    """Whole numbers are ints, whatever their BSON type."""
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
