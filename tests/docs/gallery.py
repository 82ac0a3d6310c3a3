"""Writes docs/gallery.md from the cases: `python -m tests.docs.gallery`."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads

from tests.cases.case import Case, all_cases
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "gallery.md"
_HEAD = """# Gallery

Documents as people write them, each with the policy that reads it. Long arrays and sub-documents are cut
off with `…`. Each of these is a test: roll-up, archive and restore of such documents, and what
[`init`](begin.md#init) makes of them. What the keys mean is in [the policy file](policies.md), what
documents may look like in [bucket models](bucket-models.md). Roll-up, archive and rules are left out.

<!-- Written by `python -m tests.docs.gallery` -->
"""
#: Elements of an array, or slots, that are shown.
_SHOWN = 3
_RETENTION = re.compile(r"\n*\[+policies\.c\.(rollup|archive|rules)\]+\n(?:[^\[\n][^\n]*\n?)*")


def page() -> str:
    """The page as it has to be."""
    shown = [it for it in all_cases() if not it.expected.get("stopped")]
    by_model: dict[str, list[Case]] = {}
    for it in shown:
        by_model.setdefault(tomllib.loads(it.policy)["policies"]["c"]["model"], []).append(it)
    parts = [_HEAD]
    for model in ("slots", "samples", "reading"):
        parts += [f"\n## `{model}`\n", *map(_section, by_model.get(model, []))]
    return "".join(parts)


def _section(case: Case) -> str:
    said = json.loads((case.folder / "case.json").read_text(encoding="utf-8"))
    line = (case.folder / "documents.jsonl").read_text(encoding="utf-8").splitlines()[0]
    document = dumps(_cut(loads(line)), json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)
    document = document.replace('"…": "…"', "…").replace('"…"', "…")
    policy = _RETENTION.sub("", case.policy).strip()
    title = said["title"].replace("_", "\\_")
    blocks = f"```javascript\n{document}\n```\n\n```toml excerpt\n{policy}\n```\n"
    return f"\n### {title}\n\n{said['why']}\n\n{blocks}"


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
    PAGE.write_text(page(), encoding="utf-8")
