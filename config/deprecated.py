"""Names of earlier versions that still work for a time: those of keys, and the warning about all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

Key = tuple[str, ...]

#: By its table and its former name: the name of a key. In the table's place `*` stands for any policy.
FORMER_KEYS: dict[tuple[Key, str], str] = {}


class DeprecatedWarning(FutureWarning):
    """A name is used that will go. Python shows each once; the command line as a line of its own."""


def current_name(table: Key, name: str) -> str | None:
    """Returns the name that a key of this table has now, if it had another one; else None."""
    place = ("policies", "*", *table[2:]) if table[:1] == ("policies",) and len(table) > 1 else table
    return FORMER_KEYS.get((place, name))


def warn(uses: Iterable[tuple[str, str]]) -> None:
    """Warns of former names: `uses` has the place of each, and the name that replaces it."""
    for place, name in uses:
        warnings.warn(f"{place} is deprecated: it is called {name} now", DeprecatedWarning, stacklevel=1)
