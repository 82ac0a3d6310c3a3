"""What all tests keep to."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent


def places(is_one: Callable[[ast.Call], bool]) -> list[str]:
    """Where the tests have such a call; their common conftest may."""
    return [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in TESTS.rglob("*.py")
        if path != TESTS / "conftest.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_one(node)
    ]


def test_no_example_is_timed() -> None:
    """One profile says so, and no test has another deadline."""
    assert settings().deadline is None
    assert places(lambda call: any(keyword.arg == "deadline" for keyword in call.keywords)) == []


def test_nothing_is_skipped() -> None:
    """But for want of a program, and then CI fails."""
    assert places(lambda call: isinstance(call.func, ast.Attribute) and call.func.attr == "skip") == []
