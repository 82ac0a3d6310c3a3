"""The queries of lake.md give what a plain loop gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks
from tests.jobs.place import NOW, START, Place

PAGE = ROOT / "docs" / "lake.md"
QUERIES = {block.marks[0]: block.text for block in blocks(PAGE) if block.language == "python"}
POLICY = """
[lake]
[policies.ticks]
collection = "ticks"
model = "reading"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
[policies.ticks.archive]
after = "30d"
to = "offline"
"""


@pytest.fixture
def table(place: Place) -> str:
    prices = [("MDB", 1.5), ("ORCL", 7.0), ("MDB", 2.0)]
    place.database.ticks.drop()
    place.database.ticks.insert_many({"symbol": it, "d": START, "p": price} for it, price in prices)
    place.write_config(POLICY)
    assert place("run", now=NOW).code == 0
    return f"{place.folder.as_uri()}/store/ticks/iceberg"


@pytest.mark.proof
@pytest.mark.parametrize("reader", QUERIES)
def test_queries(table: str, reader: str) -> None:
    names: dict[str, Any] = {}
    exec(QUERIES[reader].replace("s3://acme-archive/market/ticks/iceberg", table), names)
    result = names["result"]
    rows = result.to_pylist() if reader == "pyiceberg" else result.to_dicts()
    found = {row.pop("symbol"): next(iter(row.values())) for row in rows}
    assert found == {"MDB": math.fsum([1.5, 2.0]) / 2, "ORCL": 7.0}


def test_each_is_tried() -> None:
    assert set(QUERIES) == {"pyiceberg", "polars"}
