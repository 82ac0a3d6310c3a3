"""Alters a process before it starts."""

from __future__ import annotations

import importlib
import sys


def install(hides: str | None = None, values: dict[str, object] | None = None) -> None:
    """`hides`: a library, as if it were not installed. `values`: of variables, by module and name."""
    if hides is not None:
        sys.modules[hides] = None  # type: ignore[assignment]  # an import then raises ImportError
    for name, value in (values or {}).items():
        module, _, variable = name.rpartition(".")
        assert hasattr(importlib.import_module(module), variable)
        setattr(sys.modules[module], variable, value)
