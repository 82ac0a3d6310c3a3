"""The README's picture shows what the demo prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bucketwise.jobs.demo.stage import invent
from bucketwise.jobs.demo.verb import PRESENT
from docs.draw_demo import PICTURE, drawn, svg
from tests.jobs.command import started


def _rows() -> list[list[str]]:
    """The texts of each line, from left to right."""
    lines = re.findall(r"<text .*?</text>", PICTURE.read_text(encoding="utf-8"))
    return [re.findall(r">([^<]+)</tspan>", line) for line in lines]


@pytest.mark.proof
def test_it_has_the_figures_of_what_is_loaded() -> None:
    shown: dict[str, list[str]] = {}
    for row in (it for it in _rows() if len(it) == 6):
        shown.setdefault(row[0], row[3:])  # a later act shows a day of each
    for name, made in invent(PRESENT).items():
        figures = (len(made.documents) + len(made.extra), len(made.time), len(made.series))
        assert shown[name] == [f"{it:,}" for it in figures]


@pytest.mark.proof
def test_it_is_drawn_from_what_the_demo_prints(tmp_path: Path) -> None:
    with started("demo", cwd=tmp_path, TMPDIR=str(tmp_path)) as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert _without_sizes(svg(drawn(out))) == _without_sizes(PICTURE.read_text(encoding="utf-8"))


def _without_sizes(picture: str) -> str:
    """Sizes of files differ a little: MongoDB returns the fields of measurements in any order."""
    return re.sub(r"[\d.]+ kB", "kB", picture)
