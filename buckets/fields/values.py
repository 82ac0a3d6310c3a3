"""Values of readings, of any type, as doubles and kinds.

Numbers are numbers. What a text, or `true` and `false`, counts as is told by the policy (`values.FIELD`); a
text of another form is no number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import (
    BOOL,
    DECIMAL128,
    DOUBLE,
    INT32,
    INT64,
    STRING,
    SYMBOL,
    decode_value,
)
from bucketwise.buckets.columns import NO_STATE, StateColumn, ValueKind
from bucketwise.buckets.fields.distinct import distinct_rows
from bucketwise.buckets.layouts.layout import Cell, Element, Group, by_size, by_type, read_bytes
from bucketwise.config.policies import Policy, ValueField

#: The types that are numbers.
NUMBERS = (DOUBLE, INT32, INT64, DECIMAL128)
_TEXTS = (STRING, SYMBOL)
_DTYPES = {DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}
#: A number that is text: ASCII digits without separators of thousands, or what is not finite.
_NUMBER = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE
)
#: Bytes of a text's value, its length in front and a zero behind included. A longer one is no number, and no
#: state.
_LONGEST = 256


class Wording:
    """Tells what texts and booleans of a value field count as."""

    def __init__(self, field: ValueField) -> None:
        self._field = field
        self._words = {text.encode(): number for text, number in field.map.items()}
        self._unit = (field.unit or "").strip()

    @property
    def has_booleans(self) -> bool:
        """Returns whether `true` or `false` count as a number."""
        return not self._words.keys().isdisjoint((b"true", b"false"))

    def word(self, text: bytes) -> float | None:
        """Returns what a word counts as; None where it counts as nothing."""
        return self._words.get(text)

    def number(self, text: bytes) -> float | None:
        """Returns the number that a text is; None for a text that is none."""
        if (found := self.word(text)) is not None or not self._field.text:
            return found
        try:
            shown = text.decode().strip()
        except UnicodeDecodeError:
            return None
        if self._unit:
            shown = shown.removesuffix(self._unit).rstrip()
        if self._field.decimal != ".":
            if "." in shown:
                return None
            shown = shown.replace(self._field.decimal, ".", 1)
        return float(shown) if _NUMBER.fullmatch(shown) else None


@lru_cache(8)
def wordings(policy: Policy) -> dict[str, Wording]:
    """Returns what texts and booleans count as, by the name of the value field: of those where they do."""
    tables = {name: policy.values[path] for name, path in policy.named_values if path in policy.values}
    return {name: Wording(it) for name, it in tables.items() if it.text or it.map}


def read_values(
    group: Group, cells: Sequence[Cell], wording: Wording | None = None
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Returns values as doubles, (n, k), NaN where there is no number, and their kinds. Longs beyond 2**53
    and decimals become the nearest double."""
    if (alike := group.of_one_type(cells)) and alike[0] in NUMBERS:
        return _numbers(group, *alike)
    shape = (len(group.matrix), len(cells))
    values, kinds = np.full(shape, np.nan), np.full(shape, ValueKind.MISSING, dtype=np.uint8)
    for kind, at, elements in by_type(cells):
        if kind in NUMBERS:
            read, found = _numbers(group, kind, elements)
        elif wording is not None and kind in _TEXTS:
            read, found = _texts(group, elements, wording)
        elif wording is not None and kind == BOOL and wording.has_booleans:
            read, found = _booleans(group, elements, wording)
        else:
            group.put(kinds, at, np.array(ValueKind.NONNUMERIC, dtype=np.uint8), elements)
            continue
        group.put(values, at, read, elements)
        group.put(kinds, at, found, elements)
    return values, kinds


def _numbers(
    group: Group, kind: int, elements: Sequence[Element]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    if kind == DECIMAL128:
        read = np.array([_decimals(group, element) for element in elements]).T
    else:
        read = group.read(elements, _DTYPES[kind]).astype(np.float64, copy=False)
    return read, np.uint8(ValueKind.NONFINITE) - np.isfinite(read).view(np.uint8)  # FINITE is one less


def _decimals(group: Group, element: Element) -> NDArray[np.float64]:
    found = np.full(len(group.matrix), np.nan)
    rows = np.flatnonzero(group.present[:, element.flag]) if group.present is not None else range(len(found))
    for row in rows:
        raw = group.matrix[row, element.start : element.start + element.size].tobytes()
        decimal = decode_value(DECIMAL128, raw).to_decimal()
        if not decimal.is_nan():  # no float is an sNaN
            found[row] = float(decimal)
    return found


def _texts(
    group: Group, elements: Sequence[Element], wording: Wording
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    shape = (len(group.matrix), len(elements))
    values, kinds = np.full(shape, np.nan), np.full(shape, ValueKind.NONNUMERIC, dtype=np.uint8)
    for size, at in by_size(elements).items():
        if size <= _LONGEST:
            texts, which = distinct_rows(read_bytes(group.matrix, [elements[i].start for i in at], size))
            numbers = [wording.number(raw[4 : 3 + int.from_bytes(raw[:4], "little")]) for raw in texts]
            values[:, at], kinds[:, at] = _counted(numbers, which)
    return values, kinds


def _booleans(
    group: Group, elements: Sequence[Element], wording: Wording
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    which = (group.read(elements, "u1") != 0).astype(np.int64)
    return _counted([wording.word(b"false"), wording.word(b"true")], which)


def _counted(
    numbers: list[float | None], which: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Returns the values and kinds of distinct numbers where they stand; None: no number."""
    values = np.array([math.nan if it is None else it for it in numbers])
    kinds = np.where(np.isfinite(values), ValueKind.FINITE, ValueKind.NONFINITE).astype(np.uint8)
    kinds[[it is None for it in numbers]] = ValueKind.NONNUMERIC
    return values[which], kinds[which]


def read_states(
    group: Group, cells: Sequence[Cell], values: NDArray[np.float64], kinds: NDArray[np.uint8]
) -> StateColumn:
    """Returns the states that values tell, (n, k): a finite number its shortest text, any other text itself,
    `true` and `false` their names. `values`, `kinds`: as `read_values` returns them."""
    finite, index = kinds == ValueKind.FINITE, dict[str, int]()

    def codes_of(names: Iterable[str]) -> NDArray[np.int32]:
        return np.array([index.setdefault(it, len(index)) for it in names], dtype=np.int32)

    codes = np.full(kinds.shape, NO_STATE, dtype=np.int32)
    for kind, at, elements in by_type(cells):
        if kind == BOOL:
            which = (group.read(elements, "u1") != 0).astype(np.int64)
            group.put(codes, at, codes_of(("false", "true"))[which], elements)
        elif kind in _TEXTS:
            for size, places in by_size(elements).items():
                if size > _LONGEST:
                    continue
                some = [elements[it] for it in places]
                texts, which = distinct_rows(read_bytes(group.matrix, [it.start for it in some], size))
                found = codes_of(map(_text_of, texts))[which]
                group.put(codes, [at[it] for it in places], found, some)
    codes[kinds != ValueKind.NONNUMERIC] = NO_STATE
    numbers, which = np.unique(values[finite] + 0.0, return_inverse=True)  # -0.0 is 0
    codes[finite] = codes_of(map(number_text, numbers.tolist()))[which]
    return StateColumn(codes, list(index))


def _text_of(raw: bytes) -> str:
    return raw[4 : 3 + int.from_bytes(raw[:4], "little")].decode("utf-8", "backslashreplace")


def number_text(value: float) -> str:
    """Returns the shortest text of a number: 3.0 → 3, 0.5 → 0.5, 1e+22 → 1e+22."""
    return repr(value).removesuffix(".0")


def rounded_sum(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers, rounded once; ±inf or NaN where doubles can't hold the way to it."""
    numbers = list(values)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return sum(numbers, 0.0)
