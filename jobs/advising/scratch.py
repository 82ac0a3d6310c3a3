"""A database to try things in: of an embedded mongod, or of the server that is asked; dropped in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pydantic import SecretStr
from pymongo.database import Database

from config.checks.names import database_fault
from config.errors import UsageError
from config.tables import MongoDB
from jobs import connect
from jobs.embedded import EmbeddedMongodError, embedded_mongod

Document = dict[str, Any]
_EMBEDDED = "scratch"
#: How the names begin of what models and summaries are tried in.
_OWN = ("try_", "rolled", "bucketwise_")


@contextmanager
def scratch_database(database: Database[Document], name: str | None) -> Iterator[Database[Document]]:
    """Gives a new database of this name on the same server; without a name, one of a mongod of its own. It is
    gone once the block has ended, however it ends. Raises UsageError."""
    with ExitStack() as held:
        if name is not None:
            yield held.enter_context(_beside(database, name))
            return
        try:
            mongod = held.enter_context(embedded_mongod())
        except EmbeddedMongodError as error:
            raise UsageError(
                f"there is no mongod to try models in: {error}. Or name a database to make for it on the "
                "server itself: --scratch DATABASE. Or leave it out: --no-candidates"
            ) from error
        settings = MongoDB(uri=SecretStr(mongod.uri), database=_EMBEDDED)
        yield held.enter_context(connect.connect(settings))[_EMBEDDED]


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
        _clear(database.client[name])


def _clear(scratch: Database[Document]) -> None:
    """Drops what was made, and the database with it unless somebody else has made something there since."""
    held = scratch.list_collection_names()
    own = [it for it in held if it.startswith(_OWN)]
    if all(it in own or it.startswith("system.") for it in held):
        scratch.client.drop_database(scratch.name)
    else:
        for it in own:
            scratch.drop_collection(it)
