"""The images of the pages: those that the command draws, and small."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from tests.docs.images import FOLDER, SCHEMES, VERBS, WIDTHS, draw

DRAWN = {f"{it}.svg" for it in VERBS} | {
    f"{name}-{width}-{scheme}.webp" for name, width, scheme in product(("audit", "service"), WIDTHS, SCHEMES)
}


def test_they_are_those_that_are_drawn_and_small() -> None:
    there = list(FOLDER.iterdir())
    assert {it.name for it in there} == DRAWN
    assert sum(it.stat().st_size for it in there) < 1_500_000


@pytest.mark.proof
def test_they_can_be_drawn(tmp_path: Path) -> None:
    draw(tmp_path)
    assert {it.name for it in tmp_path.iterdir()} == DRAWN
    for name in VERBS:
        told = re.sub("<[^>]+>", "", (tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
        assert f"bucketwise&#160;{name}" in told
