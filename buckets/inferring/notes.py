"""Evidence and open questions, for each key of a policy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

_SHOWN = 5


@dataclass
class Notes:
    """Evidence and open questions for each key of a policy."""

    evidence: dict[str, list[str]] = field(default_factory=dict)
    questions: dict[str, list[str]] = field(default_factory=dict)

    def add_evidence(self, key: str, text: str) -> None:
        """Adds evidence."""
        self.evidence.setdefault(key, []).append(text)

    def add_question(self, key: str, text: str) -> None:
        """Adds a question."""
        self.questions.setdefault(key, []).append(text)

    def drop(self, key: str) -> None:
        """Removes all notes on a key."""
        self.evidence.pop(key, None)
        self.questions.pop(key, None)


def quoted(name: str) -> str:
    """Returns a name for a line of text: in quotes, with escapes for what could end the line."""
    text = json.dumps(name, ensure_ascii=False)
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def listed(names: list[str]) -> str:
    """Returns names for a line of text: the first few, and how many more there are."""
    shown = ", ".join(map(quoted, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"
