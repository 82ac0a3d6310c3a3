"""Writes the pages of the gallery from the cases: `python -m tests.docs.gallery`."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads

from tests.cases.case import Case, all_cases
from tests.docs.pages import ROOT

_DOCS = ROOT / "docs"
_HEAD = """# Gallery

Documents as people write them, each with the policy that reads it. Long arrays and sub-documents are cut
off with `…`. Each of these is a test: roll-up, archive and restore of such documents, and what
[`init`](begin.md#init) makes of them. What the keys mean is in [the policy file](policies.md), what
documents may look like in [bucket models](bucket-models.md). Roll-up, archive and rules are left out.

<!-- Written by `python -m tests.docs.gallery` -->
"""
#: The pages: their names and titles, and what is on each, by its model and the kind of the case.
_PAGES = {
    "slots": ("Slots of an hour, a day or a month", "slots", (2, 3, 16)),
    "clocks": ("Slots that follow clocks, or count on", "slots", (6, 7, 8)),
    "samples": ("Samples in a document", "samples", ()),
    "times": ("Times of readings", "reading", (9, 12)),
    "values": ("Values and series of readings", "reading", ()),
}
#: Elements of an array, or slots, that are shown.
_SHOWN = 3
_RETENTION = re.compile(r"\n*\[+policies\.c\.(rollup|archive|rules)\]+\n(?:[^\[\n][^\n]*\n?)*")


def pages() -> dict[Path, str]:
    """All pages as they have to be, by their paths."""
    shown = [it for it in all_cases() if not it.expected.get("stopped")]
    parts: dict[str, list[str]] = {name: [] for name in _PAGES}
    for case in shown:
        parts[_page_of(case)].append(_section(case))
    links = [f"- [{title}](gallery-{name}.md)\n" for name, (title, *_) in _PAGES.items()]
    written = {_DOCS / "gallery.md": f"{_HEAD}\n{''.join(links)}"}
    for name, (title, *_) in _PAGES.items():
        head = f"# {title}\n\nA page of the [gallery](gallery.md), which says how to read it.\n"
        written[_DOCS / f"gallery-{name}.md"] = head + "".join(parts[name])
    return written


def _page_of(case: Case) -> str:
    """The page that a case is on: the first of its model that has its kind, or all that are left."""
    model = tomllib.loads(case.policy)["policies"]["c"]["model"]
    return next(
        it for it, (_, of, kinds) in _PAGES.items() if of == model and case.kind in (kinds or (case.kind,))
    )


def _section(case: Case) -> str:
    said = json.loads((case.folder / "case.json").read_text(encoding="utf-8"))
    line = (case.folder / "documents.jsonl").read_text(encoding="utf-8").splitlines()[0]
    document = dumps(_cut(loads(line)), json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)
    document = document.replace('"…": "…"', "…").replace('"…"', "…")
    policy = _RETENTION.sub("", case.policy).strip()
    title = said["title"].replace("_", "\\_")
    blocks = f"```javascript\n{document}\n```\n\n```toml excerpt\n{policy}\n```\n"
    return f"\n## {title}\n\n{said['why']}\n\n{blocks}"


def _cut(value: Any) -> Any:
    """The value with the first elements of long arrays and sub-documents alone."""
    if isinstance(value, list):
        kept = [_cut(it) for it in value[:_SHOWN]]
        return [*kept, "…"] if len(value) > _SHOWN else kept
    if not isinstance(value, dict):
        return value
    pairs = list(value.items())
    if len(pairs) > 2 * _SHOWN and all(key[:1].isdigit() for key in value):
        return {**{key: _cut(it) for key, it in pairs[:_SHOWN]}, "…": "…"}
    return {key: _cut(it) for key, it in pairs}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
