"""Finds numbers that are written as text, and words that stand for numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from bucketwise.buckets.inferring.fields import is_number, is_text, non_null

#: Share of a field's texts that have to be numbers.
_NEARLY_ALL = 0.9
#: Share of a field's values that a word has to be, to be more than the mark of a fault.
_OFTEN = 0.02
_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:[.,][0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.,:/-][^0-9]{0,11})?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]+")
#: Words for 1 and for 0.
_WORDS = {
    **{"on": "off", "true": "false", "yes": "no", "open": "closed", "up": "down", "active": "inactive"},
    **{"enabled": "disabled", "running": "stopped", "high": "low", "online": "offline", "y": "n"},
    **{"ein": "aus", "an": "aus", "ja": "nein", "oui": "non", "si": "no", "marche": "arrêt", "1": "0"},
}
_BOOLEANS = ("true", "false")


class Written(NamedTuple):
    """How the values of a field are read: keys of `values.FIELD`."""

    keys: dict[str, Any]
    is_sure: bool = True  # whether there is more than their digits to tell them from names


def written_in(values: Sequence[Any]) -> Written | None:
    """Returns how to read a field of texts, or of texts and booleans among numbers; None where they are no
    numbers."""
    held = non_null(values)
    texts = [it for it in held if is_text(it)]
    if texts and (found := _numbers(texts)):
        return found
    words = {
        str(it).lower() if isinstance(it, bool) else it for it in held if isinstance(it, bool) or is_text(it)
    }
    numbers = sum(map(is_number, held))
    counts = _mapped(words)
    if counts is None or len(texts) + numbers + sum(isinstance(it, bool) for it in held) < len(held):
        return None
    return Written({"map": counts}, is_sure=numbers > 0)


def unknown_words(values: Sequence[Any]) -> tuple[str, str] | None:
    """Returns the two words that stand among numbers often enough to mean something; None where they are
    known, or where there are others."""
    held = non_null(values)
    words = Counter(it for it in held if is_text(it))
    if len(words) != 2 or not any(map(is_number, held)) or written_in(values) is not None:
        return None
    first, second = sorted(words)
    return (first, second) if min(words.values()) >= _OFTEN * len(held) else None


def _numbers(texts: Sequence[str]) -> Written | None:
    """Returns how to read texts that are numbers with at most one unit."""
    found = [it for it in map(_NUMBER.fullmatch, texts) if it]
    if len(found) < _NEARLY_ALL * len(texts):
        return None
    units = Counter((it[2] or "").strip() for it in found)
    unit = units.most_common(1)[0][0]
    if units[unit] < _NEARLY_ALL * len(found):
        return None
    has_comma = any(_COMMA.fullmatch(it[1]) for it in found)
    has_point = any(_POINT.fullmatch(it[1]) for it in found)
    if has_comma and has_point:
        return None
    keys: dict[str, Any] = {"text": True}
    if has_comma:
        keys["decimal"] = ","
    if unit:
        keys["unit"] = unit
    return Written(keys, is_sure=bool(unit) or has_comma or has_point)


def _mapped(words: set[str]) -> dict[str, float] | None:
    """Returns what words stand for; None if any is unknown. Booleans may be among them."""
    held = {it.lower() for it in words}
    for one, zero in _WORDS.items():
        if {one, zero} <= held <= {one, zero, *_BOOLEANS}:
            return {it: 1.0 if it.lower() in (one, "true") else 0.0 for it in sorted(words)}
    return None
