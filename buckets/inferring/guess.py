"""A guess at what a collection is: proposals for its documents, each tried on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.buckets.inferring import readings, samples, slots
from bucketwise.buckets.inferring.fields import Document, Fields, decoded
from bucketwise.buckets.inferring.notes import Notes
from bucketwise.buckets.inferring.proposal import Evidence, Proposal
from bucketwise.buckets.inferring.trial import try_keys
from bucketwise.buckets.models.overflow import attach, flagged_buckets
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy

#: Bytes of documents that are read field by field; of more, some here and there.
_MAX_BYTES = 2_000_000
#: Share of the documents that a policy has to fit.
_MIN_FIT = 0.5
#: Keys that agree with some buckets only if all of their overflow is there.
_TOTAL_KEYS = ("count_field", "sum_fields")


@dataclass(frozen=True)
class Guess:
    """The guessed policy of a collection. `policy` is None if no model fits, for these `reasons`."""

    collection: str
    policy: Policy | None = None
    reasons: list[str] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    what: str = ""  # how readings lie in a document
    left_out: dict[str, Any] = field(default_factory=dict)  # keys that some documents disagree with
    timezone: str | None = None
    is_noisy: bool = False
    is_summaries: bool = False

    @property
    def evidence(self) -> list[str]:
        """Returns the reasons for the policy, or for there being none."""
        model = self.notes.evidence.get("model", [])
        others = (
            f"{key}: {text}" for key, texts in self.notes.evidence.items() if key != "model" for text in texts
        )
        return self.reasons or [*model, *others]


def guess(
    name: str, collection: str, docs: Docs, indexes: Sequence[Sequence[str]], native: Mapping[str, str] | None
) -> Guess:
    """Returns the policy that reads most numbers of the documents. `name`: of the policy; `native`: the
    options of a native time-series collection."""
    if not len(docs):
        return Guess(collection, reasons=["it is empty"])
    documents = decoded(_sampled(docs))
    if _are_summaries(documents):
        return Guess(collection, reasons=["it holds summaries"], is_summaries=True)
    evidence = Evidence(Fields.of(documents), indexes)
    proposals = list(readings.propose_native(evidence, native) if native else _proposals(evidence))
    best: tuple[int, Guess] | None = None
    for proposal in proposals:
        if proposal.keys["value_fields"]:
            candidate = _try(name, collection, Batch.of(docs), proposal)
            if candidate is not None and (best is None or candidate[0] > best[0]):
                best = candidate
    return best[1] if best else Guess(collection, reasons=[_reason_for_none(evidence, proposals)])


def with_overflow(
    found: Guess, overflow: Overflow, referred: Docs, extra: Docs, sample: Docs
) -> Guess | None:
    """Returns the guess with an overflow; None if that adds no readings to buckets. `referred`: buckets that
    the overflow documents `extra` refer to."""
    assert found.policy is not None
    keys = found.policy.model_dump(exclude_unset=True) | found.left_out | {"overflow": overflow}
    without_totals = {key: it for key, it in keys.items() if key not in _TOTAL_KEYS}
    attached = try_keys(without_totals, attach(referred, extra, make_policy(**without_totals)))
    without = try_keys(
        {key: it for key, it in without_totals.items() if key != "overflow"}, Batch.of(referred)
    )
    added = len(attached.decoded.columns.time) - len(without.decoded.columns.time)
    if added <= 0 or attached.decoded.quarantined or attached.left_out:
        return None
    unflagged = np.setdiff1d(np.arange(len(sample)), flagged_buckets(sample, attached.policy))
    trial = try_keys(keys, Batch.of(sample.take(unflagged)))
    trial.note(found.what, "sampled documents without overflow", found.notes)
    return replace(found, policy=trial.policy, left_out=trial.left_out)


def _proposals(evidence: Evidence) -> Iterable[Proposal]:
    of_samples = list(samples.propose(evidence))
    yield from of_samples
    yield from slots.propose(evidence, {it.keys["samples_field"] for it in of_samples})
    yield from readings.propose(evidence)


def _sampled(docs: Docs) -> Iterable[bytes]:
    step = max(1, docs.size // _MAX_BYTES)
    return [document for number, document in enumerate(docs) if number % step == 0]


def _try(name: str, collection: str, batch: Batch, proposal: Proposal) -> tuple[int, Guess] | None:
    """Returns how many numbers it reads, and the guess; None if too few documents fit."""
    trial = try_keys({"name": name, "collection": collection, **proposal.keys}, batch)
    if not trial.finite or len(trial.decoded.units) < _MIN_FIT * len(batch):
        return None
    trial.note(proposal.what, "sampled documents", proposal.notes)
    trial.note_mixed(proposal.notes)
    found = Guess(
        collection,
        trial.policy,
        notes=proposal.notes,
        what=proposal.what,
        left_out=trial.left_out,
        timezone=proposal.timezone,
        is_noisy=is_noisy(trial.decoded.columns),
    )
    return trial.finite, found


def _are_summaries(documents: list[Document]) -> bool:
    """Returns whether bucketwise wrote them."""
    names = {"_id", "start", "end", "count"}
    return bool(documents) and all(
        names <= set(it) and isinstance(it["_id"], dict) and set(it["_id"]) == {"series", "start"}
        for it in documents
    )


def _reason_for_none(evidence: Evidence, proposals: Sequence[Proposal]) -> str:
    if proposals:
        return "no field holds numbers that could be values"
    if evidence.times:
        return "no bucket model fits its documents"
    return "no field holds times: dates, numbers of seconds and the like, or ISO 8601 text"


#: Readings that are needed to tell.
_MIN_READINGS = 30
#: Mean square of the steps from one reading to the next, as a part of the variance: 2 for white noise, nearly
#: 0 for what changes slowly.
_NOISY = 0.2
#: Fraction of the mean from which on a deviation matters.
_MIN_DEVIATION = 0.01


def is_noisy(columns: Columns) -> bool:
    """Returns whether any value field jumps about from one reading of a series to the next."""
    order = np.lexsort((columns.time, columns.series_of_readings))
    is_same_series = np.diff(columns.series_of_readings[order]) == 0
    for name, values in columns.values.items():
        finite = columns.kinds[name][order] == ValueKind.FINITE
        numbers = np.where(finite, values[order], 0.0)
        if finite.sum() < _MIN_READINGS:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.diff(numbers)[is_same_series & finite[1:] & finite[:-1]]
            deviation, mean = numbers[finite].std(), abs(numbers[finite].mean())
            if len(steps) and deviation > _MIN_DEVIATION * mean and (steps**2).mean() > _NOISY * deviation**2:
                return True
    return False
