"""Roll-ups by themselves: what the verb `rollup` does, of what has changed, and of a range in slices."""

from __future__ import annotations

from tests.explore.commits import Run
from tests.explore.effects import Steps, read, write
from tests.explore.recovery import recover
from tests.explore.runs import roll_up
from tests.explore.world import DAYS, Effect


def rollup(run: Run) -> Steps:
    """The verb `rollup`."""
    yield from recover(run)
    yield from roll_up(run, DAYS)


def backfill(run: Run) -> Steps:
    """The verb `rollup` of both days, in slices: it goes on where an earlier call was cut off."""
    yield from recover(run)
    before: int = (yield read("reached")).get(("reached", 0), 0)
    for day in DAYS[before % len(DAYS) :]:
        yield from roll_up(run, {day}, force=True)
        yield reaching(day)


def reaching(day: int) -> Effect:
    """Notes that the summaries of a day, and of those before it, are written."""
    return write(f"reaches the end of day {day}", {("reached", 0): day + 1})
