"""Alters a process before it starts."""

from __future__ import annotations

import pkgutil
import sys


def install(hides: str | None = None, values: dict[str, object] | None = None) -> None:
    """`hides`: a library, as if it were not installed. `values`: see `alter`."""
    if hides is not None:
        sys.modules[hides] = None  # type: ignore[assignment]  # an import then raises ImportError
    alter(values or {})


def alter(values: dict[str, object]) -> None:
    """Give variables and methods other values, by their modules and names. What isn't there is a mistake: it
    would change nothing."""
    for name, value in values.items():
        owner, _, variable = name.rpartition(".")
        found = pkgutil.resolve_name(owner)
        assert hasattr(found, variable), f"there is no {name}"
        setattr(found, variable, value)
