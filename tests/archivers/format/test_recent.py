"""What was read of an archive is cached, within bounds, at a cost that doesn't grow with what is cached."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from bucketwise.archivers.format.archive import Recent, section_key


@dataclass
class Sized:
    """Buckets of so many bytes, that count how often their size is asked for."""

    bytes: int
    asked: int = 0

    @property
    def size(self) -> int:
        self.asked += 1
        return self.bytes


def section(number: int) -> str:
    of: Any = SimpleNamespace(buckets_file=SimpleNamespace(key=f"{number}"), documents_sha256="")
    return section_key(of)


def test_many_small_ones_cost_the_same_each_and_are_bounded() -> None:
    recent: Any = Recent().sections
    put = [Sized(100) for _ in range(20_000)]
    for number, it in enumerate(put):
        recent.put(section(number), it)
    assert max(it.asked for it in put) <= 2
    held = [number for number in range(len(put)) if recent.get(section(number)) is not None]
    assert 1_000 < len(held) < 5_000
    assert held == list(range(held[0], len(put)))


@pytest.mark.parametrize("size", [10, 50_000_000])
def test_the_last_one_is_held_whatever_its_size(size: int) -> None:
    recent: Any = Recent().sections
    large = Sized(size)
    recent.put(section(0), Sized(1))
    recent.put(section(1), large)
    assert recent.get(section(1)) is large
    recent.put(section(2), Sized(1))
    recent.put(section(3), Sized(1))
    assert (recent.get(section(1)) is large) == (size == 10)
    assert recent.get(section(2)) is not None


def test_what_was_asked_for_stays_longer() -> None:
    recent: Any = Recent().sections
    for number in range(3):
        recent.put(section(number), Sized(3_500_000))
        recent.get(section(0))
    recent.put(section(3), Sized(1))
    assert [recent.get(section(number)) is not None for number in range(4)] == [True, False, True, True]


def test_parts_are_bounded() -> None:
    parts = Recent().parts
    for number in range(6):
        parts.put(str(number), bytes(5 << 20))
    held = [parts.get(str(number)) is not None for number in range(6)]
    assert held == [False, False, False, True, True, True]
