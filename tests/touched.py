"""Runs the proofs of what a change touches, nearest first and of equally near files those with few cases:
`python -m tests.touched --until SECONDS`.

A change is what differs from the merge base with origin/main. On main itself it is what was pushed since the
commit that CHANGED_SINCE names, or else what was committed in the day before the last commit. A file of
proofs is chosen when a module that it imports, directly or through others, has changed. What imports don't
tell chooses more rather than less, and what was chosen or left out is printed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import grimp

#: Files of proofs that share what a call of pytest starts.
_AT_ONCE = 6
#: As far as all files of tests are from a file of which imports tell nothing: behind those that were touched.
_OF_ALL = 100
_A_DAY = 86_400
_LEFT_OUT = "left out, because the time was up"
_NOT_FINISHED = "not finished, because the time was up"
#: By the exit code of `timeout`: the last one if what was interrupted had to be killed.
_ENDED = {0: "passed", 124: _NOT_FINISHED, 137: _NOT_FINISHED}
ROOT = Path(__file__).resolve().parents[1]
Imports = Mapping[str, Set[str]]

#: Folders and files that are not imported, and the tests that are about them.
_ABOUT = {
    "bench/": (),
    "docs/": ("tests/docs/",),
    ".github/": ("tests/docs/",),
    "ops/": ("tests/docs/", "tests/ops/", "tests/archivers/format/"),
    "Dockerfile": ("tests/docs/", "tests/ops/"),
    ".dockerignore": ("tests/ops/",),
    "compose.yaml": ("tests/docs/", "tests/ops/"),
    "requirements.lock": ("tests/docs/", "tests/ops/"),
}
_PROSE = ("tests/docs/",)


@dataclass(frozen=True, order=True)
class Choice:
    """A file of tests that a change touches: through how many imports, how many proofs it has, and what was
    changed there."""

    distance: int
    proofs: int
    file: str
    changed: str


def chosen(files: Mapping[str, int], changed: Iterable[str], imports: Imports) -> list[Choice]:
    """Returns those of the files, each with how many proofs it has, that a change of others touches: nearest
    first, and of equally near ones those with fewer proofs, so that as many files as can be have had their
    turn when the time is up."""
    changes = sorted(changed)
    found = []
    for file, proofs in files.items():
        steps = _distances(_begin(file), imports)
        far = {it: _distance(file, it, steps, imports) for it in changes}
        found += sorted(Choice(steps, proofs, file, it) for it, steps in far.items() if steps is not None)[:1]
    return sorted(found)


def _distance(file: str, changed: str, steps: Mapping[str, int], imports: Imports) -> int | None:
    """Returns how far a file of tests is from a changed one; None where they have nothing to do with each
    other."""
    about = next((tests for name, tests in _ABOUT.items() if changed.startswith(name)), None)
    if about is None and changed.endswith(".md"):
        about = _PROSE
    if about is not None:
        return 0 if file.startswith(about) else None
    name = module_of(changed)
    if changed.endswith(".py"):
        return steps.get(name)
    folder = name.rpartition(".")[0]
    if "/" in changed and folder in imports:  # data of the modules beside it
        return min((far for it, far in steps.items() if it.rpartition(".")[0] == folder), default=None)
    return _OF_ALL


def module_of(path: str) -> str:
    """Returns the name under which a file of the repository is imported."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] in ("tests", "bucketwise") else ["bucketwise", *parts])


def _begin(file: str) -> set[str]:
    """Returns what pytest imports for a file: its module, and each conftest above."""
    folders = [it.as_posix() for it in PurePosixPath(file).parents if it.parts]
    return {module_of(file), *(module_of(f"{folder}/conftest.py") for folder in folders)}


def _distances(begin: Set[str], imports: Imports) -> dict[str, int]:
    """Returns how many imports away each module is that can be reached."""
    found: dict[str, int] = {}
    new, far = set(begin), 0
    while new:
        found |= dict.fromkeys(new, far)
        new = {it for name in new for it in imports.get(name, ())} - found.keys()
        far += 1
    return found


# -- what they ask of the repository


def imports_of_all() -> dict[str, set[str]]:
    """Returns what each module imports, by statement or by a name in a text."""
    graph = grimp.build_graph("bucketwise", "tests", cache_dir=None)
    return {
        name: graph.find_modules_directly_imported_by(name) | set(_named(name, graph.modules))
        for name in graph.modules
    }


def _named(module: str, modules: Set[str]) -> Iterator[str]:
    """Yields the modules that a module's texts name: whole, with an attribute, or within its package."""
    path = ROOT.joinpath(*module.split("."))
    is_package = path.is_dir()
    package = module if is_package else module.rpartition(".")[0]
    source = path / "__init__.py" if is_package else path.with_suffix(".py")
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            inside = f"{package}.{node.value}"
            yield from {node.value, node.value.rpartition(".")[0], inside} & modules


def _git(root: Path, *arguments: str) -> list[str]:
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def changed_files(root: Path, since: str) -> tuple[str, list[str]]:
    """Returns what was compared with, for people, and the files that differ. `since` is the commit before a
    push, or empty. Where nothing is known of an earlier state, all differ."""
    base = _base(root, since)
    if base is None:
        return "nothing, as there is no earlier commit", _git(root, "ls-files")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    return base[:12], sorted({*_git(root, "diff", "--no-renames", "--name-only", base), *untracked})


def _base(root: Path, since: str) -> str | None:
    """Returns the commit that a change began from. A first push, or one that replaced the history, names one
    that is not there. A day is counted from the last commit, so that an old one has a change too."""
    head = _git(root, "rev-parse", "HEAD")
    for earlier in filter(None, ("origin/main", since)):
        fork = _git(root, "merge-base", "--", earlier, "HEAD")
        if fork and fork != head:
            return fork[0]
    for last in _git(root, "log", "-1", "--format=%ct"):
        before = f"--before={int(last) - _A_DAY}"
        return next(iter(_git(root, "rev-list", "-1", "--first-parent", before, "HEAD")), None)
    return None


def _proof(*arguments: str) -> list[str]:
    return ["make", "proof", f"ARGS={' '.join(arguments)}"]


def proof_files() -> dict[str, int]:
    """Returns the files that have proofs, as pytest finds them, and how many."""
    ran = subprocess.run(
        _proof("--collect-only", "-qq"), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"{ran.stdout}\nWhich proofs there are could not be told")
    found = re.findall(r"^(tests/\S+\.py): (\d+)$", ran.stdout, re.M)
    return {file: int(count) for file, count in found}


def main() -> int:
    """Runs them until the time given, in seconds since 1970; returns whether any has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", type=float, required=True)
    until = parser.parse_args().until
    base, changed = changed_files(ROOT, os.environ.get("CHANGED_SINCE", ""))
    files = proof_files()
    choices = chosen(files, changed, imports_of_all())
    _tell(f"{len(changed)} files differ from {base}. They touch {len(choices)} of {len(files)} with proofs")
    for it in choices:
        far = "which may touch all" if it.distance == _OF_ALL else f"{it.distance} imports away"
        _tell(f"  {it.file}: {it.changed}, {far}")
    results: dict[str, str] = {}
    for first in range(0, len(choices), _AT_ONCE):
        together = [it.file for it in choices[first : first + _AT_ONCE]]
        results |= dict.fromkeys(together, _run(together, until - time.time()))
    for file, result in results.items():
        if result != "passed":
            _tell(f"{file}: {result}")
    return int(is_failure(results.values()))


def is_failure(results: Collection[str]) -> bool:
    """Returns whether one has failed, or there was no time for any."""
    return "failed" in results or (len(results) > 0 and set(results) == {_LEFT_OUT})


def _run(files: Sequence[str], seconds: float) -> str:
    """Returns how they ended. They stop at a first failure, so that those whose time was up had none."""
    if seconds <= 0:
        return _LEFT_OUT
    _tell(f"Proofs: {' '.join(files)}")
    limit = ["timeout", "--signal=INT", "--kill-after=60", f"{seconds:.0f}"]
    code = subprocess.run([*limit, *_proof("-q", "-x", *files)], cwd=ROOT, check=False).returncode
    return _ENDED.get(code, "failed")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
