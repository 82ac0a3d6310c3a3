"""Text for people: escapes, sizes, durations."""

from __future__ import annotations

import math
from collections.abc import Sequence


def printable(text: str) -> str:
    """Returns text with escapes for whatever moves a terminal's cursor, changes its colours, or reverses the
    line."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def first_of(names: Sequence[str], most: int) -> str:
    """Returns the first names, separated by commas, with … where there are more."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def size(count: int | None) -> str:
    """Returns bytes as text, in the unit that suits them."""
    if count is None:
        return "–"
    scaled, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):  # noqa: B007  # the last one stands for all above
        if scaled < 1000:
            break
        scaled /= 1000
    return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"


def duration(seconds: float) -> str:
    """Returns a duration as people say it: such as 45 s, 12 min, 3 h 20 min."""
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
