"""The context of a run: what everything that is done for one policy works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.database import Database

from config.policies import Policy
from rollups.guarded import Guard

Document = dict[str, Any]
#: Raises where the run must stop.
Check = Callable[[], None]
#: Hears what was done, and of how much: ("rolled-up readings", 3600).
Progress = Callable[[str, int], None]


def silent(_label: str, _count: int) -> None:
    """Reports no progress."""


@dataclass(frozen=True)
class RunContext:
    """What one run of one policy works with.

    `now` is the run's present. `guard` raises inside a transaction, and `check` between steps, where the run
    has lost its lease or was asked to stop.
    """

    database: Database[Document]
    policy: Policy
    now: datetime
    guard: Guard
    check: Check
    progress: Progress = silent
