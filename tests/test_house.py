"""What all tests keep to."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """All calls in the tests, but for what holds for all of them."""
    return [
        (f"{path.relative_to(TESTS)}:{node.lineno}", node)
        for path in TESTS.rglob("*.py")
        if path not in (TESTS / "conftest.py", TESTS / "examples.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def places(is_one: Callable[[ast.Call], bool]) -> list[str]:
    """Where the tests have such a call."""
    return [place for place, call in calls() if is_one(call)]


def test_no_example_is_timed() -> None:
    """One profile says so, and no test has another deadline."""
    assert settings().deadline is None
    assert places(lambda call: any(keyword.arg == "deadline" for keyword in call.keywords)) == []


def test_nothing_is_skipped() -> None:
    """But for want of a program, and then CI fails."""
    assert places(lambda call: isinstance(call.func, ast.Attribute) and call.func.attr == "skip") == []


PACKAGES = ("config", "buckets", "rollups", "archivers", "jobs", "bucketwise", "bench")


def test_files_and_functions_are_short() -> None:
    """None has more lines than one can keep in mind."""
    for path in (it for package in PACKAGES for it in (TESTS.parent / package).rglob("*.py")):
        text = path.read_text()
        assert text.count("\n") <= 500, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path}: {node.name}"
