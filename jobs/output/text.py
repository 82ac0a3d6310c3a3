"""Text that is safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """Returns text with escapes for whatever moves a terminal's cursor, changes its colours, or reverses the
    line."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)
