from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.command import CommandLine, command_line
from tests.jobs.conftest import bucketwise

__all__ = ["bucketwise"]


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[CommandLine]:
    """A second command line, for what runs at the same time."""
    with command_line() as it:
        yield it
