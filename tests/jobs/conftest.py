from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.command import CommandLine, command_line
from tests.jobs.place import Db, Place


@pytest.fixture(scope="session")
def bucketwise() -> Iterator[CommandLine]:
    """The command line."""
    with command_line() as it:
        yield it


@pytest.fixture
def place(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    """A policy file with two policies, and their readings."""
    it = Place(tmp_path, database, mongodb_uri, bucketwise)
    it.write_config()
    it.load()
    return it
