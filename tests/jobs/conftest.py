from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.jobs.command import CommandLine, command_line
from tests.jobs.place import Place
from tests.jobs.states import States

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="session")
def bucketwise() -> Iterator[CommandLine]:
    """The command line."""
    with command_line() as it:
        yield it


@pytest.fixture(scope="session")
def states(
    tmp_path_factory: pytest.TempPathFactory, client: Client, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[States]:
    """What tests begin from."""
    folder = tmp_path_factory.mktemp("states")
    place = Place(folder / "place", client[f"test_states_{uuid.uuid4().hex[:12]}"], mongodb_uri, bucketwise)
    it = States(place, folder)
    yield it
    it.clear()


@pytest.fixture(scope="session")
def untouched(
    tmp_path_factory: pytest.TempPathFactory, client: Client, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Place]:
    """A policy file with two policies, and their readings, of which no test changes anything."""
    database = client[f"test_untouched_{uuid.uuid4().hex[:12]}"]
    it = Place(tmp_path_factory.mktemp("untouched"), database, mongodb_uri, bucketwise)
    it.write_config()
    it.load()
    yield it
    client.drop_database(database)


@pytest.fixture
def place(request: pytest.FixtureRequest, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    """A policy file with two policies, and their readings; with the marker `after`, after its steps."""
    if (marker := request.node.get_closest_marker("after")) is not None:
        states: States = request.getfixturevalue("states")
        return states.at(*marker.args)
    folder, database = request.getfixturevalue("tmp_path"), request.getfixturevalue("database")
    it = Place(folder, database, mongodb_uri, bucketwise)
    it.write_config()
    it.load()
    return it
