"""Scenes on servers of their own: one node, or a set of three."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from bucketwise.config.tables import Store
from tests.faults import aftermath
from tests.faults.mongods import Servers, servers
from tests.faults.scene import Scene
from tests.jobs.command import CommandLine

Document = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A set of servers, and scenes on it."""

    servers: Servers
    client: MongoClient[Document]
    folder: Path
    command: CommandLine

    def scene(self, job: str) -> tuple[Scene, str]:
        """One that is ready for a job of `aftermath`, and its verb."""
        folder, store = self._store()
        database = self.client[f"test_{folder.name}"]
        return aftermath.prepared(job, folder, database, self.servers.uri, store, self.command)

    def empty(self, text: str) -> Scene:
        """One of a policy's text, in which nothing lies yet."""
        folder, store = self._store()
        database = self.client[f"test_{folder.name}"]
        return Scene(folder, database, self.servers.uri, store, self.command, text)

    def _store(self) -> tuple[Path, Store]:
        folder = self.folder / uuid.uuid4().hex[:12]
        (folder / "store").mkdir(parents=True)
        return folder, Store(url=(folder / "store").as_uri())


@contextmanager
def placed(folder: Path, count: int, command: CommandLine) -> Iterator[Place]:
    """`count` nodes in the block."""
    dbpaths = folder / "mongod"
    dbpaths.mkdir()
    with servers(dbpaths, count) as running, MongoClient[Document](running.uri, tz_aware=True) as client:
        yield Place(running, client, folder, command)
