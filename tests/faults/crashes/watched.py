"""Put into a process of the command line: writes all that it does to a log, as `points.py` names it, and does
no more. What else is to be put in comes before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.faults.crashes.points import watch


def install(log: str, folder: str, first: tuple[str, dict[str, Any]] | None = None, **more: Any) -> None:
    """`log`: the file. `folder`: the one that holds the store, and what the process writes aside. `first`: a
    module, and what its `install` is given."""
    if first is not None:
        module, given = first
        import_module(module).install(**given)
    watch(log, folder, **more)
