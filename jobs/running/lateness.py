"""Is a run late: was a firing of the policy's schedule missed before it?"""

from __future__ import annotations

from datetime import datetime

from config.cron import parse_cron


def missed_since(schedule: str, completed: datetime | None, now: datetime) -> datetime | None:
    """Returns the first firing of a cron expression that was missed: no run was `completed` that began at or
    after it, and another firing has passed since, by `now`. None where none was, and before the first run."""
    cron = parse_cron(schedule)
    first = None if completed is None else cron.first_after(completed)
    second = None if first is None else cron.first_after(first)
    return first if second is not None and second <= now else None
