"""Which proofs a change touches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.touched import Choice, changed_files, chosen, imports_of_all, is_failure, module_of

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
RUN, SUM, PAGES = "tests/jobs/test_run.py", "tests/rollups/test_sum.py", "tests/docs/test_pages.py"
#: With how many proofs each has.
FILES = {RUN: 7, SUM: 7, PAGES: 5}


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
    wanted = [Choice(far, FILES[file], file, changed) for far, file in touched]
    assert chosen(FILES, [changed], IMPORTS) == wanted


def test_the_nearest_come_first() -> None:
    found = chosen(FILES, ["jobs/cli.py", "rollups/sum.py", "tests/jobs/place.py"], IMPORTS)
    assert found == [Choice(1, 7, RUN, "tests/jobs/place.py"), Choice(1, 7, SUM, "rollups/sum.py")]


def test_of_equally_near_ones_those_with_few_proofs_come_first() -> None:
    changed = ["jobs/cli.py", "config/tables.py"]
    found = chosen({RUN: 40, SUM: 9, PAGES: 300}, changed, IMPORTS)
    assert [it.file for it in found] == [SUM, RUN, PAGES]


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


class Repository:
    """A repository on main, in which each commit adds a file that is named after it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, hour: int = 0) -> str:
        who = {
            f"GIT_{role}_{it}": "a@example" for role in ("AUTHOR", "COMMITTER") for it in ("NAME", "EMAIL")
        }
        when = {
            f"GIT_{role}_DATE": f"{1_700_000_000 + 3600 * hour} +0000" for role in ("AUTHOR", "COMMITTER")
        }
        nothing_else = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        environment = {"PATH": os.environ["PATH"], **who, **when, **nothing_else}
        ran = subprocess.run(
            ["git", *arguments], cwd=self.root, env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(self, name: str, *, hour: int) -> str:
        self.root.joinpath(name).write_text(name, encoding="utf-8")
        self.git("add", name)
        self.git("commit", "-q", "-m", name, hour=hour)
        return self.git("rev-parse", "HEAD")

    def push(self) -> None:
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Three commits: one of long ago, and two of the same day."""
    made = Repository(tmp_path)
    for name, hour in (("old", 0), ("first", 100), ("second", 110)):
        made.commit(name, hour=hour)
    return made


@pytest.mark.process
def test_a_branch_differs_from_where_it_left_main(repository: Repository) -> None:
    repository.push()
    pushed = repository.git("rev-parse", "HEAD")
    repository.commit("third", hour=111)
    repository.root.joinpath("untracked").touch()
    assert changed_files(repository.root, "") == (pushed[:12], ["third", "untracked"])


@pytest.mark.process
def test_main_differs_from_what_it_was_before_the_push(repository: Repository) -> None:
    before = repository.git("rev-parse", "HEAD")
    repository.commit("third", hour=111)
    repository.commit("fourth", hour=200)
    repository.push()
    assert changed_files(repository.root, before) == (before[:12], ["fourth", "third"])


@pytest.mark.process
@pytest.mark.parametrize("since", ["", "0" * 40, "no-such-commit", "--all", "HEAD"])
def test_main_differs_by_a_day_where_no_push_is_known(repository: Repository, since: str) -> None:
    repository.push()
    old = repository.git("rev-parse", "HEAD~2")
    assert changed_files(repository.root, since) == (old[:12], ["first", "second"])


@pytest.mark.process
def test_a_file_that_was_moved_is_changed_under_both_names(repository: Repository) -> None:
    repository.push()
    repository.git("mv", "old", "moved")
    assert changed_files(repository.root, "")[1] == ["first", "moved", "old", "second"]


@pytest.mark.process
def test_all_differs_where_there_is_nothing_earlier(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit("only", hour=0)
    assert changed_files(tmp_path, "") == ("nothing, as there is no earlier commit", ["only"])


@pytest.mark.proof
def test_what_is_imported_by_its_name_is_known() -> None:
    """Verbs by the command line, and the modules that a test has another process import."""
    imports = imports_of_all()
    assert "bucketwise.jobs.drill" in imports["bucketwise.jobs.suite"]
    assert "bucketwise.jobs.cli" in imports["tests.jobs.command"]
    assert "tests.jobs.losing" in imports["tests.jobs.keeping.test_store_that_loses"]
