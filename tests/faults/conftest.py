from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.config.tables import Store
from tests.faults.places import Place, placed
from tests.faults.scene import OFFLINE, ROLLUP, SLOTS, MakeScene, Scene
from tests.jobs.command import CommandLine, command_line
from tests.jobs.conftest import bucketwise

__all__ = ["bucketwise"]


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[CommandLine]:
    """A second command line, for what runs at the same time."""
    with command_line() as it:
        yield it


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, bucketwise: CommandLine) -> Iterator[Place]:
    """A set of three, one for each file of tests."""
    with placed(tmp_path_factory.mktemp("three"), 3, bucketwise) as it:
        yield it


@pytest.fixture
def scene(
    tmp_path: Path, database: Database[Any], mongodb_uri: str, file_store: Store, bucketwise: CommandLine
) -> MakeScene:
    """Makes a scene of a policy's text, with 12 buckets of 4 readings."""

    def make(text: str = SLOTS + ROLLUP + OFFLINE, store: Store = file_store) -> Scene:
        return Scene(tmp_path, database, mongodb_uri, store, bucketwise, text).fill(buckets=12, readings=4)

    return make
