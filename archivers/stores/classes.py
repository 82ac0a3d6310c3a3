"""Storage classes of a store, and objects that have to be thawed before they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

#: How soon S3 thaws an object, and for what price.
Tier = Literal["expedited", "standard", "bulk"]
#: Hours until an object can be read, at the most that S3 names, by class and tier. A pair that S3 does not
#: offer is missing.
THAW_HOURS: dict[str, dict[Tier, float]] = {
    "GLACIER": {"expedited": 0.1, "standard": 5, "bulk": 12},
    "DEEP_ARCHIVE": {"standard": 12, "bulk": 48},
    "ARCHIVE_ACCESS": {"expedited": 0.1, "standard": 5, "bulk": 12},
    "DEEP_ARCHIVE_ACCESS": {"standard": 12, "bulk": 48},
}
#: Tiers of INTELLIGENT_TIERING: what is thawed leaves them for good.
FOR_GOOD = ("ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS")
#: Days for which S3 bills an object at least, by class; others: as long as it is there.
MINIMUM_DAYS = {"STANDARD_IA": 30, "ONEZONE_IA": 30, "GLACIER_IR": 90, "GLACIER": 90, "DEEP_ARCHIVE": 180}


class LifecycleRule(NamedTuple):
    """A rule by which a store itself moves or removes objects as they grow old: those whose keys begin with
    `prefix`. `storage_class`: where they go; None: they are removed."""

    name: str
    prefix: str
    storage_class: str | None

    def touches(self, folder: str) -> bool:
        """Returns whether it may hold for objects below a folder, which ends with `/`."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


class Standing(NamedTuple):
    """How an object lies: its class, or the tier of it in which it is cold; whether it can be read, now or
    for as long as it is thawed; and whether a thaw is under way."""

    storage_class: str
    is_readable: bool
    is_thawing: bool


@runtime_checkable
class ClassedStore(Protocol):
    """A store that has storage classes."""

    def move(self, key: str, size: int, sha256: str, storage_class: str) -> bool:
        """Moves an object to a class, by a copy onto itself, and compares it by its checksum. Returns False
        where it is there already. A lock and a legal hold go with it. Raises Corrupt where it is not of this
        size and SHA-256, Cold where it has to be thawed first, Denied where its lock can't be seen, and
        StoreError where the store can't move it."""

    def standing(self, key: str) -> Standing:
        """Returns how an object lies. Raises NotFound."""

    def thaw(self, key: str, days: int | None, tier: Tier) -> None:
        """Asks for an object to be readable for so many days; None: for good. Asked again, the days count
        from now on."""

    def lifecycle(self) -> Sequence[LifecycleRule]:
        """Returns the rules of the store's own for objects that are in it, and not versions of them. Raises
        Denied where it may not be asked."""
