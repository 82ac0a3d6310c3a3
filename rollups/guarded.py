"""Transactions that fail if the run has lost its lease."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pymongo import ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Raises, inside the transaction, where another run has the lease by now.
Guard = Callable[[ClientSession], None]
T = TypeVar("T")


def majority(database: Database[Document]) -> WriteConcern:
    """Returns the write concern for a majority. The client says how long that is waited for."""
    return WriteConcern("majority", database.write_concern.document.get("wtimeout"))


def dry_run_guard(_session: ClientSession) -> NoReturn:
    """Replaces the guard in a dry run, which must not start transactions. Always raises."""
    raise HaltedError("a dry run was about to write; it was stopped and nothing was changed")


def transaction(database: Database[Document], guard: Guard, step: Callable[[ClientSession], T]) -> T:
    """Runs `step` in a transaction that fails where `guard` does. `step` may run more than once."""
    tries = 0

    def guarded(session: ClientSession) -> T:
        nonlocal tries
        tries += 1
        guard(session)
        return step(session)

    with database.client.start_session() as session:
        done = session.with_transaction(
            guarded,
            read_concern=ReadConcern("snapshot"),
            write_concern=majority(database),
            read_preference=ReadPreference.PRIMARY,
        )
    if tries > 1:  # the driver's error refers to itself, and to all local variables of its callers
        gc.collect()
    return done
