"""Formats of times that are text, in the directives of strptime."""

from __future__ import annotations

import re
from typing import NamedTuple

from bucketwise.config.problems import Fault

#: By their letters: the parts of a time that directives tell.
DIRECTIVES = {
    **{
        "Y": "year",
        "y": "year",
        "m": "month",
        "b": "month",
        "B": "month",
        "d": "day",
        "j": "day of the year",
    },
    **{"H": "hour", "I": "hour", "p": "half of the day", "M": "minute", "S": "second", "f": "fraction"},
    **{"a": "weekday", "A": "weekday", "z": "offset", "Z": "zone", "s": "seconds since 1970"},
}


class Token(NamedTuple):
    """A piece of a format: a directive's letter, or other text."""

    directive: str
    text: str = ""


def tokens_of(text: str) -> list[Token]:
    """Returns the pieces of a format."""
    found = []
    for piece in re.findall(r"%.?|[^%]+", text, flags=re.DOTALL):
        is_text = piece == "%%" or piece[0] != "%"
        found.append(Token("", piece.replace("%%", "%")) if is_text else Token(piece[1:]))
    return found


def format_fault(text: str) -> Fault | None:
    """Returns what keeps a format from telling a time; None for a sound one."""
    tokens = tokens_of(text)
    letters = [it.directive for it in tokens if it.directive or not it.text]
    unknown = [it for it in letters if it not in DIRECTIVES]
    if unknown:
        known = " ".join(f"%{it}" for it in DIRECTIVES)
        return Fault(f"there is no directive %{unknown[0]}", f"use {known} and %% only")
    if any(re.search("[0-9]", it.text) for it in tokens):
        return Fault("it has digits of its own", "let directives stand for all digits of a text")
    if "s" in letters:
        return None if len(tokens) == 1 else Fault("%s is a time by itself", 'write "%s" alone')
    parts = [DIRECTIVES[it] for it in letters]
    for part in parts:
        if parts.count(part) > 1:
            return Fault(f"it tells the {part} more than once", "write one directive for it")
    return _incomplete(set(parts), letters)


def _incomplete(parts: set[str], letters: list[str]) -> Fault | None:
    if "year" not in parts:
        return Fault("it tells no year", "add %Y")
    if "day of the year" in parts and parts & {"month", "day"}:
        return Fault("it tells the day twice", "leave %j out, or the month and its day")
    if "day" in parts and "month" not in parts:
        return Fault("it tells a day, and no month", "add %m")
    if ("I" in letters) != ("p" in letters):
        return Fault("%I and %p go together", "write both, or %H alone")
    return None
