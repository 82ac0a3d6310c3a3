"""A guess at what a collection is: proposals for its documents, each tried on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from buckets.bson.raw import Batch, Docs
from buckets.columns import Kind
from buckets.decoding.decode import Decoded, decode
from buckets.fields.selectors import extended_json
from buckets.inferring import readings, samples, slots
from buckets.inferring.fields import Document, Fields, decoded
from buckets.inferring.noise import is_noisy
from buckets.inferring.notes import Notes, quoted
from buckets.inferring.proposal import Proposal, Seen
from buckets.inferring.values import say_mixed
from config.policies import Overflow, Policy

#: Bytes of documents that are looked at field by field; of more, some here and there.
_BYTES = 2_000_000
#: A policy has to fit so many of the documents.
_FITTING = 0.5
#: Keys that a policy may do without, in the order in which they are given up.
_OPTIONAL = ("sum_fields", "count_field", "end_field")


@dataclass(frozen=True)
class Guess:
    """What a collection is taken for. `policy` is None if no model fits; then `evidence` says why."""

    collection: str
    policy: Policy | None = None
    evidence: list[str] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    timezone: str | None = None
    is_noisy: bool = False
    is_summaries: bool = False


def guess(
    name: str, collection: str, docs: Docs, indexes: Sequence[Sequence[str]], native: Mapping[str, str] | None
) -> Guess:
    """Returns the policy that reads most numbers of the documents. `name`: of the policy; `native`: the
    options of a native time-series collection."""
    if not len(docs):
        return Guess(collection, evidence=["it is empty"])
    documents = decoded(_thinned(docs))
    if _are_summaries(documents):
        return Guess(collection, evidence=["it holds summaries"], is_summaries=True)
    seen = Seen(Fields.of(documents), indexes)
    proposals = list(readings.propose_native(seen, native) if native else _proposals(seen))
    best: tuple[float, Guess] | None = None
    for proposal in proposals:
        if proposal.keys["value_fields"]:
            tried = _try(name, collection, Batch.of(docs), proposal)
            if tried is not None and (best is None or tried[0] > best[0]):
                best = tried
    return best[1] if best else Guess(collection, evidence=[_why_not(seen, proposals)])


def with_overflow(found: Guess, overflow: Overflow, batch: Batch) -> Guess | None:
    """Returns the guess with an overflow; None if its samples don't come to light by it."""
    assert found.policy is not None
    alone = decode(Batch.of(batch.main), found.policy)
    keys = found.policy.model_dump(exclude_unset=True) | {"overflow": overflow}
    policy, seen, _ = _settled(keys, batch)
    if len(seen.columns.time) <= len(alone.columns.time) or seen.quarantined:
        return None
    return replace(found, policy=policy)


def _proposals(seen: Seen) -> Iterable[Proposal]:
    of_samples = list(samples.propose(seen))
    yield from of_samples
    yield from slots.propose(seen, {it.keys["samples_field"] for it in of_samples})
    yield from readings.propose(seen)


def _thinned(docs: Docs) -> Iterable[bytes]:
    step = max(1, docs.size // _BYTES)
    return [document for number, document in enumerate(docs) if number % step == 0]


def _try(name: str, collection: str, batch: Batch, proposal: Proposal) -> tuple[float, Guess] | None:
    """Returns how many numbers it reads, and the guess; None if too few documents fit."""
    keys = {"name": name, "collection": collection, **proposal.keys}
    policy, seen, left_out = _settled(keys, batch)
    finite = sum(int((kinds == Kind.FINITE).sum()) for kinds in seen.columns.kinds.values())
    if not finite or len(seen.units) < _FITTING * len(batch):
        return None
    notes = proposal.notes
    for key in left_out:
        notes.questions.pop(key, None)
        notes.evidence.pop(key, None)
        notes.ask(
            "model", f"{key} = {quoted(str(keys[key]))} does not agree with all documents, so it was left out"
        )
    if seen.quarantined:
        first = seen.quarantined[0]
        notes.ask(
            "model",
            f"{len(seen.quarantined):,} of {len(batch):,} don't keep to it, such as _id "
            f"{quoted(extended_json(first.id))}, {quoted(first.field)}: {first.reason}",
        )
    for field_name, kinds in seen.columns.kinds.items():
        if (count := int((kinds == Kind.NONNUMERIC).sum())) > 0:
            say_mixed(field_name, count, len(kinds), notes)
    told = "; ".join(notes.evidence.pop("model", []))
    what = f"{len(seen.units):,} of {len(batch):,} sampled documents"
    readings_told = f"{told or _WHAT[policy.model]}: {len(seen.columns.time):,} readings"
    notes.evidence["model"] = [f"{what}: {readings_told}"]
    evidence = [f"{what}: {readings_told}", *_lines(notes)]
    return finite, Guess(collection, policy, evidence, notes, proposal.timezone, is_noisy(seen.columns))


_WHAT = {
    "reading": "one reading each",
    "timeseries": "one measurement each",
    "samples": "an array of samples",
    "slots": "slots",
}


def _lines(notes: Notes) -> list[str]:
    return [f"{key}: {text}" for key, texts in notes.evidence.items() if key != "model" for text in texts]


def _settled(keys: dict[str, Any], batch: Batch) -> tuple[Policy, Decoded, list[str]]:
    """Returns the policy without those of its optional keys that fewer documents keep to."""
    policy, left_out = _policy(keys), list[str]()
    seen = decode(batch, policy)
    for key in _OPTIONAL:
        if seen.quarantined and key in keys and not (key == "end_field" and "overflow" in keys):
            other = _policy({it: value for it, value in keys.items() if it != key})
            again = decode(batch, other)
            if len(again.units) > len(seen.units):
                policy, seen, keys = other, again, {it: value for it, value in keys.items() if it != key}
                left_out.append(key)
    return policy, seen, left_out


def _policy(keys: dict[str, Any]) -> Policy:
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()}
    return Policy.model_validate(lists)


def _are_summaries(documents: list[Document]) -> bool:
    """Whether bucketwise wrote them."""
    names = {"_id", "start", "end", "count"}
    return bool(documents) and all(
        names <= set(it) and isinstance(it["_id"], dict) and set(it["_id"]) == {"series", "start"}
        for it in documents
    )


def _why_not(seen: Seen, proposals: Sequence[Proposal]) -> str:
    if proposals:
        return "no field holds numbers that could be values"
    if seen.times:
        return "no bucket model fits its documents"
    return "no field holds times: dates, numbers of seconds and the like, or ISO 8601 text"
