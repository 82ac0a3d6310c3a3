"""For a process of the command line, while models are tried: it is asked to stop or killed, the server
fails, or somebody else writes into the scratch database."""

from __future__ import annotations

import os
import signal
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import OperationFailure


def install(moment: str) -> None:
    """From the first document on that is written."""
    write: Any = Collection.insert_many

    def insert_many(self: Collection[Any], *given: Any, **named: Any) -> Any:
        if moment == "failed":
            raise OperationFailure("the disk is full")
        if moment == "joined":
            self.database["orders"].replace_one({"_id": 1}, {}, upsert=True)
        else:
            os.kill(os.getpid(), signal.SIGKILL if moment == "killed" else signal.SIGTERM)
        return write(self, *given, **named)

    setattr(Collection, "insert_many", insert_many)  # noqa: B010
