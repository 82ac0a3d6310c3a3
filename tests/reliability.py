"""The table of docs/reliability.md: promises, how they are tested, how often, when last, by which command.

`make explore RECORD=1`, and so for `test`, `proof` and `soak`, keeps what came of a whole run in
tests/results; the table is made of that. `python -m tests.reliability` writes it anew.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "tests" / "results"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
TALLY = "tally"
COMMANDS = ("test", "proof", "soak", "explore")

#: Numbers by what they count, and `when`: of one file of tests, or of what else a command tries.
Outcome = dict[str, Any]


class Evidence(NamedTuple):
    """How promises are tested: by files of tests, or folders of them, or what else a command tries."""

    promises: str
    how: str
    subjects: tuple[str, ...]


def _files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


_SERVERS, _PROOFS = "faults/servers", "faults/proofs"
_STORES = (
    "s3_faults", "store_faults", "store_requests", "cloud_faults", "cloud_cycles", "lock_faults",
    "lock_cycles", "archive_faults", "directory_faults",
)  # fmt: skip
EVIDENCE = (
    Evidence("1–6", "a process is killed at each step of each job", _files(_PROOFS, "crash_points")),
    Evidence("1–5", "schedules of runs, writers and crashes", ("random schedules", "all schedules")),
    Evidence("1–5", "all schedules of six turns with one further actor", ("further actors, 6 turns",)),
    Evidence("1–6", "for hours: writers, jobs and faults, as they come", ("long soak",)),
    Evidence("1, 5, 6", "MongoDB dies, refuses, hangs or loses replies", _files(_SERVERS, "mongod_faults")),
    Evidence("1, 5, 6", "the primary changes at each transaction", _files(_SERVERS, "failovers")),
    Evidence("1–4", "a set of three takes writes back", _files(_SERVERS, "rollbacks")),
    Evidence("1–4", "a new primary does not know what a majority holds", _files(_SERVERS, "new_primary")),
    Evidence("1–4", "URIs that ask for less, secondaries that are behind", _files(_SERVERS, "uris", "lag")),
    Evidence("1, 2, 5, 6", "stores fail, refuse, or lose replies", _files(_SERVERS, *_STORES)),
    Evidence("1, 5, 6", "memory, descriptors, streams, signals", _files(_SERVERS, "machine_faults")),
    Evidence("1, 5, 6", "disks that are full, at each write", _files(_SERVERS, "full_disks")),
    Evidence("1, 4", "clocks", _files(_SERVERS, "clocks", "set_clocks")),
    Evidence("1, 3, 5", "writers, two hosts, stopped runs, what is pulled away", ("tests/faults/races",)),
    Evidence("2", "files and documents that are damaged", _files(_PROOFS, "corruptions")),
    Evidence("3", "buckets that change, by what and when", _files(_PROOFS, "changes")),
    Evidence("4", "roll-up and summaries", ("tests/rollups",)),
    Evidence("6", "ledger and signals", _files("jobs/running", "ledger", "signals")),
    Evidence("7", "secrets", _files("config", "secrets") + _files("jobs/verbs", "secrets")),
    Evidence("all", "broken input", ("tests/test_broken_input.py",)),
    Evidence("all", "the checker itself: what is lost or double is found", _files(_PROOFS, "truth")),
    Evidence("all", "one token of a decision is changed: do tests find that?", ("mutants",)),
)


def keep(command: str, outcomes: Mapping[str, Mapping[str, int]]) -> None:
    """Keeps what came of the subjects that `make command` tried, beside what earlier runs tried, and renews
    the page."""
    RESULTS.mkdir(exist_ok=True)
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    known = results().get(command, {})
    known |= {subject: {"when": when, **counts} for subject, counts in outcomes.items()}
    there = {it: known[it] for it in sorted(known) if not it.endswith(".py") or (ROOT / it).exists()}
    lines = ",\n".join(f"{json.dumps(it)}: {json.dumps(outcome)}" for it, outcome in there.items())
    (RESULTS / f"{command}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    write_page()


def results() -> dict[str, dict[str, Outcome]]:
    """Returns what was kept, by command and subject."""
    files = {it: RESULTS / f"{it}.json" for it in COMMANDS}
    return {it: json.loads(path.read_text(encoding="utf-8")) for it, path in files.items() if path.exists()}


def table(kept: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Returns a row for each evidence and command that tried it; the day is that of the oldest outcome."""
    lines = ["| promises | how it is tested | how many | last run | by |", "|---|---|---|---|---|"]
    for it in EVIDENCE:
        found = [
            f"| {it.promises} | {it.how} | {_counted(outcomes)} | {min(one['when'] for one in outcomes)} | "
            f"`make {command}` |"
            for command in COMMANDS
            if (outcomes := _of(it.subjects, kept.get(command, {})))
        ]
        lines += found or [f"| {it.promises} | {it.how} | not recorded yet | – | – |"]
    return "\n".join(lines) + "\n"


def _of(subjects: Iterable[str], kept: Mapping[str, Outcome]) -> list[Outcome]:
    return [
        outcome
        for name, outcome in kept.items()
        if any(name == it or name.startswith(f"{it}/") for it in subjects)
    ]


def _counted(outcomes: Iterable[Outcome]) -> str:
    sums: Counter[str] = Counter()
    for outcome in outcomes:
        sums.update({name: number for name, number in outcome.items() if name != "when"})
    return ", ".join(
        f"{number:,} {name.removesuffix('s') if number == 1 else name}" for name, number in sums.items()
    )


def write_page() -> None:
    """Puts the table of what was kept into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = before + BEGIN + table(results()) + END + rest.partition(END)[2]
    PAGE.write_text(text, encoding="utf-8")


class Recorder:
    """A plugin of the process that collects the reports: keeps them under a command once all has run."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self._faults: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts a test, and what it tallied."""
        file = report.nodeid.partition("::")[0]
        if report.failed:
            self._outcomes[file]["failed"] += 1
        if report.when != "call":
            return
        self._outcomes[file]["tests"] += report.passed
        for name, told in report.user_properties:
            if name == TALLY and isinstance(told, dict):
                counts = dict(told)
                self._faults[file].add(f"{counts.pop('group')}: {counts.pop('fault')}")
                self._outcomes[file].update(counts)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keeps nothing of a run that was interrupted, or in which files were tried in part."""
        option = session.config.option
        narrowed = option.keyword or option.maxfail or any("::" in it for it in session.config.args)
        if exitstatus in (0, 1) and not narrowed and not session.shouldfail:
            for file, faults in self._faults.items():
                self._outcomes[file]["faults"] = len(faults)
            keep(self._command, {file: dict(it) for file, it in self._outcomes.items()})


if __name__ == "__main__":
    write_page()
