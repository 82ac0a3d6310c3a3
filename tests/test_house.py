"""What all tests keep to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def test_no_example_is_timed() -> None:
    """One profile says so, and no test has another deadline."""
    assert settings().deadline is None
    timed = [
        f"{path.relative_to(TESTS)}:{call.lineno}"
        for path in TESTS.rglob("*.py")
        for call in calls(path)
        if path != TESTS / "conftest.py" and any(keyword.arg == "deadline" for keyword in call.keywords)
    ]
    assert timed == []
