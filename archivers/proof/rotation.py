"""Decides which pieces of an archive an audit reads, where it does not read all: in rotation, by days. Pure.

Each day on which commits begin has a turn; of an online archive, each day on which buckets end. Audits go
through the turns by their own day: they need no memory of earlier ones, and no right to write. The number of
turns is a prime, so that audits at any regular interval below it, in days, reach all of them: nightly ones
soonest, weekly ones as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import count
from typing import NamedTuple

from bucketwise.archivers.format.names import day_number
from bucketwise.archivers.verifying.report import Piece
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Span

#: With fewer turns, weekly audits would always take the same ones, or need years to take all.
_FEWEST = 11


class Rotation(NamedTuple):
    """The number of turns, and how many of them one audit takes."""

    number: int
    at_once: int

    @property
    def days(self) -> int:
        """Returns within how many days nightly audits reach all parts."""
        return -(-self.number // self.at_once)

    def has(self, day: int, today: int) -> bool:
        """Returns whether an audit today reads what begins on a day; both since 1970, UTC."""
        return (day - today * self.at_once) % self.number < self.at_once


ALL = Rotation(1, 1)


def rotation_of(share: float | None) -> Rotation:
    """Returns the turns that read about this share each time; None: all at once."""
    if share is None or share >= 1:
        return ALL
    number = next(it for it in count(max(_FEWEST, round(1 / share))) if _is_prime(it))
    return Rotation(number, max(1, round(number * share)))


class Sample(NamedTuple):
    """What an audit reads of an archive. `unread`: spans of days on which something is archived, of which
    nothing is read."""

    pieces: Sequence[Piece]
    unread: Sequence[Span]  # milliseconds


def sample(pieces: Iterable[Piece], rotation: Rotation, now: datetime) -> Sample:
    """Returns the pieces that have their turn now, by the day on which each begins."""
    today, everything = as_ms(now) // DAY_MS, list(pieces)
    read = [it for it in everything if rotation.has(day_number(it.first), today)]
    days = Spans(map(_days_of, read))
    archived = Spans(map(_days_of, everything)).spans
    return Sample(read, [part for span in archived for part in days.gaps(*span)])


def _days_of(piece: Piece) -> Span:
    return day_number(piece.first) * DAY_MS, (day_number(piece.last) + 1) * DAY_MS


def _is_prime(number: int) -> bool:
    return all(number % it for it in range(2, int(number**0.5) + 1))
