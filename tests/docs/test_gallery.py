"""The gallery is what the cases are."""

from __future__ import annotations

from tests.cases.case import CASES
from tests.conftest import missing
from tests.docs.gallery import pages


def test_it_is_current() -> None:
    if not CASES.is_dir():
        missing(f"the folder {CASES.name} beside the project")
    written = pages()
    held = {path: path.read_text(encoding="utf-8") for path in written}
    assert held == written, "write them anew: python -m tests.docs.gallery"
