"""The tutorial as its reader does it: files are saved, commands run in order, outputs looked at."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bucketwise.config import PATH_VARIABLE
from bucketwise.config.load import OVERRIDES
from tests.docs.pages import ROOT, Block, blocks
from tests.jobs.command import CommandLine

PAGES = [ROOT / "docs" / name for name in ("tutorial.md", "tutorial-2.md")]
#: What differs from machine to machine and from day to day.
_VARIES = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)", "<instant>"),
    (r"[\d.]+ (?:k|M)?B\b", "<size>"),
    (r"[\d.]+ s\b", "<time>"),
    (r"[0-9a-f]{16,}", "<digest>"),
    (r"file://\S+", "<store>"),
    (r"127\.0\.0\.1:\d+", "<host>"),
    (r"mongod:? [\d.]+|MongoDB [\d.]+\d", "<version>"),
    (r"[\w.-]+@[\w.-]+", "<who>"),
    (r"[─━╌]+", "─"),
    (r" +", " "),
    (r" ?\n", "\n"),
)


def masked(text: str) -> str:
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text)
    return text.strip()


def played(folder: Path, bucketwise: CommandLine) -> Iterator[tuple[Block, Block | None, str]]:
    """Yields each command of both pages, the output that the page shows (or None), and what was printed."""
    environment = {
        key: value for key, value in os.environ.items() if key not in (PATH_VARIABLE, *OVERRIDES.values())
    }
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
    all_of = [block for page in PAGES for block in blocks(page)]
    for block, after in zip(all_of, [*all_of[1:], None], strict=True):
        if block.language == "python":
            (folder / block.marks[0]).write_text(block.text)
        elif block.language == "toml":
            (folder / "bucketwise.toml").write_text(block.text)
        elif block.language == "console" and "setup" not in block.marks:
            shown = after if after is not None and after.language == "text" else None
            yield block, shown, _run(block.text, folder, environment, bucketwise)


def _run(command: str, folder: Path, environment: dict[str, str], bucketwise: CommandLine) -> str:
    """Variables that a command exports are there for those behind it."""
    lines = [shlex.split(line) for line in command.replace("\\\n", " ").splitlines()]
    if all(line[0] == "bucketwise" for line in lines):
        told = [bucketwise(*line[1:], cwd=folder, **environment) for line in lines]
        assert [it.code for it in told] == [0] * len(told), told
        return "".join(it.out for it in told)
    script = f'set -euo pipefail\n{command}\nenv -0 > "{folder}/.environment"'
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, f"{command}{ran.stdout}{ran.stderr}"
    exported = (folder / ".environment").read_text().split("\0")
    environment.update(line.partition("=")[::2] for line in exported if line)
    return ran.stdout
