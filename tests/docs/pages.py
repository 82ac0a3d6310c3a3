"""The project's pages taken apart: code blocks, tables, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"```(.*)")


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind the opening fence, and the line below it."""

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    """Returns the page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    held: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            held.append(line)
        elif opened is None:
            opened, held = (number + 1, fence[1]), []
        else:
            language, *marks = opened[1].split() or [""]
            found.append(Block(page, opened[0], language, tuple(marks), "\n".join(held) + "\n"))
            opened = None
    assert opened is None, f"{page}: a fence is not closed"
    return found


def blocks_in(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


@cache
def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))


def headings(page: Path) -> list[str]:
    return re.findall(r"(?m)^#+ (.*)$", prose(page))


def anchor(heading: str) -> str:
    """What a link to the heading says, by GitHub's rules."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one of any depth."""
    parts = re.split(r"(?m)^#+ (.*)$", prose(page))
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert heading in found, f"{page.name} has no heading {heading!r}: {list(found)}"
    return found[heading]


def told(heading: str) -> str:
    """What stands below a heading that one page of the manual has, whichever it is."""
    (page,) = (it for it in (ROOT / "docs").glob("*.md") if heading in headings(it))
    return section(page, heading)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of all table rows but the heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for at, line in enumerate(lines):
        is_rule = set(line) <= set("|- :")
        is_head = at + 1 < len(lines) and set(lines[at + 1]) <= set("|- :")
        if not is_rule and not is_head:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def code(cell: str) -> str:
    """What a cell has between back ticks."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found, f"{cell!r} is not in back ticks"
    return found[1]
