"""Proposals of the model `samples` with parallel arrays: one of times, and those of values beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bucketwise.buckets.inferring.elapsed import elapsed_in
from bucketwise.buckets.inferring.fields import is_number, listed, non_null
from bucketwise.buckets.inferring.proposal import (
    NEARLY_ALL,
    Evidence,
    Proposal,
    choose_clock,
    choose_series,
    choose_values,
    choose_zones,
    names_of,
)
from bucketwise.buckets.inferring.samples import bounds_of, put_bounds
from bucketwise.buckets.inferring.times import Time, times_in
from bucketwise.buckets.inferring.values import usable

#: Samples that a document has to have on average: fewer are more likely a place on a map.
_LEAST = 2


def propose(evidence: Evidence) -> Iterator[Proposal]:
    """Yields a proposal for each array of times with arrays of numbers beside it."""
    arrays = {path: it for path, it in evidence.fields.several.items() if _are_arrays(it)}
    for path, held in arrays.items():
        beside = [it for it in arrays if it != path and _are_as_long(held, arrays[it])]
        values = [it for it in beside if _are_numbers(arrays[it])]
        if values and sum(map(len, non_null(held))) >= _LEAST * len(held):
            yield from _proposals(path, arrays, values, evidence)


def _are_arrays(held: Sequence[Any]) -> bool:
    found = non_null(held)
    return bool(found) and all(isinstance(it, list) for it in found)


def _are_as_long(held: Sequence[Any], others: Sequence[Any]) -> bool:
    """Returns whether arrays are as long as others, in nearly all documents."""
    alike = sum(len(a or ()) == len(b or ()) for a, b in zip(held, others, strict=True))
    return alike >= NEARLY_ALL * len(held)


def _are_numbers(held: Sequence[Any]) -> bool:
    elements = [it for array in non_null(held) for it in array if it is not None]
    return 2 * sum(map(is_number, elements)) > len(elements)


def _proposals(
    path: str, arrays: dict[str, list[Any]], values: Sequence[str], evidence: Evidence
) -> Iterator[Proposal]:
    held = arrays[path]
    owners = [number for number, array in enumerate(held) for _ in array or ()]
    inner = {path: [it for array in held for it in array or ()]}
    proposal = Proposal(
        {"model": "samples", "samples_as": "arrays", "sample_time_field": path},
        f"samples in arrays: times in {path}, values in {listed(list(values))}",
    )
    proposal.notes.add_evidence("sample_time_field", "each document has arrays of the same length beside it")
    times = times_in(inner)
    if times:
        time, *_ = times
        proposal.keys |= {key: it for key, it in time.keys("sample_time").items() if it != "s"}
        choose_zones(time, evidence, proposal)
        start, end = bounds_of(owners, time, evidence, proposal.notes)
        put_bounds(start, end, proposal)
        yield _rest(values, start or time, time.values if start is None else None, evidence, proposal)
    elif (found := elapsed_in(inner, owners, evidence)) and found.ways:
        found.put(proposal)
        yield _rest(values, found.start, None, evidence, proposal)


def _rest(
    values: Sequence[str],
    start: Time,
    sampled: Sequence[int | None] | None,
    evidence: Evidence,
    proposal: Proposal,
) -> Proposal:
    """Returns the proposal with series and values."""
    choose_clock(evidence.single, proposal)
    names = names_of(evidence, [proposal.keys.get("local_offset_field", "")])
    at = list(range(len(evidence.fields.documents))) if sampled is not None else start.values
    choose_series(names, at, evidence, start.path, proposal)
    choose_values({}, usable(list(values), proposal.notes), proposal)
    return proposal
