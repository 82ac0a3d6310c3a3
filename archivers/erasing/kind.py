"""The erasure of a series from an archive, whichever kind it is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import bson
from bson.errors import InvalidBSON

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import BucketNames, Erasure, ErasureWork
from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.raw import TOLERANT, Docs
from bucketwise.config.policies import Policy

#: The counts. `buckets`: each once, wherever copies of it lay; `rewritten`: of these, which hold other series
#: as well, and stay without this one.
COUNTS = (
    "buckets", "rewritten", "live", "online", "archived", "versions", "set_aside", "commits_rewritten",
    "summaries", "pins", "quarantine",
)  # fmt: skip


class Remaining(NamedTuple):
    """A place that the erasure leaves. `found`: the series was found there; else nothing can tell."""

    place: str
    why: str
    found: bool


@dataclass
class ErasureReport:
    """The counts of an erasure, or of its dry run."""

    counts: Mapping[str, int]
    remaining: list[Remaining]

    @property
    def is_found(self) -> bool:
        """Returns whether something of the series is still there."""
        return any(it.found for it in self.remaining)


def remaining_in(place: str, what: str, count: int) -> Iterator[Remaining]:
    """Yields a line for a place where something was found, unless the count is 0."""
    if count:
        yield Remaining(place, f"{count:,} {what}", True)


_WHAT = "documents contain a value of the series"


class TextSearch:
    """The search of one erasure."""

    def __init__(self, context: ArchiveContext, erasure: Erasure) -> None:
        self._context = context
        self._policy = erasure.policy
        self._matcher = erasure.matcher

    def collections(self, names: Iterable[str | None]) -> Iterator[Remaining]:
        """Yields those of these collections (None: there is none) in which a value stands."""
        for name in sorted({it for it in names if it is not None}):
            yield from self.documents(name, self._all_of(name))

    def own(self) -> Iterator[Remaining]:
        """Yields the collections of bucketwise in which a value stands, where it is not another policy's."""
        for name in self._context.database.list_collection_names(filter={"name": {"$regex": "^bucketwise_"}}):
            own = (unpacked(it) for some in self._all_of(name) for it in decoded_from(some))
            yield from self.entries(name, (it for it in own if not _is_of_another(it, self._policy)))

    def documents(self, place: str, found: Iterable[Docs]) -> Iterator[Remaining]:
        """Yields the place if a value stands in these documents."""
        self._context.check()
        yield from remaining_in(place, _WHAT, sum(map(self._count, found)))

    def entries(self, place: str, found: Iterable[object]) -> Iterator[Remaining]:
        """Yields the place if a value stands in these decoded documents."""
        self._context.check()
        yield from remaining_in(place, _WHAT, sum(map(self._matcher.is_in, found)))

    def _all_of(self, name: str) -> Iterator[Docs]:
        return find_raw(self._context.database[name], {})

    def _count(self, documents: Docs) -> int:
        if not self._matcher.may_be_in(documents.data):
            return 0
        return sum(map(self._matcher.is_in, decoded_from(documents)))


def decoded_from(documents: Iterable[bytes]) -> Iterator[dict[str, object]]:
    """Yields documents, decoded."""
    return (bson.decode(it, codec_options=TOLERANT) for it in documents)


def unpacked(document: dict[str, object]) -> dict[str, object]:
    """Returns the document with the `_id`s that receipts hold compressed. What is no such bytes stays as it
    is, as hashes do: they say nothing."""
    packed = document.get("ids")
    if not isinstance(packed, bytes):
        return document
    try:
        return {**document, "ids": bson.decode(zlib.decompress(packed), codec_options=TOLERANT)}
    except (zlib.error, InvalidBSON):
        return document


def _is_of_another(document: dict[str, object], policy: Policy) -> bool:
    """Returns whether a document of the suite's own is another policy's."""
    named = document.get("policy")
    identity = document.get("_id")
    if named is None and hasattr(identity, "get"):
        named = identity.get("policy")
    return named not in (None, policy.identity)


class PlaceHolding(NamedTuple):
    """The contents of a place, or of a part of it, of the series: how many buckets go, or are rewritten, and
    how many the range cuts. `kind`: the name of its count. `unread`: why it can't be read now; empty where it
    can."""

    kind: str
    place: str
    erased: int
    across: int = 0
    names: BucketNames = BucketNames()
    unread: str = ""


class ArchivedSeries(Protocol):
    """The series of one archive."""

    def holdings(self, erasure: Erasure) -> Iterator[PlaceHolding]:
        """Yields what the archive holds of the series. Changes nothing."""

    def erase(self, work: ErasureWork) -> None:
        """Removes the series from the archive, as far as it is not gone yet."""

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields what is no part of the archive, lies beside it, and may hold the series."""

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Yields where in the archive a value of the series stands as text."""

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields the places of the archive that no erasure reaches."""


#: Returns the series of a context's archive.
SeriesOf = Callable[[ArchiveContext], ArchivedSeries]


class NoSeries:
    """The `ArchivedSeries` of a policy without an archive."""

    def holdings(self, erasure: Erasure) -> Iterator[PlaceHolding]:
        """Yields nothing."""
        return iter(())

    def erase(self, work: ErasureWork) -> None:
        """Does nothing."""

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing."""
        return iter(())

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Yields nothing."""
        return iter(())

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing."""
        return iter(())
