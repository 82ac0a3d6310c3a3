"""What tests of archives share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.archivers.harness import nothing
from tests.archivers.states import States


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine doesn't crash here, so that nothing needs to reach its disk."""
    monkeypatch.setattr("os.fsync", nothing)


@pytest.fixture(scope="session")
def prepared(
    client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[States]:
    """Gives a cycle of a case in a state."""
    states = States(client, tmp_path_factory.mktemp("states"))
    yield states
    states.close()
