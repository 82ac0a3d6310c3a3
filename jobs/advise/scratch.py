"""A scratch database: of an embedded mongod, or of the server that is asked; dropped in the end.

On the server a lease in it is written before anything else. It says who made the database, when, and whether
they still work there; without it nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pydantic import SecretStr
from pymongo.database import Database

from bucketwise.buckets.writing.targets import TARGETS
from bucketwise.config.checks.names import database_fault
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core import connect, lease
from bucketwise.jobs.core.embedded import EmbeddedMongodError, embedded_mongod
from bucketwise.jobs.core.lease import Lease

Document = dict[str, Any]

Scratch = tuple[Database[Document], Callable[[], None]]


_EMBEDDED = "scratch"


#: In which collections models and summaries are tried.
TRY, ROLLED, HOURLY, DAILY = "try_", "rolled", "rolled_hourly", "rolled_daily"


_OWN = {*(TRY + it for it in TARGETS), ROLLED, HOURLY, DAILY}


#: The policy of these summaries: no policy file can name one so.
SUMMARIES = "advise summaries"


_BOOKS = "bucketwise_"


#: The lease that marks a database as made here.
_MARK = "advise --scratch"


@contextmanager
def scratch_database(database: Database[Document], name: str | None) -> Iterator[Scratch]:
    """Gives a new database of this name on the same server; without a name, one of a mongod of its own; and a
    check, which raises LeaseLostError once another has taken it over. It is gone once the block has ended,
    however it ends. Raises UsageError, and LeaseHeldError where another process tries models in it."""
    with ExitStack() as held:
        if name is not None:
            if fault := database_fault(name):
                raise UsageError(f"--scratch {name}: {fault.message}; {fault.remedy}")
            yield held.enter_context(_on_server(database.client[name]))
            return
        try:
            mongod = held.enter_context(embedded_mongod())
        except EmbeddedMongodError as error:
            raise UsageError(
                f"there is no mongod to try models in: {error}. Or name a database to make for it on the "
                "server itself: --scratch DATABASE. Or leave it out: --no-candidates"
            ) from error
        settings = MongoDB(uri=SecretStr(mongod.uri), database=_EMBEDDED)
        yield held.enter_context(connect.connect(settings))[_EMBEDDED], lambda: None


@contextmanager
def _on_server(scratch: Database[Document]) -> Iterator[Scratch]:
    if scratch[lease.COLLECTION].find_one({"_id": _MARK}):
        with Lease(scratch, _MARK):  # whoever made it was killed
            if _collections_in(scratch) <= {*_own_collections(scratch)}:
                _clear(scratch)
    if scratch.list_collection_names():
        raise UsageError(
            f"--scratch {scratch.name}: this database already exists. Name a new one: it is dropped in "
            "the end"
        )
    with Lease(scratch, _MARK) as held_lease:
        try:
            yield scratch, held_lease.check
        finally:
            if held_lease.loss() is None:
                _clear(scratch)


def _collections_in(scratch: Database[Document]) -> set[str]:
    return {it for it in scratch.list_collection_names() if not it.startswith("system.")}


def _own_collections(scratch: Database[Document]) -> list[str]:
    """What was made here, the mark last. The books are not where policies of others have runs in them."""
    leases = {it["_id"] for it in scratch[lease.COLLECTION].find({}, {"_id": 1})}
    books = () if leases - {_MARK, SUMMARIES} else (_BOOKS,)
    made = (it for it in _collections_in(scratch) if it in _OWN or it.startswith(books))
    return sorted(made, key=lease.COLLECTION.__eq__)


def _clear(scratch: Database[Document]) -> None:
    """Drops what was made, and the database, unless somebody else has created something in it since."""
    for it in _own_collections(scratch):
        scratch.drop_collection(it)
    if not _collections_in(scratch):  # of time series MongoDB keeps `system.views`
        scratch.client.drop_database(scratch.name)
