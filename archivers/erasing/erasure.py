"""An erasure: what is asked for, which buckets it means, its transactions and its counts.

The record of one that has begun and has not ended lies among the receipts. It names the series only by a
keyed hash. Its key is random, and goes with the document when the erasure has ended. Counts are written
in the transactions that erase, so that an erasure which was cut off continues them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.buckets import Selected, SeriesInBuckets, in_buckets
from bucketwise.archivers.records.receipts import UNERASED, Receipts
from bucketwise.archivers.writes import chunks, replace_raw, same_id
from bucketwise.buckets.bson.raw import LOSSLESS, Batch, Docs
from bucketwise.buckets.fields.selectors import Selector, check_selector
from bucketwise.buckets.fields.times import TimeRange, as_text
from bucketwise.buckets.models import model_of
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import transaction
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.rolling.quarantine import Quarantine

#: Shorter texts would be found everywhere inside other texts; and so would numbers, `true` and `false`.
_SHORTEST = 3


class TextMatcher:
    """Texts to search for. A longer text contains one where it occurs as a word, not next to letters or
    digits."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(it for it in texts if it)
        words = [it for it in self._texts if len(it) >= _SHORTEST and not _is_common(it)]
        self._word = _words(words) if words else None
        self._any = _words(self._texts)
        self._encoded = [it.encode(errors="surrogatepass") for it in self._texts if not _is_common(it)]

    @property
    def is_whole(self) -> bool:
        """Returns whether all of the texts are looked for inside others as well."""
        return all(len(it) >= _SHORTEST and not _is_common(it) for it in self._texts)

    def may_be_in(self, data: bytes) -> bool:
        """Returns whether documents with these bytes may hold one of the texts that are looked for."""
        return any(it in data for it in self._encoded)

    def is_in(self, value: object) -> bool:
        """Returns whether one stands in a value, or in what it holds."""
        if isinstance(value, str):
            is_equal = value in self._texts and not _is_common(value)
            return is_equal or (self._word is not None and self._word.search(value) is not None)
        if isinstance(value, Mapping):
            return any(self.is_in(key) or self.is_in(inner) for key, inner in value.items())
        if isinstance(value, (list, tuple)):
            return any(map(self.is_in, value))
        return False

    def is_named_in(self, reason: str) -> bool:
        """Returns whether a text for people names one, in capitals or not."""
        return self._any.search(reason.casefold()) is not None


def _words(texts: Iterable[str]) -> re.Pattern[str]:
    either = "|".join(sorted({re.escape(form) for it in texts for form in (it, it.casefold())}))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])")


def _is_common(text: str) -> bool:
    if text in ("true", "false", "null"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


#: Characters of a reason, at most.
_LONGEST = 1000


@dataclass(frozen=True)
class Erasure:
    """One series of a policy, in a range. `series` may leave out fields: then all series go that have these
    values."""

    policy: Policy
    series: Selector
    within: TimeRange
    reason: str

    @property
    def text(self) -> str:
        """Returns the request as one text, of which a keyed hash is kept."""
        request = sorted(self.series.items()), self.within.start_ms, self.within.end_ms
        return json.dumps([self.policy.identity, *request], ensure_ascii=False)

    @cached_property
    def matcher(self) -> TextMatcher:
        """Returns a matcher that finds the values wherever they occur as text."""
        return TextMatcher(self.series.values())

    @cached_property
    def buckets(self) -> SeriesInBuckets:
        """Returns how the series lies in buckets."""
        return in_buckets(self.policy, self.series, self.within)

    def sort(self, batch: Batch) -> Selected:
        """Returns which buckets of a batch go, broken or not."""
        return self.buckets.sort(batch)


def check_erasure(erasure: Erasure) -> None:
    """Raises UsageError where the policy's series can't be erased, where the request names no series of it,
    or where the reason, which is kept, contains what is to be erased."""
    policy, name = erasure.policy, erasure.policy.name
    if not erasure.series:
        fields = ", ".join(policy.series_names)
        there = (
            f"the series fields {fields}" if fields else "no series fields, so nothing of it can be erased"
        )
        raise UsageError(f"erase takes --series FIELD=VALUE: policy {name} has {there}")
    check_selector(policy, erasure.series)
    if not model_of(policy).can_delete:
        raise UsageError(
            f"policy {name}: {policy.collection} is a native time-series collection, from which MongoDB "
            "deletes by the meta field alone, and not in transactions. Delete the series there with "
            "deleteMany; bucketwise never deletes from such collections. Nothing was changed"
        )
    _check_reason(erasure)


def _check_reason(erasure: Erasure) -> None:
    reason = erasure.reason
    if not reason.strip():
        raise UsageError("--reason: it is empty. Say why the series is erased, such as the number of a case")
    if len(reason) > _LONGEST or not reason.isprintable():
        raise UsageError(f"--reason: write one line of at most {_LONGEST:,} printable characters")
    if erasure.matcher.is_named_in(reason):
        raise UsageError(
            "--reason: it contains a value of --series, and is kept in a receipt for good. Name the case, "
            "not the person or thing it is about"
        )


NAME, COUNTED = "erasing", "counted"
#: Names of buckets in one document: 8 bytes each.
_MOST_NAMES = 1_000_000


class BegunErasure(NamedTuple):
    """An erasure that has begun. `hashed` is the hash of its text under `key`."""

    key: str
    hashed: str
    within: TimeRange
    reason: str
    at: datetime
    counts: Mapping[str, int]

    def is_of(self, text: str) -> bool:
        """Returns whether it was begun with this text."""
        return _is_hash_of(text, self.key, self.hashed)


class Erasures:
    """The records of erasures of one policy."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def begun(self, session: ClientSession | None = None) -> BegunErasure | None:
        """Returns the erasure that has begun; None where none has."""
        found = self._receipts.get(NAME, session)
        if found is None:
            return None
        within = TimeRange(found["since"], found["until"])
        counts = {str(name): int(count) for name, count in found["counts"].items()}
        return BegunErasure(found["key"], found["series"], within, found["reason"], found["at"], counts)

    def begin(self, text: str, within: TimeRange, reason: str, now: datetime, session: ClientSession) -> None:
        """Records that an erasure begins, with a hash of its request."""
        key = secrets.token_hex(32)
        document = {
            "_id": self._receipts.identity(NAME),
            "kind": "erasing",
            "key": key,
            "series": _hashed(key, text),
            "since": within.since,
            "until": within.until,
            "reason": reason,
            "at": now,
            "counts": {},
        }
        self._receipts.collection.insert_one(document, session=session)

    def count(self, counts: Mapping[str, int], session: ClientSession) -> None:
        """Adds to the counts, in the transaction that erases."""
        added = {f"counts.{name}": count for name, count in counts.items() if count}
        if added:
            self._receipts.update(NAME, {"$inc": added}, session)

    def note(self, names: Set[int], session: ClientSession) -> None:
        """Records buckets that are counted, in the transaction that counts them."""
        packed = np.array(sorted(names), dtype="<i8")
        for at in range(0, len(packed), _MOST_NAMES):
            identity = self._receipts.identity(f"{COUNTED}-{secrets.token_hex(8)}")
            some = {"_id": identity, "kind": COUNTED, "names": packed[at : at + _MOST_NAMES].tobytes()}
            self._receipts.collection.insert_one(some, session=session)

    def counted(self) -> set[int]:
        """Returns the names of the buckets that are counted."""
        found = self._receipts.collection.find(self._own(COUNTED))
        return {name for it in found for name in np.frombuffer(it["names"], dtype="<i8").tolist()}

    def end(self, session: ClientSession) -> None:
        """Removes the records, and with them the key of the hash."""
        self._receipts.collection.delete_many(self._own(NAME, COUNTED), session=session)

    def _own(self, *kinds: str) -> dict[str, object]:
        return {"_id.policy": self._receipts.policy, "kind": {"$in": kinds}}


def _hashed(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()


def _is_hash_of(text: str, key: str, hashed: str) -> bool:
    return hmac.compare_digest(_hashed(key, text), hashed)


class UnreadCommits:
    """The commits that may hold what an erasure asked for, and could not be read. Their receipts say so until
    it could read them: no summary is made of them before."""

    def __init__(self, receipts: Receipts, erasure: Erasure, now: datetime) -> None:
        self._receipts = receipts
        self._erasure = erasure
        self._now = now
        self._noted = set[str]()

    def note(self, commit: str) -> None:
        """Records one of them."""
        self._noted.add(commit)
        if not self._mine(self._receipts.get(commit) or {}):
            key, erasure = secrets.token_hex(32), self._erasure
            its = {
                "key": key,
                "series": _hashed(key, erasure.text),
                "reason": erasure.reason,
                "at": self._now,
            }
            self._receipts.update(commit, {"$push": {UNERASED: its}})

    def end(self) -> None:
        """Takes the records of this erasure from commits that it could read."""
        query = {"_id.policy": self._receipts.policy, "kind": "offline", UNERASED: {"$exists": True}}
        for receipt in list(self._receipts.collection.find(query)):
            commit = receipt["_id"]["name"]
            if commit not in self._noted and (mine := self._mine(receipt)):
                self._receipts.update(commit, {"$pull": {UNERASED: {"key": {"$in": mine}}}})

    def _mine(self, receipt: Mapping[str, Any]) -> list[str]:
        text = self._erasure.text
        return [it["key"] for it in receipt.get(UNERASED, ()) if _is_hash_of(text, it["key"], it["series"])]


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


def check_edges(erasure: Erasure, across: int) -> None:
    """Raises UsageError if any buckets (`across`: how many) can't go with this range."""
    if across:
        why = erasure.buckets.across
        raise UsageError(f"--since, --until: {across:,} buckets of the series {why}. Nothing was changed")


def _other(begun: BegunErasure, erasure: Erasure) -> str:
    ends = (("since", begun.within.since), ("until", begun.within.until))
    span_text = "".join(f", {name} {as_text(at)}" for name, at in ends if at is not None)
    return (
        f"policy {erasure.policy.name}: another erasure was begun at {as_text(begun.at)} ({begun.reason!r}"
        f"{span_text}), and has not finished. Run it again with the same --series, --since and --until; then "
        "this one. Nothing was changed"
    )


#: Places of an archive, as they are counted; and how many of the buckets there stay, rewritten.
ARCHIVES, STAYED = ("archived", "online"), "stayed"


class BucketNames(NamedTuple):
    """Digests of the `_id`s of buckets that go or are rewritten, and of the latter, each once."""

    all: Set[int] = frozenset()
    rewritten: Set[int] = frozenset()

    @classmethod
    def of(cls, batch: Batch, found: Selected) -> BucketNames:
        """Returns the names of those that were found in a batch."""
        places = found.affected, found.rewritten
        return cls(*({_name(batch.main.raw_id(i)) for i in some.tolist()} for some in places))

    def __or__(self, other: BucketNames) -> BucketNames:
        return BucketNames(self.all | other.all, self.rewritten | other.rewritten)


def _name(raw_id: bytes) -> int:
    """Returns 8 bytes that are equal for `_id`s that MongoDB takes for the same, in any process."""
    digest = hashlib.blake2b(same_id(raw_id), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


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

    def take(self, names: BucketNames, found: Selected, place: str, session: ClientSession) -> set[int]:
        """Checks, in the transaction that destroys what was found in a place, that it may go, and counts it.
        Returns what is `counted` from the commit of the transaction on."""
        self.check_not_held(session)
        new = set(names.all) - self.counted
        counts = {"buckets": len(new), "rewritten": len(new & names.rewritten), place: len(found.affected)}
        if place in ARCHIVES:
            counts[STAYED] = len(found.rewritten)
        self.erasures.count(counts, session)
        self.erasures.note(new, session)
        return new

    def count(self, **counts: int) -> None:
        """Counts what was erased without a transaction of its own."""
        self.transaction(lambda session: self.erasures.count(counts, session))

    def forget(self, erased: Batch) -> None:
        """Removes, before archived buckets go, what else refers to the `_id`s of those that are not live:
        pins, records of the quarantine, and overflow that a restore into another collection has put back."""
        for gone in self._not_live(erased):
            self.transaction(partial(self._forget, gone.main.ids))

    def _not_live(self, archived: Batch) -> Iterator[Batch]:
        for piece in chunks(archived):
            there = {same_id(it) for it in self.context.source.present(piece.main.ids)}
            gone = [i for i, raw_id in enumerate(piece.main.raw_ids) if same_id(raw_id) not in there]
            if gone:
                yield piece.take(gone)

    def _forget(self, ids: list[object], session: ClientSession) -> None:
        self.check_not_held(session)
        self.release(ids, session)
        overflow = self.context.policy.overflow
        if overflow is not None:
            extra = self.context.database.get_collection(overflow.collection, codec_options=LOSSLESS)
            extra.delete_many({overflow.ref_field: {"$in": ids}}, session=session)

    def rewrite_restored(self, archived: Batch) -> None:
        """Rewrites, before archived buckets are, the overflow that a restore into another collection has put
        back of those that are not live."""
        if self.context.policy.overflow is not None:
            for gone in self._not_live(archived):
                self.transaction(partial(self._rewrite_overflow, gone.main))

    def _rewrite_overflow(self, buckets: Docs, session: ClientSession) -> None:
        self.check_not_held(session)
        context, overflow = self.context, self.context.policy.overflow
        assert overflow is not None
        there = Source(context.database, context.policy, session=session).with_overflow(buckets)
        replace_raw(context.database, overflow.collection, self.erasure.buckets.rest(there).extra, session)

    def release(self, ids: list[object], session: ClientSession) -> None:
        """Removes the pins of these `_id`s, and their records of the quarantine."""
        pins = self.context.pins.release(ids, session)
        self.erasures.count({"pins": pins}, session)
        self.drop_quarantine(ids, session)

    def drop_quarantine(self, ids: list[object], session: ClientSession) -> None:
        """Removes the records of the quarantine of these `_id`s."""
        self.erasures.count({"quarantine": self.quarantine.drop(ids, session)}, session)
