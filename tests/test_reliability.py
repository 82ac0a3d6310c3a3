"""docs/reliability.md tells what the commands found."""

from __future__ import annotations

from tests import reliability
from tests.reliability import BEGIN, END, EVIDENCE, PAGE, ROOT, table


def test_the_page_has_the_table_of_what_was_kept() -> None:
    found = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert found == table(reliability.results())


def test_all_tests_of_faults_are_evidence() -> None:
    subjects = {it for evidence in EVIDENCE for it in evidence.subjects}
    for it in subjects:
        assert not it.startswith("tests/") or (ROOT / it).exists(), it
    for path in (ROOT / "tests" / "faults").rglob("test_*.py"):
        name = path.relative_to(ROOT).as_posix()
        assert any(name == it or name.startswith(f"{it}/") for it in subjects), name


def test_counts_are_summed_and_the_oldest_day_is_told() -> None:
    new = {"when": "2026-02-01", "tests": 1000, "lost": 0}
    old = {"when": "2026-01-02", "tests": 234, "lost": 1}
    kept = {"proof": {"tests/faults/races/test_a.py": new, "tests/faults/races/test_b.py": old}}
    (row,) = [it for it in table(kept).splitlines() if "pulled away" in it]
    assert row.endswith("| 1,234 tests, 1 lost | 2026-01-02 | `make proof` |")
