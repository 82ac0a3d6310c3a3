"""Where restored buckets go, and what happens to several versions of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession
from pymongo.database import Database

from bucketwise.archivers.versions.history import History
from bucketwise.buckets.bson.raw import Batch
from bucketwise.config.policies import Policy
from bucketwise.rollups.guarded import Guard

Document = dict[str, Any]


class Mode(StrEnum):
    """What to do with several versions of a bucket."""

    latest = "latest"
    all = "all"
    merged = "merged"


class VersionHandling(NamedTuple):
    """What to do with several versions of a bucket, and where the older ones go."""

    mode: Mode = Mode.merged
    aside: str | None = None  # the collection of older ones; None: that of the others


MERGED = VersionHandling()


@dataclass(frozen=True)
class Target:
    """Where buckets go. `note` records them, in the transaction that puts them."""

    database: Database[Document]
    policy: Policy
    to: str
    guard: Guard
    how: VersionHandling
    note: Callable[[list[Plan], ClientSession], None]

    @property
    def aside(self) -> str:
        """Returns the collection that older versions go to."""
        return self.how.aside or self.to

    @property
    def is_source(self) -> bool:
        """Returns whether buckets go back into the source."""
        return self.to == self.policy.collection


class Plan(NamedTuple):
    """What is to be put for one bucket, and what may be there now."""

    history: History
    final: Batch  # of one
    aside: list[bytes]  # documents of older versions
    known: list[Batch]  # all versions, and what they are merged
