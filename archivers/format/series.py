"""Which series a commit holds, in its manifest: a Bloom filter over the values of each series field.

`--series` names one text for a field, so the filter holds these very texts, field by field. It may say that a
series is there when it is not, but never the reverse. Where there are too many values, it lets all pass.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import Selector, series_text

#: With ten bits a key, one in a hundred other keys passes. As base64, 1,536 bytes are 2 kB.
_BITS_A_KEY, _LEAST_BYTES, _MOST_BYTES = 10, 16, 1536
#: With more keys, half of all other keys would pass.
_MOST_KEYS = 6_000
_MOST_HASHES = 7


class HeldSeries(BaseModel):
    """The series of a commit, as its manifest has them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    is_exact: bool  # columns of parts give each series as it is: its values, of their types
    hashes: int = Field(ge=0, le=_MOST_HASHES)
    bits: str  # base64; nothing where there are too many keys

    @field_validator("bits")
    @classmethod
    def _is_base64(cls, bits: str) -> str:
        try:
            base64.b64decode(bits, validate=True)
        except binascii.Error as error:
            raise ValueError(f"it is not valid base64: {error}") from None
        return bits

    @classmethod
    def of(cls, series: Sequence[Series], names: Sequence[str], *, is_exact: bool) -> Self:
        """Returns a filter that finds these series, and few others."""
        keys = _keys(series, names)
        if len(keys) > _MOST_KEYS:
            return cls(is_exact=is_exact, hashes=0, bits="")
        size = min(_MOST_BYTES, max(_LEAST_BYTES, math.ceil(len(keys) * _BITS_A_KEY / 8)))
        hashes = max(1, min(_MOST_HASHES, round(math.log(2) * size * 8 / max(1, len(keys)))))
        data = bytearray(size)
        for place in (it for key in keys for it in _places(key, hashes, size * 8)):
            data[place // 8] |= 1 << place % 8
        return cls(is_exact=is_exact, hashes=hashes, bits=base64.b64encode(data).decode())

    def may_hold(self, selector: Selector) -> bool:
        """Returns whether a series may be there that has these texts in these fields."""
        data = self._data
        keys = (_key(name, text) for name, text in selector.items()) if data else ()
        return all(
            data[place // 8] >> place % 8 & 1
            for key in keys
            for place in _places(key, self.hashes, len(data) * 8)
        )

    @cached_property
    def _data(self) -> bytes:
        return base64.b64decode(self.bits)


def selector_of(series: Series, names: Sequence[str]) -> Selector:
    """Returns a selector of this series, and of others with the same texts."""
    return {name: series_text(value) for name, value in zip(names, series, strict=True)}


def _keys(series: Sequence[Series], names: Sequence[str]) -> set[bytes]:
    columns = zip(names, zip(*series, strict=True), strict=False)  # none without any series
    return {_key(name, text) for name, values in columns for text in set(map(series_text, values))}


def _key(name: str, text: str) -> bytes:
    """Returns a field and text as bytes. A text from a command line may hold bytes that are no UTF-8."""
    return f"{name}\0{text}".encode(errors="surrogatepass")


def _places(key: bytes, hashes: int, size: int) -> list[int]:
    """Returns the bits of a key: a + i * b for each hash i, where a and b are the first two numbers of 8
    bytes, little-endian, of its SHA-256. Bit 0 is the lowest one of the first byte."""
    digest = hashlib.sha256(key).digest()
    first, step = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
    return [(first + i * step) % size for i in range(hashes)]


def column_name(dotted: str) -> str:
    """Returns the name of a field's column in parts."""
    return dotted.replace(".", "_")


def series_types(series: Sequence[Series], fields: Sequence[str]) -> dict[str, str]:
    """Returns the column type of each series field: int64, bool, double, or string for all else."""
    found = {}
    for position, field in enumerate(fields):
        kinds = {type(values[position]) for values in series}
        if kinds == {int}:
            found[field] = "int64"
        elif kinds == {bool}:
            found[field] = "bool"
        elif kinds and kinds <= {int, float}:
            found[field] = "double"
        else:
            found[field] = "string"
    return found


def misfit(series: Series, types: dict[str, str]) -> tuple[str, Any] | None:
    """Returns the first series field whose value the archive's column can't hold, or None."""
    fitting: dict[str, tuple[type, ...]] = {"int64": (int,), "bool": (bool,), "double": (int, float)}
    for (field, kind), value in zip(types.items(), series, strict=True):
        wanted = fitting.get(kind)
        if wanted is not None and type(value) not in wanted:
            return field, value
        if kind == "int64" and not -(2**63) <= value < 2**63:
            return field, value
    return None


def as_written(series: Series, types: dict[str, str]) -> Series:
    """Returns the values of a series as its columns hold them."""
    writers: dict[str, Callable[[Any], Any]] = {"string": series_text, "double": float}
    return tuple(
        writers[kind](value) if kind in writers else value
        for value, kind in zip(series, types.values(), strict=True)
    )


def are_exact(series: Sequence[Series], types: dict[str, str]) -> bool:
    """Returns whether columns give these very series again: their values, of their types."""
    tests: dict[str, Callable[[Any], bool]] = {
        "string": lambda value: type(value) is str,
        "double": lambda value: bool(as_read(float(value), "double") == value),
    }
    columns = zip(types.values(), zip(*series, strict=True), strict=False)  # none without any series
    return all(all(map(tests[kind], values)) for kind, values in columns if kind in tests)


def as_read(value: Any, kind: str) -> Any:
    """Returns the value of a series that a column of this type holds: whole numbers are ints."""
    if kind == "double" and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)
    return value


class RowFilter(NamedTuple):
    """Selects readings in [start, end), milliseconds, of the series that any of the selectors matches;
    without selectors, of all."""

    start: int
    end: int
    series: Sequence[Selector] = ()
