"""A database to try things in: of an embedded mongod, or of the server that is asked; dropped in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr
from pymongo.database import Database

from config.checks.names import database_fault
from config.errors import UsageError
from config.policies import MongoDB
from jobs import connect
from jobs.embedded import EmbeddedMongodError, embedded_mongod

Document = dict[str, Any]
_EMBEDDED = "scratch"


@contextmanager
def scratch_database(database: Database[Document], name: str | None) -> Iterator[Database[Document]]:
    """Gives a new database of this name on the same server; without a name, one of a mongod of its own. It is
    gone once the block has ended, however it ends. Raises UsageError."""
    if name is not None:
        with _beside(database, name) as found:
            yield found
        return
    try:
        running = embedded_mongod()
        mongod = running.__enter__()
    except EmbeddedMongodError as error:
        raise UsageError(
            f"there is no mongod to try models in: {error}. Or name a database to make for it on the server "
            "itself: --scratch DATABASE. Or leave it out: --no-candidates"
        ) from error
    try:
        with connect.connect(MongoDB(uri=SecretStr(mongod.uri), database=_EMBEDDED)) as client:
            yield client[_EMBEDDED]
    finally:
        running.__exit__(None, None, None)


@contextmanager
def _beside(database: Database[Document], name: str) -> Iterator[Database[Document]]:
    if fault := database_fault(name):
        raise UsageError(f"--scratch {name}: {fault.message}; {fault.mend}")
    if database.client[name].list_collection_names():
        raise UsageError(
            f"--scratch {name}: there is such a database already. Name a new one: it is dropped in the end"
        )
    try:
        yield database.client[name]
    finally:
        database.client.drop_database(name)
