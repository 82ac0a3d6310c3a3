"""Who a run is: what its records say beside what was done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class RunIdentity:
    """A run as its records name it. `now_given`: the instant of `--now`; None where it was the present."""

    run: str
    host: str
    user: str
    version: str
    now_given: datetime | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Returns the fields of a record that name the run."""
        return asdict(self)


#: For what only reads.
NO_RUN = RunIdentity("", "", "", "")
