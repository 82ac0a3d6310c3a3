"""The state of an erasure: its transactions, its counts, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.records.erasures import BegunErasure, Erasures
from bucketwise.archivers.writes import chunks, id_names, same_id
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.fields.times import as_text
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import transaction
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.rolling.quarantine import Quarantine

T = TypeVar("T")


def holds_on(
    context: ArchiveContext, erasure: Erasure, others: Sequence[Policy], session: ClientSession | None = None
) -> list[Hold]:
    """Returns the holds that an erasure would break: on this policy, and on others that read the same
    collection. One that freezes keeps commits in its range from being rewritten, whatever its series."""
    found = []
    start, end = erasure.within.start_ms, erasure.within.end_ms
    for policy in (erasure.policy, *others):
        mine, its = erasure.policy.stored_series, policy.stored_series
        selector = {name: text for name, text in erasure.series.items() if its.get(name) == mine[name]}
        for hold in Holds(context.database, policy.identity).active(session):
            is_frozen = hold.freeze and policy is erasure.policy
            if hold.touches(start, end) and (is_frozen or hold.may_cover(selector)):
                found.append(hold)
    return found


def check_erasable(
    context: ArchiveContext, erasure: Erasure, others: Sequence[Policy]
) -> BegunErasure | None:
    """Returns the erasure that has begun, if it is this one. Raises UsageError where another one has begun,
    where holds forbid it, or where nothing can be deleted from the collection, and DamagedError where
    receipts were signed with another key."""
    context.deletions.check_last()
    begun = Erasures(context.receipts).begun()
    if begun is not None and not begun.is_of(erasure.text):
        raise UsageError(_other(begun, erasure))
    if holds := holds_on(context, erasure, others):
        raise UsageError(f"policy {erasure.policy.name}: {held_by(holds)}. Nothing was erased by this run")
    if what := context.undeletable:
        raise UsageError(
            f"policy {context.policy.name}: {what}, and nothing can be deleted from it. Name the collection "
            "that holds the buckets. Nothing was changed"
        )
    return begun


def held_by(holds: Sequence[Hold]) -> str:
    """Says which holds forbid it, and what to do."""
    names = ", ".join(hold.name for hold in holds)
    return (
        f"what is to be erased is held ({names}): `bucketwise hold list` says why. Release these holds, or "
        "choose another range"
    )


def check_edges(across: int) -> None:
    """Raises UsageError if any buckets (`across`: how many) hold something beyond the range as well."""
    if across:
        raise UsageError(
            f"--since, --until: {across:,} buckets of the series hold readings inside the range and "
            "beyond it, or have a time that can't be read, and a bucket is erased whole or not at all. "
            "Choose a range whose edges lie between buckets, or leave it out. Nothing was changed"
        )


def _other(begun: BegunErasure, erasure: Erasure) -> str:
    ends = (("since", begun.within.since), ("until", begun.within.until))
    span_text = "".join(f", {name} {as_text(at)}" for name, at in ends if at is not None)
    return (
        f"policy {erasure.policy.name}: another erasure was begun at {as_text(begun.at)} ({begun.reason!r}"
        f"{span_text}), and has not finished. Run it again with the same --series, --since and --until; then "
        "this one. Nothing was changed"
    )


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
