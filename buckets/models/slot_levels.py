"""Levels of slots: how many lie side by side, how long each is, and what it is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from bucketwise.config.models import SlotKeys

_CLOCK = re.compile(r"(?P<h>\d\d)(?::(?P<m>\d\d)(?::(?P<s>\d\d))?|(?P<compact>\d\d))", re.ASCII)
#: Keys may be padded with zeros to so many digits, and to those of the last one.
_PADDED = 2
_HOUR_MS, _MINUTE_MS, _SECOND_MS = 3_600_000, 60_000, 1_000


@dataclass(frozen=True)
class SlotLevel:
    """Slots side by side: so many, each of this length. Keys are numbers, the first one this."""

    slots: int
    length: int  # milliseconds
    first: int = 0

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a key stands for, from 0 on; None where it is none. `before`: how many slots of
        this level a bucket has before the first of these."""
        return self._counted(key, self.first, self.slots)

    def at(self, index: str) -> int | None:
        """Returns which slot a place of an array stands for; None where it is behind the last."""
        return int(index) if int(index) < self.slots else None

    def key(self, place: int, before: int = 0) -> str:
        """Returns the key of a slot."""
        return str(place + self.first)

    def keys(self, before: int = 0, *, in_array: bool = False) -> str:
        """Returns the keys, or places, that there are, for people."""
        if in_array:
            return f'"0" to "{self.slots - 1}"'
        return f'"{self.key(0, before)}" to "{self.key(self.slots - 1, before)}"'

    def _counted(self, key: str, first: int, most: int) -> int | None:
        if not (key.isascii() and key.isdigit() and len(key) <= _digits(self.first + most - 1)):
            return None
        place = int(key) - first
        return place if 0 <= place < self.slots else None


@cache
def _digits(last: int) -> int:
    """Returns how many digits the key of a slot may have, if the last one is called so."""
    return max(_PADDED, len(str(last)))


@dataclass(frozen=True)
class RunningLevel(SlotLevel):
    """Slots whose keys count on through the bucket."""

    whole: int = 0  # how many slots of this level a bucket has

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a key stands for."""
        return self._counted(key, self.first + before, self.whole)

    def key(self, place: int, before: int = 0) -> str:
        """Returns the key of a slot."""
        return str(place + before + self.first)


@dataclass(frozen=True)
class ClockLevel(SlotLevel):
    """Slots whose keys are clock times: "07:30", "0730", or "07:30:00"."""

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a clock time stands for."""
        found = _CLOCK.fullmatch(key)
        if found is None:
            return None
        hour, minute, second = int(found["h"]), int(found["m"] or found["compact"]), int(found["s"] or 0)
        ms = hour * _HOUR_MS + minute * _MINUTE_MS + second * _SECOND_MS
        is_one = minute < 60 and second < 60 and ms % self.length == 0
        return ms // self.length if is_one and ms // self.length < self.slots else None

    def key(self, place: int, before: int = 0) -> str:
        """Returns the clock time of a slot."""
        hour, rest = divmod(place * self.length, _HOUR_MS)
        minute, rest = divmod(rest, _MINUTE_MS)
        tail = f":{rest // _SECOND_MS:02}" if self.length % _MINUTE_MS else ""
        return f"{hour:02}:{minute:02}{tail}"


def levels_of(longest_ms: int, lengths: list[int], first: int, keys: SlotKeys) -> list[SlotLevel]:
    """Returns levels of slots of these lengths, outer first, in a bucket that is so long at most."""
    found: list[SlotLevel] = []
    for span, length in zip([longest_ms, *lengths], lengths, strict=False):
        slots = -(-span // length)
        if keys == "clock":
            found.append(ClockLevel(slots, length))
        elif keys == "running" and found:
            found.append(RunningLevel(slots, length, first, -(-longest_ms // length)))
        else:
            found.append(SlotLevel(slots, length, first))
    return found
