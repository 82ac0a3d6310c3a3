"""The pages of decisions: their form, the files that they name, and the bytes of the worked example."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bson import encode

from tests.docs.pages import ROOT, blocks, headings, name, prose
from tests.jobs.place import START, Place

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
UNIONS = FOLDER / "0002-unions-for-irregular-buckets.md"
_FILE = re.compile(r"`([\w.-]+/[\w./-]*|pyproject\.toml)`")
POLICY = """
[policies.t]
collection = "t"
model = "slots"
slot = "second"
time_field = "d"
series_fields = ["s"]
value_fields = ["p"]
[policies.t.rollup]
hourly = "t_hourly"
[policies.t.archive]
after = "30d"
to = "offline"
"""


def test_they_are_numbered() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert all(headings(page)[0].startswith(f"{int(page.name[:4])}. ") for page in DECISIONS)


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_each_has_its_sections(page: Path) -> None:
    wanted = ["Context", "Decision", "Consequences", "If it were undone"]
    assert [heading for heading in headings(page)[1:] if heading != "A worked example"] == wanted


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_the_code_that_it_names_is_there(page: Path) -> None:
    line = prose(page).partition("\nCode: ")[2].partition("\n\n")[0]
    named = _FILE.findall(line)
    assert named, f"{name(page)} names no code"
    assert [path for path in named if not (ROOT / path).exists()] == []


def _documents() -> list[dict[str, Any]]:
    """The eight buckets of the worked example."""
    found: list[dict[str, Any]] = []
    for number in range(8):
        slots: dict[str, Any] = {"0": 1.5, "1": 2, "2": 2.5}
        if number % 2:
            del slots["0"]
        if number % 3 == 0:
            slots["1"] = 2.25
        if number == 5:
            del slots["2"]
        found.append({"_id": number, "s": "a", "d": START + timedelta(minutes=number), "p": slots})
    return found


def _hex(mark: str) -> str:
    """The digits of a block of the page, without the flags to the right of them."""
    (block,) = (it for it in blocks(UNIONS) if mark in it.marks)
    return re.sub(r"\s", "", re.sub(r" +\d \| \d$", "", block.text, flags=re.MULTILINE))


def test_the_worked_example_has_the_bytes_that_are_written(place: Place) -> None:
    place.write_config(POLICY)
    documents = _documents()
    place.database.t.insert_many(documents)
    assert place("run").code == 0
    (file,) = (place.folder / "store").rglob("meta/buckets/*.parquet")
    (group,) = pq.read_table(file).to_pylist()
    text = prose(UNIONS)
    assert _hex("bytes") == "".join(encode(it).hex() for it in documents[:2])
    assert _hex("document") == encode(documents[1]).hex()
    assert _hex("skeleton") == group["skeleton"].hex()
    assert f"`{group['present'].hex(' ')}`" in text
    assert f"`{group['held'].hex(' ')}`" in text
    assert group["flag"] == [0] * 40 + [1] * 11 + [2] * 7 + [3] * 11 + [4] * 7 + [5] * 11 + [6] * 7 + [0] * 2
    assert len(group["hole"]) == 11 and group["source"] == [0] * 5 + [5, 6] * 3
