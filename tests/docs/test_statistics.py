"""The page of summaries has a row for each key that a statistic adds to a value field."""

from __future__ import annotations

from datetime import timedelta

from bucketwise.config.policies import ValueField
from bucketwise.rollups.statistics import columns_of, registered
from tests.docs.pages import ROOT, code, rows, section

PAGE = ROOT / "docs" / "summaries.md"


def test_each_key_has_its_row() -> None:
    told = [(code(key), kind) for key, kind, _ in rows(section(PAGE, "What a summary looks like"))]
    gap = timedelta(hours=1)
    of_all = columns_of(registered((50,), ValueField(kind="counter")))
    of_states = columns_of(registered((50,), ValueField(kind="state", time_weighted="linear", max_gap=gap)))
    kinds = dict.fromkeys((it.key, it.kind) for it in [*of_all, *of_states])
    assert told == list(kinds)
