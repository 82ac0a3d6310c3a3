"""Every link between the pages leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchor, headings, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leaves the repository"
        if fragment:
            anchors = [anchor(heading) for heading in headings(target)]
            assert fragment in anchors, f"{page.name}: {link}: there is no such heading"


def test_the_readme_leads_to_every_page() -> None:
    readme = prose(ROOT / "README.md")
    linked = {
        (ROOT / link.partition("#")[0]).resolve() for link in _LINK.findall(readme) if "://" not in link
    }
    assert set(PAGES) - linked == {ROOT / "README.md"}
