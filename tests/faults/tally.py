"""Counts what the tests of faults tried and found, over all test processes: a table at the end of a run.

A test counts before it asserts: what was lost is counted as well.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from tests.reliability import TALLY


@dataclass
class Count:
    """Of one group of faults. `faults`: distinct ones; `runs`: of the command line or a job."""

    faults: set[str] = field(default_factory=set)
    runs: int = 0
    written: int = 0  # readings
    lost: int = 0
    doubled: int = 0
    made: int = 0  # corruptions
    found: int = 0


@dataclass(frozen=True)
class Tally:
    request: pytest.FixtureRequest

    def __call__(self, group: str, fault: str, **counts: int) -> None:
        """`tally("crash points", "offline: manifest, after", runs=4, **toll._asdict())`"""
        assert counts.keys() <= {it.name for it in fields(Count)} - {"faults"}
        self.request.node.user_properties.append((TALLY, {"group": group, "fault": fault, **counts}))


class Table:
    """A plugin of the process that collects the reports."""

    def __init__(self) -> None:
        self._groups: dict[str, Count] = defaultdict(Count)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, told in report.user_properties:
            if name == TALLY and isinstance(told, dict):
                self._add(**told)

    def _add(self, group: str, fault: str, **counts: int) -> None:
        count = self._groups[group]
        count.faults.add(fault)
        for name, number in counts.items():
            setattr(count, name, getattr(count, name) + number)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._groups:
            return
        terminalreporter.section("faults")
        terminalreporter.write(self.text())

    def text(self) -> str:
        head = (
            "| what | faults | runs | readings written | lost | doubled | corruptions made | found |\n"
            "|---|---:|---:|---:|---:|---:|---:|---:|\n"
        )
        total = Count()
        rows = []
        for group, count in sorted(self._groups.items()):
            rows.append(_row(group, count))
            total.faults |= {f"{group}: {it}" for it in count.faults}
            for name in ("runs", "written", "lost", "doubled", "made", "found"):
                setattr(total, name, getattr(total, name) + getattr(count, name))
        return head + "".join(rows) + _row("**all**", total)


def _row(name: str, count: Count) -> str:
    numbers = [
        len(count.faults),
        count.runs,
        count.written,
        count.lost,
        count.doubled,
        count.made,
        count.found,
    ]
    return f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |\n"
