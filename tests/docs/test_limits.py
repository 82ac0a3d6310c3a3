"""The pages tell where a commit is closed: at what the code says."""

from __future__ import annotations

import re

import pytest

from bucketwise.archivers.moving.sweep import MAX_BYTES, MAX_READINGS
from tests.docs.pages import ROOT


@pytest.mark.parametrize("page", ["docs/limits.md", "ARCHITECTURE.md", "docs/performance.md"])
def test_where_a_commit_is_closed(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"([\d,]+)\s+readings(?: or|,)\s+(\d+)\s+MB\s+of\s+BSON", text)
    assert found == [(f"{MAX_READINGS:,}", str(MAX_BYTES // 1_000_000))]


def test_with_the_usual_memory() -> None:
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    assert f"about {MAX_READINGS:,} readings with 400 MB" in text
