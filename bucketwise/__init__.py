"""Keeps time-series collections in MongoDB small. For Python: `Suite` for the jobs, `connect` for SQL, `scan`
for Arrow, Polars and pandas. What takes long to import is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketwise.config import VERSION

if TYPE_CHECKING:
    from bucketwise import errors
    from bucketwise.api import connect, scan
    from bucketwise.suite import Suite

__all__ = ["Suite", "__version__", "connect", "errors", "scan"]

__version__ = VERSION

#: The modules that have the names of the API.
_MODULES = {"Suite": "suite", "connect": "api", "scan": "api"}


def __getattr__(name: str) -> object:
    """Returns a name of the API; it brings other modules with it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name not in _MODULES:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Returns the names of the API."""
    return __all__
