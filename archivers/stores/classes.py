"""Storage classes of a store, and objects that have to be thawed before they can be read."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, runtime_checkable

#: How soon S3 thaws an object, and for what price.
Tier = Literal["expedited", "standard", "bulk"]
#: Hours until an object can be read, at the most that S3 names, by class and tier. A pair that S3 does not
#: offer is missing.
THAW_HOURS: dict[str, dict[Tier, float]] = {
    "GLACIER": {"expedited": 0.1, "standard": 5, "bulk": 12},
    "DEEP_ARCHIVE": {"standard": 12, "bulk": 48},
}


class Standing(NamedTuple):
    """How an object lies: its class; whether it can be read, now or for as long as it is thawed; and whether
    a thaw is under way."""

    storage_class: str
    is_readable: bool
    is_thawing: bool


@runtime_checkable
class ClassedStore(Protocol):
    """A store that has storage classes."""

    def move(self, key: str, size: int, sha256: str, storage_class: str) -> bool:
        """Moves an object to a class, by a copy onto itself, and compares it by its checksum. Returns False
        where it is there already. Raises Corrupt where it is not of this size and SHA-256, Cold where it has
        to be thawed first, and StoreError where the store can't move it."""

    def standing(self, key: str) -> Standing:
        """Returns how an object lies. Raises NotFound."""

    def thaw(self, key: str, days: int, tier: Tier) -> None:
        """Asks for an object to be readable for so many days. Asked again, those count from now on."""
