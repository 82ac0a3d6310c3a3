"""What all tests keep to."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent


def places(word: str, is_one: Callable[[ast.Call], bool]) -> list[str]:
    """Where the tests have such a call, which has this word; but for what holds for all of them."""
    texts = {
        path: text
        for path in TESTS.rglob("*.py")
        if path not in (TESTS / "conftest.py", TESTS / "examples.py") and word in (text := path.read_text())
    }
    return [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and is_one(node)
    ]


def test_no_example_is_timed() -> None:
    """One profile says so, and no test has another deadline."""
    assert settings().deadline is None
    assert places("deadline", lambda call: any(keyword.arg == "deadline" for keyword in call.keywords)) == []


def test_nothing_is_skipped() -> None:
    """But for want of a program, and then CI fails."""
    assert (
        places("skip", lambda call: isinstance(call.func, ast.Attribute) and call.func.attr == "skip") == []
    )


PACKAGES = ("config", "buckets", "rollups", "archivers", "jobs", "bucketwise", "bench")


def test_files_and_functions_are_short() -> None:
    """None has more lines than one can keep in mind."""
    for path in (it for package in PACKAGES for it in (TESTS.parent / package).rglob("*.py")):
        text = path.read_text()
        assert text.count("\n") <= 500, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path}: {node.name}"
