"""Measurements of a run of one policy, beside its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from jobs import clock


@dataclass
class Measures:
    """Measurements of a run. `ended`: None where the run could not begin. `seconds` by step. `requests` to
    the store by operation, `retries` of them. `gauges`: the state of the policy after the run, by the names
    of the metrics; empty where it is not known."""

    ended: datetime | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    gauges: Mapping[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Notes how long the step in the block takes, also where it fails."""
        begun = clock.steady()
        try:
            yield
        finally:
            self.seconds[step] = clock.steady() - begun
