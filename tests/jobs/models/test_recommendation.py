"""What `advise` says at the end, from the sizes that it measured."""

from __future__ import annotations

from typing import Any

import pytest
from rich.text import Text

from bucketwise.jobs.advise.verb import advice_lines, recommended


def body(*others: tuple[str, int, str | None], findings: int = 0) -> dict[str, Any]:
    found = {"code": "c", "field": None, "message": "m", "cost": "c", "remedy": "r"}
    tried: list[dict[str, Any]] = [
        {
            "model": name,
            "data_bytes": data,
            "index_bytes": 0,
            "storage_bytes": data,
            "documents": 1,
            "unfit": unfit,
            "readings_per_second": {},
            "query_ms": {},
        }
        for name, data, unfit in others
    ]
    sizes = {"documents": 9, "readings": 9, "data_bytes": 900, "storage_bytes": 1, "index_bytes": 100}
    return {
        "collection": "it",
        "model": "reading",
        "policy": "it",
        "evidence": [],
        "current": sizes,
        "sample": {
            "fill": None,
            "buckets": 9,
            "readings": 9,
            "bucket_bytes": {},
            "tried_readings": 9,
            "tried": "",
        },
        "arrival": {"by": "_id", "writes": 9, "told": ""},
        "findings": [found] * findings,
        "candidates": tried,
        "summaries": None,
        "recommendation": None,
    }


def last_line(found: dict[str, Any]) -> str:
    *_, last = advice_lines(found | {"recommendation": recommended(found)})
    assert isinstance(last, Text)
    return last.plain


@pytest.mark.parametrize(
    ("others", "findings", "text"),
    [
        ((("slots-hour", 801, None),), 0, "keep reading; no model that was tried takes a fifth less"),
        (
            (("slots-hour", 800, None), ("samples-500", 400, "1 reading: no place")),
            0,
            "slots-hour takes 800 B instead of 1.0 kB (20% less): "
            "`bucketwise remodel it --to slots-hour --into it_slots_hour`",
        ),
        ((), 2, "see to the 2 findings above, and keep reading"),
        (
            (("samples-500", 100, None), ("slots-hour", 90, None)),
            1,
            "see to the 1 finding above; then slots-hour takes 90 B instead of 1.0 kB (91% less): "
            "`bucketwise remodel it --to slots-hour --into it_slots_hour`",
        ),
    ],
)
def test_the_last_line_recommends(others: Any, findings: int, text: str) -> None:
    assert last_line(body(*others, findings=findings)) == f"Recommendation: {text}"
