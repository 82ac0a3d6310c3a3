"""Findings about a collection: what is wrong, what it costs, and how to mend it."""

from __future__ import annotations

from typing import NamedTuple


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
