"""The page of summaries has a row for each key that a statistic adds to a value field."""

from __future__ import annotations

from bucketwise.rollups.statistics import columns_of, registered
from tests.docs.pages import ROOT, code, rows, section

PAGE = ROOT / "docs" / "bucket-models.md"


def test_each_key_has_its_row() -> None:
    told = [(code(key), kind) for key, kind, _ in rows(section(PAGE, "What a summary looks like"))]
    assert told == [(it.key, it.kind) for it in columns_of(registered((50,)))]
