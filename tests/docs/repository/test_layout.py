"""ARCHITECTURE.md lays out every package, and nothing that isn't there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, blocks, section

PAGE = ROOT / "ARCHITECTURE.md"
_PACKAGES = ("config", "buckets", "rollups", "archivers", "jobs", "bucketwise")


def _listed() -> list[str]:
    """Paths of the `text` blocks in "The house": a folder's name, then what is in it, indented by two."""
    found, folders = [], [""]
    for block in blocks(PAGE):
        if block.language != "text" or "layout" not in block.marks:
            continue
        for line in block.text.splitlines():
            entry = re.match(r"( *)(\S+)", line)
            if entry is None:
                continue
            depth = len(entry[1]) // 2
            path = folders[depth] + entry[2]
            folders[depth + 1 :] = [path] if path.endswith("/") else []
            found.append(path)
    return found


def test_they_exist() -> None:
    listed = _listed()
    assert [path for path in listed if not (ROOT / path).exists()] == []
    assert len(listed) == len(set(listed))


def test_every_package_is_listed() -> None:
    packages = [path.parent for top in _PACKAGES for path in (ROOT / top).rglob("__init__.py")]
    assert len(packages) > 30
    assert {f"{path.relative_to(ROOT)}/" for path in packages} <= set(_listed())


def test_the_direction_of_imports_is_told() -> None:
    assert "jobs → archivers → rollups → buckets → config" in section(PAGE, "Imports go one way")
