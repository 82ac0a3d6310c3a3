"""What tests cost: processor seconds of their process and of all that it started. Unlike durations they are
nearly the same on a busy machine."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_STARTING = "(starting and collecting)"
_DEAR = 1.0


def spent(pid: int) -> float:
    """Returns the seconds that a process, those that it started and those that have ended have used."""
    return sum(_own(it) for it in _family(pid))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:  # that thread has just ended
            continue
        for child in children:
            yield from _family(int(child))


def _own(pid: int) -> float:
    """With those of its children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended, and its parent has waited for it
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


class Meter:
    """In a test process: notes on each test's last report what was spent since the one before."""

    def __init__(self) -> None:
        self._before = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not self._before:
            self._before = spent(os.getpid())
            item.user_properties.append((_STARTING, self._before))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = spent(os.getpid())
            report.user_properties.append(("cpu", now - self._before))
            self._before = now
        return report


class Costs:
    """In the process that reports: adds up, and prints the files and the tests that cost most."""

    def __init__(self) -> None:
        self._files: dict[str, float] = defaultdict(float)
        self._tests: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, seconds in report.user_properties:
            if name == "cpu" and isinstance(seconds, float):
                self._tests[report.nodeid] += seconds
                self._files[report.nodeid.partition("::")[0]] += seconds
            elif name == _STARTING and isinstance(seconds, float):
                self._files[_STARTING] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"{sum(self._files.values()):.0f} processor seconds")
        for costs in (self._tests, self._files):
            for name, seconds in sorted(costs.items(), key=lambda it: -it[1]):
                if seconds >= _DEAR:
                    terminalreporter.write_line(f"{seconds:7.1f}  {name}")
