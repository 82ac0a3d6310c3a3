"""What an archive holds of a series, and how that goes, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import NamedTuple, Protocol

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.report import Remaining
from bucketwise.archivers.erasing.texts import TextSearch
from bucketwise.archivers.erasing.work import ErasureWork


class PlaceHolding(NamedTuple):
    """What a place, or a part of it, holds of the series: how much goes, and how many buckets reach over the
    edge of the range. `kind`: the name of its count. `names`: of the buckets that go, see `names_of`."""

    kind: str
    place: str
    erased: int
    across: int = 0
    names: Set[int] = frozenset()
    is_readable: bool = True


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
        del erasure
        return iter(())

    def erase(self, work: ErasureWork) -> None:
        """Does nothing."""

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing."""
        del erasure
        return iter(())

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Yields nothing."""
        del search
        return iter(())

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing."""
        del erasure
        return iter(())
