"""The tutorial, done from its first command to its last: each prints what the page shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.docs.tutorial import masked, played
from tests.jobs.command import CommandLine


@pytest.mark.proof
def test_every_command_prints_what_the_page_shows(tmp_path: Path, bucketwise: CommandLine) -> None:
    shown_outputs = 0
    try:
        for command, shown, printed in played(tmp_path, bucketwise):
            assert masked(printed) == (masked(shown.text) if shown else ""), f"{command}: {command.text}"
            shown_outputs += shown is not None
    finally:
        lock = tmp_path / "mongod" / "mongod.lock"
        if lock.exists() and (pid := lock.read_text().strip()):  # a command failed before the last one
            os.kill(int(pid), signal.SIGTERM)
    assert shown_outputs > 10
