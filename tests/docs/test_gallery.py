"""The gallery is what the cases are."""

from __future__ import annotations

from tests.cases.case import CASES
from tests.conftest import missing
from tests.docs.gallery import PAGE, page


def test_it_is_current() -> None:
    if not CASES.is_dir():
        missing(f"the folder {CASES.name} beside the project")
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.docs.gallery"
