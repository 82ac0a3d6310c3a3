"""Decides whether a run is late: was a firing of the policy's schedule missed before it?"""

from __future__ import annotations

from datetime import datetime

from config.cron import parse_cron
from config.throttling import parse_window


def missed_since(
    schedule: str, completed: datetime | None, now: datetime, window: str | None = None
) -> datetime | None:
    """Returns the first firing of a cron expression that was missed: no run was `completed` that began at or
    after it, and another firing has passed since, by `now`. None where none was, and before the first run.
    What fires outside of the `window` in which runs work is due when that opens."""
    cron, working = parse_cron(schedule), parse_window(window or "always")

    def due_after(instant: datetime | None) -> datetime | None:
        fired = None if instant is None else cron.first_after(instant)
        return fired if fired is None or working is None else working.next_open(fired)

    first = due_after(completed)
    second = due_after(first)
    return first if second is not None and second <= now else None
