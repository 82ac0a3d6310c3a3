"""How many small faults the tests find: one token of a decision is changed, and the tests that reach its line
are run.

    pytest -n 2 -m "not proof and not soak" --cov --cov-config=tests/coverage.ini --cov-context=test
    python -m tests.mutants .coverage --number 60 --seed 1

The same seed chooses the same lines of the same functions, also once these lie in other files. Prints a line
a mutant, and a count.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.reliability import keep

ROOT = Path(__file__).resolve().parents[1]
_TURNED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in", "and": "or", "or": "and",
}  # fmt: skip
_OPERATOR = re.compile(rb"<=|>=|==|!=|<|>|\b(?:is\s+not|not\s+in|is|in|and|or)\b")


@dataclass(frozen=True)
class Mutant:
    """A stretch of bytes of a file, and what stands there instead. `line` is that of the decision."""

    path: str
    line: int
    start: int
    end: int
    text: bytes

    def within(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]

    def place(self, source: bytes) -> str:
        """Returns what tells it from others wherever its function lies: its name, the line, the change."""
        begin = source.rfind(b"\n", 0, self.start) + 1
        line = source[begin:].partition(b"\n")[0]
        indent = len(line) - len(line.lstrip())
        names = [it.name for it in _around(_parsed(source), self.line)]
        return f"{'.'.join(names)} {line.strip()!r} {self.start - begin - indent} {self.text!r}"

    def shown(self, source: bytes) -> str:
        return f"{self.path}:{self.line}: {source[self.start : self.end].decode()} → {self.text.decode()}"


@cache
def _parsed(source: bytes) -> ast.Module:
    return ast.parse(source)


def _around(tree: ast.AST, line: int) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yields the classes and functions that a line lies in, from the outermost on."""
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


def chosen(sources: dict[str, bytes], number: int, seed: int) -> list[Mutant]:
    """Returns so many mutants of these files. Code that was moved, or added, changes no others."""
    every = [(it, source) for path, source in sources.items() for it in mutants_of(path, source)]
    order = [sha256(f"{seed} {it.place(source)}".encode()).digest() for it, source in every]
    ranked = sorted(range(len(every)), key=lambda at: (order[at], every[at][0].path))
    return [every[at][0] for at in ranked[:number]]


class _Places:
    """Where bytes of a source lie."""

    def __init__(self, source: bytes) -> None:
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Returns each way to change one token of a decision: comparisons turned, bounds off by one, a `not` or a
    branch dropped."""
    places, found = _Places(source), []
    for node in ast.walk(ast.parse(source)):
        for start, end, text in _changes(node, places, source):
            assert isinstance(node, ast.expr | ast.If)
            found.append(Mutant(path, node.lineno, start, end, text))
    return sorted(found, key=lambda it: (it.start, it.end, it.text))


def _changes(node: ast.AST, places: _Places, source: bytes) -> Iterator[tuple[int, int, bytes]]:
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
            for left, right in itertools.pairwise(operands):
                yield from _turned(places.end(left), places.start(right), source)
            for bound in operands:
                if isinstance(bound, ast.Constant) and type(bound.value) is int:
                    yield places.start(bound), places.end(bound), str(bound.value + 1).encode()
        case ast.BoolOp():
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _turned(places.end(left), places.start(right), source)
        case ast.UnaryOp(op=ast.Not()):
            yield places.start(node), places.start(node.operand), b""
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            pass  # of the type checker alone
        case ast.If() | ast.IfExp():
            yield places.start(node.test), places.end(node.test), b"False"


def _turned(start: int, end: int, source: bytes) -> Iterator[tuple[int, int, bytes]]:
    found = _OPERATOR.search(source, start, end)
    if found:
        turned = _TURNED[re.sub(r"\s+", " ", found[0].decode())]
        yield found.start(), found.end(), turned.encode()


class _Reached:
    """What tests reach, by a file of coverage."""

    def __init__(self, coverage: Path) -> None:
        self._database = sqlite3.connect(coverage)
        lines = self._database.execute(
            "select context, count(*) from arc join context on context.id = context_id group by context"
        )
        self._lines: Counter[str] = Counter()
        for context, count in lines:
            self._lines[context.partition("|")[0]] += count
        self._files = defaultdict[Path, list[int]](list)
        for file, path in self._database.execute("select id, path from file"):
            self._files[Path(path).resolve()].append(file)

    def tests(self, mutant: Mutant) -> list[str]:
        """Returns the tests that reach the line, first those that reach least: they find most, soonest."""
        contexts = {
            context
            for file in self._files[ROOT / mutant.path]
            for (context,) in self._database.execute(
                "select distinct context from arc join context on context.id = context_id"
                " where file_id = ? and ? in (fromno, tono)",
                (file, mutant.line),
            )
        }
        names = {it.partition("|")[0] for it in contexts if it}
        return sorted(names, key=lambda it: (self._lines[it], it))


def _found(mutant: Mutant, tests: list[str], seconds: int) -> str:
    """Returns "found", "missed" or "hung", and leaves the file as it was."""
    path = ROOT / mutant.path
    source = path.read_bytes()
    path.write_bytes(mutant.within(source))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *tests]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        path.write_bytes(source)
    return "missed" if ran.returncode == 0 else "found"


def main() -> int:
    """Returns 0; the counts are on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("coverage", type=Path)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--record", action="store_true", help="keep the counts: see tests/reliability.py")
    given = parser.parse_args()
    reached = _Reached(given.coverage)
    files = sorted(it for top in ("archivers", "rollups") for it in (ROOT / top).rglob("*.py"))
    sources = {str(it.relative_to(ROOT)): it.read_bytes() for it in files}
    counts = dict.fromkeys(("found", "missed", "hung", "not reached"), 0)
    for mutant in chosen(sources, given.number, given.seed):
        tests = reached.tests(mutant)
        outcome = _found(mutant, tests, given.seconds) if tests else "not reached"
        counts[outcome] += 1
        print(f"{outcome:11} {len(tests):5} {mutant.shown(sources[mutant.path])}", flush=True)  # noqa: T201
    print(counts)  # noqa: T201
    if given.record:
        keep("soak", {"mutants": counts})
    return 0


if __name__ == "__main__":
    sys.exit(main())
