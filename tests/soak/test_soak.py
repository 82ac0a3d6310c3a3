from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import placed, soak
from tests.soak.register import Reading, Register
from tests.soak.seen import Broken, Seen, check_readings
from tests.soak.sources import Source, Ticks
from tests.soak.world import START, World

A, B = Reading("A", 0, 1.0), Reading("A", 0, 2.0)


def test_a_register_knows_what_has_to_be_there() -> None:
    register = Register()
    register.inserted(1, b"", [A, Reading("A", 1, 1.5)])
    register.changed(1, [B])  # of the same time as A
    register.inserted(2, b"", [Reading("B", 0, 3.0)])
    register.deleted(2, [Reading("B", 0, 3.0)])
    assert (set(register.standing), set(register.loose)) == ({1.5, 2.0}, {1.0, 3.0})
    register.erase("A")
    assert (set(register.standing), set(register.loose), register.erased) == (set(), {3.0}, {1.0, 1.5, 2.0})


@pytest.mark.proof
def test_what_is_lost_or_double_is_found(tmp_path: Path) -> None:
    with placed(tmp_path, seed=5) as world:
        assert soak(world, minutes=60, rounds=12, every=6) == 0
        source = next(it for it in world.sources if isinstance(it, Ticks) and not it.is_online)
        parts = sorted(world.archive.root.glob("ticks/data/**/*.parquet"))
        for break_it, what in (
            (lambda: parts[0].rename(tmp_path / "aside"), "lost"),
            (lambda: (tmp_path / "aside").rename(parts[0]), None),
            (lambda: source.collection("ticks").insert_one(source.document("A", START)), "never written"),
        ):
            break_it()
            assert_found(world, source, what)


def assert_found(world: World, source: Source, what: str | None) -> None:
    def check() -> None:
        check_readings(source, Seen.of(source, world.archive), world.now, set())

    if what is None:
        check()
    else:
        with pytest.raises(Broken, match=what):
            check()
