"""Which proofs a change touches."""

from __future__ import annotations

import pytest

from tests.touched import Choice, chosen, imports_of_all, is_failure, module_of

IMPORTS = {
    "tests.jobs.test_run": {"tests.jobs.place"},
    "tests.jobs.place": {"bucketwise.jobs.cli"},
    "tests.jobs.conftest": set[str](),
    "tests.docs.test_pages": set[str](),
    "tests.rollups.test_sum": {"bucketwise.rollups.sum"},
    "tests.conftest": {"bucketwise.config.tables"},
    "bucketwise.jobs.cli": {"bucketwise.jobs.page.shown", "bucketwise.rollups.sum"},
    "bucketwise.jobs.page": set[str](),
    "bucketwise.jobs.page.shown": set[str](),
    "bucketwise.jobs": set[str](),
    "bucketwise": set[str](),
}
FILES = ("tests/jobs/test_run.py", "tests/rollups/test_sum.py", "tests/docs/test_pages.py")
RUN, SUM, PAGES = FILES


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("rollups/sum.py", [(1, SUM), (3, RUN)]),
        ("jobs/cli.py", [(2, RUN)]),
        ("tests/rollups/test_sum.py", [(0, SUM)]),
        ("tests/jobs/conftest.py", [(0, RUN)]),  # pytest imports it, nothing else does
        ("config/tables.py", [(1, PAGES), (1, RUN), (1, SUM)]),
        ("jobs/page/page.html", [(3, RUN)]),
        ("jobs/unused.py", []),
        ("bench/cases.py", []),
        ("docs/operations.md", [(0, PAGES)]),
        ("README.md", [(0, PAGES)]),
        ("pyproject.toml", [(100, PAGES), (100, RUN), (100, SUM)]),
        ("Makefile", [(100, PAGES), (100, RUN), (100, SUM)]),
        (".ci/run", [(100, PAGES), (100, RUN), (100, SUM)]),
        ("tests/data/nab/cpu.csv", [(100, PAGES), (100, RUN), (100, SUM)]),
    ],
)
def test_a_change_touches_what_rests_on_it(changed: str, touched: list[tuple[int, str]]) -> None:
    assert chosen(FILES, [changed], IMPORTS) == [Choice(far, file, changed) for far, file in touched]


def test_the_nearest_come_first() -> None:
    found = chosen(FILES, ["jobs/cli.py", "rollups/sum.py", "tests/jobs/place.py"], IMPORTS)
    assert found == [Choice(1, RUN, "tests/jobs/place.py"), Choice(1, SUM, "rollups/sum.py")]


def test_what_may_touch_all_comes_behind_what_was_touched() -> None:
    found = chosen(FILES, ["Makefile", "rollups/sum.py"], IMPORTS)
    assert [it.file for it in found] == [SUM, RUN, PAGES]


def test_no_change_touches_nothing() -> None:
    assert chosen(FILES, [], IMPORTS) == []


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], False),
        (["passed", "left out, because the time was up"], False),
        (["passed", "failed"], True),
        (["not finished, because the time was up", "left out, because the time was up"], False),
        (["left out, because the time was up"], True),
    ],
)
def test_it_passes_where_some_were_tried_and_none_has_failed(results: list[str], expected: bool) -> None:
    assert is_failure(results) is expected


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("jobs/suite.py", "bucketwise.jobs.suite"),
        ("bucketwise/api.py", "bucketwise.api"),
        ("tests/conftest.py", "tests.conftest"),
    ],
)
def test_modules_are_named_as_they_are_imported(path: str, module: str) -> None:
    assert module_of(path) == module


@pytest.mark.proof
def test_what_is_imported_by_its_name_is_known() -> None:
    """Verbs by the command line, and the modules that a test has another process import."""
    imports = imports_of_all()
    assert "bucketwise.jobs.drill" in imports["bucketwise.jobs.suite"]
    assert "bucketwise.jobs.cli" in imports["tests.jobs.command"]
    assert "tests.jobs.losing" in imports["tests.jobs.keeping.test_store_that_loses"]
