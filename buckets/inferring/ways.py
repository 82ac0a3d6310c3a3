"""The ways in which documents can be read: each a policy, tried on a sample, with what speaks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import NO_STATE, ValueKind
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.decoding.soundness import EARLIEST
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.inferring.proposal import Proposal
from bucketwise.buckets.sampling.doubts import doubt_of, full_text_days
from bucketwise.buckets.sampling.fit import Example, example_of
from bucketwise.buckets.sampling.reading import AsRead
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

#: Optional keys of a policy, in the order in which they are given up.
_OPTIONAL = (("sum_fields",), ("count_field",), ("end_field",), ("sum_fields", "count_field"))
#: Readings of a document that are shown.
_SHOWN = 3


@dataclass(frozen=True)
class Trial:
    """A policy, what it reads of some documents, and the keys that it had to do without."""

    policy: Policy
    batch: Batch
    decoded: Decoded
    left_out: dict[str, Any]

    @property
    def finite(self) -> int:
        """Returns how many numbers were read, or texts that are states."""
        return sum(int(is_told.sum()) for is_told in self._told.values())

    @cached_property
    def _told(self) -> dict[str, NDArray[np.bool_]]:
        """Returns by the names of value fields which readings have a number or a state."""
        columns = self.decoded.columns
        states = {name: it.codes != NO_STATE for name, it in columns.states.items()}
        return {name: kinds == ValueKind.FINITE for name, kinds in columns.kinds.items()} | states

    @property
    def empty(self) -> list[str]:
        """Returns the value fields in which not one number was read, nor a state."""
        return [path for name, path in self.policy.named_values if not self._told[name].any()]

    @property
    def seen(self) -> tuple[bytes, ...]:
        """Returns all that was read: two policies that read the same are one way."""
        columns = self.decoded.columns
        values = (it.tobytes() for held in (columns.values, columns.kinds) for it in held.values())
        named = repr((self.policy.value_names, self.policy.series_names)).encode()
        return (self.decoded.units.tobytes(), columns.time.tobytes(), *values, named)

    def first(self, unit: int) -> tuple[Example, ...]:
        """Returns the first readings of one document, by their time."""
        columns = self.decoded.columns
        at = np.flatnonzero(self.decoded.units[columns.bucket] == unit)
        at = at[np.argsort(columns.time[at], kind="stable")]
        return tuple(example_of(columns, int(it)) for it in at[:_SHOWN])


@dataclass(frozen=True)
class Way:
    """A policy that fits, what speaks for it, and the first readings of one document as it has them. `keys`:
    those in which ways differ."""

    policy: Policy
    keys: dict[str, Any]
    why: str
    first: tuple[Example, ...]


def try_keys(keys: dict[str, Any], batch: Batch) -> Trial:
    """Returns what a policy with these keys reads. Optional keys that some documents contradict are
    left out."""
    best = _read(keys, {}, batch)
    for names in _OPTIONAL:
        if best.decoded.quarantined and all(it in keys for it in names):
            left_out = best.left_out | {it: keys[it] for it in names}
            again = _read(keys, left_out, batch)
            if len(again.decoded.units) > len(best.decoded.units):
                best = again
    return best


def _read(keys: dict[str, Any], left_out: dict[str, Any], batch: Batch) -> Trial:
    kept = {key: it for key, it in keys.items() if key not in left_out}
    lists = {key: tuple(it) if isinstance(it, list) else it for key, it in kept.items()}
    policy = make_policy(**lists)
    return Trial(policy, batch, decode(batch, policy), left_out)


def tried(keys: dict[str, Any], proposal: Proposal, batch: Batch) -> list[tuple[Trial, Way]]:
    """Returns the ways that read most of the documents, the likeliest first, each with its trial. Of ways
    that read the same the first stays."""
    found: dict[tuple[bytes, ...], tuple[Trial, dict[str, Any], str]] = {}
    for more, why in _combined(proposal):
        trial = _without_empty(try_keys({**keys, **more}, batch), batch)
        if trial.finite:
            found.setdefault(trial.seen, (trial, more, why))
    most = max((len(it.decoded.units) for it, *_ in found.values()), default=0)
    kept = [it for it in found.values() if len(it[0].decoded.units) == most]
    shown = _shown([it for it, *_ in kept])
    same = _shared([more for _, more, _ in kept])
    return [
        (
            trial,
            Way(
                trial.policy,
                {key: it for key, it in more.items() if key not in same},
                why,
                trial.first(shown),
            ),
        )
        for trial, more, why in kept
    ]


#: Keys of the clock that documents follow, and evidence that depends on it: ways that differ in these alone
#: are judged once.
_OF_CLOCKS, _ON_CLOCKS = {"timezone", "slot_time"}, ("zone-unlikely", "days-unlikely")


def undoubted(found: list[tuple[Trial, Way]]) -> list[tuple[Trial, Way]]:
    """Returns the ways without those that `check` would doubt, if any others are left: whatever the clock is
    that documents follow, or as days of text have other hours by it."""
    doubted: dict[str, bool] = {}
    kept = []
    for trial, way in found if len(found) > 1 else ():
        layout = repr(way.policy.model_dump(exclude_unset=True, exclude=_OF_CLOCKS))
        if layout not in doubted:
            doubt = doubt_of(AsRead(trial.batch, way.policy), None)
            doubted[layout] = doubt is not None and doubt.code not in _ON_CLOCKS
        if not doubted[layout]:
            kept.append((trial, way))
    full = [full_text_days(trial.policy, trial.decoded) or 0 for trial, _ in kept]
    kept = [it for it, count in zip(kept, full, strict=True) if count == max(full)]
    if not kept or len(kept) == len(found):
        return found
    same = _shared([it.keys for _, it in kept])
    return [
        (trial, replace(way, keys={key: it for key, it in way.keys.items() if key not in same}))
        for trial, way in kept
    ]


def _combined(proposal: Proposal) -> Iterator[tuple[dict[str, Any], str]]:
    for way in proposal.alternatives:
        for clock in proposal.clocks:
            why = "; ".join(it for it in (way.why, clock.why) if it)
            yield {**way.keys, **clock.keys}, why


def _without_empty(trial: Trial, batch: Batch) -> Trial:
    """Returns a trial without the value fields in which no number was read, if there are others."""
    empty = trial.empty
    fields = tuple(it for it in trial.policy.value_fields if it not in empty)
    if not empty or not fields:
        return trial
    tables = {path: it for path, it in trial.policy.values.items() if path in fields}
    sums = {path: it for path, it in trial.policy.sums.items() if path in fields}
    more = {"value_fields": fields, "values": tables} | ({"sum_fields": sums} if trial.policy.sums else {})
    policy = trial.policy.model_copy(update=more)
    return replace(trial, policy=policy, decoded=decode(batch, policy))


def _shown(trials: Sequence[Trial]) -> int:
    """Returns the document whose first readings are shown: the earliest whose time is no fault."""
    if not trials:
        return 0
    decoded = trials[0].decoded
    ordered = decoded.units[np.argsort(decoded.last, kind="stable")].tolist()
    firsts = {it: found[0].time for it in ordered if (found := trials[0].first(it))}
    return next((it for it, at in firsts.items() if at >= as_ms(EARLIEST)), next(iter(firsts), 0))


def _shared(all_keys: Iterable[dict[str, Any]]) -> set[str]:
    """Returns the keys that are the same in all."""
    listed = list(all_keys)
    if not listed:
        return set()
    return {key for key, it in listed[0].items() if all(key in one and one[key] == it for one in listed)}
