"""Every link between the pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchor, headings, name, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{name(page)}: {link} leaves the repository"
        if fragment:
            anchors = [anchor(heading) for heading in headings(target)]
            assert fragment in anchors, f"{name(page)}: {link}: there is no such heading"


def _linked(page: Path) -> set[Path]:
    return {
        (page.parent / link.partition("#")[0]).resolve()
        for link in _LINK.findall(prose(page))
        if "://" not in link and not link.startswith("#")
    }


def test_two_clicks_lead_from_the_readme_to_every_page() -> None:
    first = _linked(ROOT / "README.md")
    second = {page for index in first if index.suffix == ".md" for page in _linked(index)}
    assert set(PAGES) - first - second - {ROOT / "README.md"} == set()


def test_the_index_lists_every_page_of_its_folder() -> None:
    for index in (ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"):
        pages = set(index.parent.glob("*.md")) - {index}
        assert pages - _linked(index) == set()
