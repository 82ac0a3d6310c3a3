"""The state of an erasure: its transactions, its counts, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.limits import held_by, holds_on
from bucketwise.archivers.records.erasures import Erasures
from bucketwise.archivers.writes.delete import chunks, id_names, same_id
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.guarded import transaction
from bucketwise.rollups.rolling.quarantine import Quarantine

T = TypeVar("T")


def names_of(buckets: Batch) -> set[int]:
    """Returns the `id_names` of these buckets, each once."""
    return set(id_names(buckets).tolist())


@dataclass(frozen=True)
class ErasureWork:
    """The state of one erasure, under the lease."""

    context: ArchiveContext
    erasure: Erasure
    others: Sequence[Policy] = ()  # that read the same collection
    counted: set[int] = field(default_factory=set)  # buckets of which no copy is counted again, 8 bytes each

    @cached_property
    def erasures(self) -> Erasures:
        """Returns the records of how far the erasure has come."""
        return Erasures(self.context.receipts)

    @cached_property
    def quarantine(self) -> Quarantine:
        """Returns the records of broken buckets."""
        return Quarantine(self.context.database, self.context.policy, self.context.now)

    def transaction(self, step: Callable[[ClientSession], T]) -> T:
        """Runs a step in a transaction that fails for a run that has lost its lease."""
        return transaction(self.context.database, self.context.guard, step)

    def check_not_held(self, session: ClientSession | None = None) -> None:
        """Raises BucketwiseError where a hold forbids what is about to be destroyed: in the transaction that
        does so, or before a file goes."""
        if holds := holds_on(self.context, self.erasure, self.others, session):
            name = self.erasure.policy.name
            raise BucketwiseError(
                f"policy {name}: {held_by(holds)}. The erasure then goes on where it stopped"
            )

    def take(self, names: set[int], count: int, place: str, session: ClientSession) -> set[int]:
        """Checks, in the transaction that destroys buckets in a place, that they may go, and counts them.
        `count`: how many go from that place. `names`: see `names_of`. Returns what is `counted` from the
        commit of the transaction on."""
        self.check_not_held(session)
        new = names - self.counted
        self.erasures.count({"buckets": len(new), place: count}, session)
        return new

    def count(self, **counts: int) -> None:
        """Counts what was erased without a transaction of its own."""
        self.transaction(lambda session: self.erasures.count(counts, session))

    def forget(self, erased: Batch) -> None:
        """Removes, before archived buckets go, what else refers to the `_id`s of those that are not live:
        pins, records of the quarantine, and overflow that a restore into another collection has put back."""
        for piece in chunks(erased):
            there = {same_id(it) for it in self.context.source.present(piece.main.ids)}
            names = enumerate(piece.main.raw_ids)
            gone = [piece.main.decode_id(i) for i, raw_id in names if same_id(raw_id) not in there]
            if gone:
                self.transaction(partial(self._forget, gone))

    def _forget(self, ids: list[object], session: ClientSession) -> None:
        self.check_not_held(session)
        self.release(ids, session)
        overflow = self.context.policy.overflow
        if overflow is not None:
            extra = self.context.database.get_collection(overflow.collection, codec_options=LOSSLESS)
            extra.delete_many({overflow.ref_field: {"$in": ids}}, session=session)

    def release(self, ids: list[object], session: ClientSession) -> None:
        """Removes the pins of these `_id`s, and their records of the quarantine."""
        pins = self.context.pins.release(ids, session)
        broken = self.quarantine.drop(ids, session)
        self.erasures.count({"pins": pins, "quarantine": broken}, session)
