"""Keeps time-series collections in MongoDB small. For Python: `connect` for SQL, `scan` for Arrow, Polars and
pandas. What takes long to import is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bucketwise.api import connect, scan

__all__ = ["__version__", "connect", "scan"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Returns a function of the API; it brings DuckDB's and Arrow's modules with it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bucketwise import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Returns the names of the API."""
    return __all__
