"""Proposals of the model `samples`: an array of samples, each with its time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bucketwise.buckets.inferring.elapsed import Elapsed, elapsed_in
from bucketwise.buckets.inferring.fields import (
    BOOKKEEPING,
    COUNT,
    END,
    START,
    Fields,
    Notes,
    hints,
    is_number,
    is_text,
    is_whole,
    listed,
    quoted,
)
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
from bucketwise.buckets.inferring.things import ask_of_things, choose_states
from bucketwise.buckets.inferring.times import Form, Time, times_in
from bucketwise.buckets.inferring.values import numeric, total

#: Share of documents in which a count or sum has to agree: those with overflow may count that too.
_AGREEING = 0.6
#: Difference of a sum that is allowed, relative to the sum of magnitudes.
_ROUNDING = 1e-9


class _Samples(NamedTuple):
    """The samples of one array in all documents, one after another. `time`: of each sample; None where it
    counts from the start of its bucket."""

    owners: list[int]  # number of the document, of each
    arrays: list[list[Any]]  # of each document
    fields: Fields
    time: Time | None
    is_pairs: bool


def propose(evidence: Evidence) -> Iterator[Proposal]:
    """Yields a proposal for each array of samples."""
    for path, held in evidence.fields.several.items():
        found = _samples([it if isinstance(it, list) else [] for it in held])
        if found is not None:
            yield from _proposals(path, found, evidence)


def _samples(arrays: list[list[Any]]) -> _Samples | None:
    elements = [it for array in arrays for it in array]
    owners = [number for number, array in enumerate(arrays) for _ in array]
    is_pairs = bool(elements) and all(isinstance(it, list) and len(it) > 1 for it in elements)
    if not elements or not (is_pairs or all(isinstance(it, dict) for it in elements)):
        return None
    fields = Fields.of([_named(it) for it in elements] if is_pairs else elements)
    times = times_in(_timed(fields, is_pairs))
    return _Samples(owners, arrays, fields, times[0] if times else None, is_pairs)


def _timed(fields: Fields, is_pairs: bool) -> dict[str, list[Any]]:
    """Returns the fields that may hold the time of a sample."""
    in_most = fields.in_most(NEARLY_ALL)
    return {path: it for path, it in in_most.items() if path == _PAIR_TIME} if is_pairs else in_most


_PAIR_TIME = "time"


def _named(pair: list[Any]) -> dict[str, Any]:
    """Returns a pair as a document; its values are numbered if there are several."""
    names = ["value"] if len(pair) == 2 else [f"value_{place}" for place in range(1, len(pair))]
    return {_PAIR_TIME: pair[0], **dict(zip(names, pair[1:], strict=True))}


def _proposals(path: str, samples: _Samples, evidence: Evidence) -> Iterator[Proposal]:
    proposal = Proposal({"model": "samples", "samples_field": path}, f"samples in {quoted(path)}")
    if samples.is_pairs:
        proposal.keys["samples_as"] = "pairs"
    if samples.time is None:
        found = _elapsed(samples, evidence, proposal)
        if found is not None and not found.ways:  # slots have places
            return
        if found is None:  # seconds that count from any instant, if a field is called like a time
            times = times_in(_timed(samples.fields, samples.is_pairs), by_name=True)
            samples = samples._replace(time=times[0] if times else None)
            if times and evidence.times:
                proposal.refusal = (
                    f"{quoted(times[0].path)} of samples tells no times since 1970, and does not count up "
                    "from the start of its document"
                )
        else:
            at = found.times([samples.fields.single[it] for it in found.used], samples.owners)
            yield _rest(path, samples, (found.start, found.used, at), evidence, proposal)
    if samples.time is not None and (start := _absolute(samples, samples.time, evidence, proposal)):
        timed = (start, [samples.time.path], samples.time.values)
        yield _rest(path, samples, timed, evidence, proposal)


def _absolute(samples: _Samples, time: Time, evidence: Evidence, proposal: Proposal) -> Time | None:
    """Puts the times of samples, and of the bucket if there are any, into the proposal. Returns the bucket's
    start, or the times of samples if nothing else tells it; None if these are no times of this bucket."""
    keys, notes = proposal.keys, proposal.notes
    if not samples.is_pairs:
        keys["sample_time_field"] = list(time.used) if time.paths else time.path
    keys |= {key: it for key, it in time.keys("sample_time").items() if it != "s"}
    if time.is_local:
        choose_zones(time, evidence, proposal)
    start, end = bounds_of(samples.owners, time, evidence, notes)
    if start is None and not time.is_sure:
        return None
    put_bounds(start, end, proposal)
    return start or time


def put_bounds(start: Time | None, end: Time | None, proposal: Proposal) -> None:
    """Puts the fields of a bucket's first and last time into the proposal."""
    if start is not None:
        proposal.keys["start_field"] = start.path
    if end is not None:
        proposal.keys["end_field"] = end.path
    forms = [it.keys() for it in (start, end) if it is not None and it.keys()]
    if forms:
        proposal.keys |= {key: it for key, it in forms[0].items() if it != "s"}


def _elapsed(samples: _Samples, evidence: Evidence, proposal: Proposal) -> Elapsed | None:
    """Puts times that count from the start of a bucket into the proposal; None if there are none."""
    single = _timed(samples.fields, samples.is_pairs)
    found = elapsed_in(single, samples.owners, evidence)
    if found is None:
        return None
    keys = proposal.keys
    if not samples.is_pairs:
        keys["sample_time_field"] = found.used[0] if len(found.used) == 1 else found.used
    found.put(proposal)
    return found


def _rest(
    path: str,
    samples: _Samples,
    timed: tuple[Time, Sequence[str], Sequence[int | None]],
    evidence: Evidence,
    proposal: Proposal,
) -> Proposal:
    """Returns the proposal with series, values and counters. `timed`: the start of buckets, the fields of the
    time in a sample, and the time of each."""
    start, used, at = timed
    keys, notes = proposal.keys, proposal.notes
    inner = {it: held for it, held in samples.fields.single.items() if it not in used}
    values = numeric(inner, notes)
    if samples.is_pairs:
        notes.add_question("value_fields", "Pairs don't name their values. What are they called?")
    counters = _counters(samples, inner, values, evidence, proposal)
    rows: dict[str, list[Any]] = {}
    if not samples.is_pairs:
        in_most = samples.fields.in_most(NEARLY_ALL)
        other_times = {it.path for it in times_in(in_most)} | set(used)
        rows = {f"{path}.*.{it}": held for it, held in in_most.items() if it not in other_times}
    if samples.time is None:
        rows = {name: it for name, it in rows.items() if any(map(is_text, it))}
    names = names_of(evidence, counters)
    if samples.time is None and not rows:
        rows, at = names, start.values  # buckets that start together are of several series
    else:
        rows = {name: [held[owner] for owner in samples.owners] for name, held in names.items()} | rows
    choose_clock(evidence.single, proposal)
    rows.pop(keys.get("local_offset_field", ""), None)
    choose_series(rows, at, evidence, start.path, proposal)
    choose_values(inner, [it for it in values if f"{path}.*.{it}" not in keys["series_fields"]], proposal)
    if not keys["value_fields"]:
        choose_states(rows, at, {f"{path}.*.{it}": it for it in inner}, proposal)
    ask_of_things(rows, at, proposal)
    return proposal


def bounds_of(
    owners: Sequence[int], sampled: Time, evidence: Evidence, notes: Notes
) -> tuple[Time | None, Time | None]:
    """Returns the fields of the first and the last time: the nearest that hold all samples between them."""
    times = evidence.times or times_in(evidence.single, by_name=True)
    spans: dict[int, tuple[int, int]] = {}
    for owner, at in zip(owners, sampled.values, strict=True):
        if at is not None:
            low, high = spans.get(owner, (at, at))
            spans[owner] = min(low, at), max(high, at)
    starts, ends = [], []
    for time in times:
        gaps = [
            (low - at, at - high)
            for owner, (low, high) in spans.items()
            if (at := time.values[owner]) is not None
        ]
        slack = 999 if time.form.unit == "s" else 1
        if sum(before >= -1 for before, _ in gaps) >= NEARLY_ALL * len(spans):
            starts.append((sum(before for before, _ in gaps), not hints(time.path, START), time))
        if sum(after >= -slack for _, after in gaps) >= NEARLY_ALL * len(spans):
            ends.append((sum(after for _, after in gaps), not hints(time.path, END), time))
    starts = [it for it in starts if it[2].form.unit != "objectid" and not it[2].paths]
    start = min(starts, key=lambda it: it[:2])[2] if starts else None
    if start is None:
        notes.add_question(
            "samples_field",
            "No field holds the time of the first sample, or of the last. Can the writer keep them?",
        )
        return None, None
    possible = [it for it in ends if it[2] is not start and it[2].form in (start.form, Form("date"))]
    likely = [it for it in possible if not hints(it[2].path, BOOKKEEPING)]
    if not likely:
        notes.add_question(
            "start_field", "No field holds the time of the last sample. Can the writer keep one?"
        )
    return start, min(likely, key=lambda it: it[:2])[2] if likely else None


def _counters(
    samples: _Samples,
    inner: dict[str, list[Any]],
    values: Sequence[str],
    evidence: Evidence,
    proposal: Proposal,
) -> list[str]:
    """Puts fields with the number and the sums of samples into the proposal, and returns them."""
    lengths = [len(it) for it in samples.arrays]
    found: list[str] = []
    for path, held in evidence.single.items():
        is_telling = len(set(lengths)) > 1 or hints(path, COUNT)
        agree = sum(is_whole(it) and it == size for it, size in zip(held, lengths, strict=True))
        if is_telling and agree >= _AGREEING * len(lengths) and not found:
            found.append(path)
            proposal.keys["count_field"] = path
            proposal.notes.add_evidence(
                "count_field", f"the number of samples in {agree:,} of {len(lengths):,} documents"
            )
    sums = {}
    for value in values:
        totals = _totals(inner[value], samples)
        for path, held in evidence.single.items():
            if path not in found and _agrees(held, totals):
                found.append(path)
                sums[value] = path
                break
    if sums:
        proposal.keys["sum_fields"] = sums
        proposal.notes.add_evidence(
            "sum_fields", f"{listed(list(sums.values()))} holds the sum of the samples"
        )
    return found


def _totals(values: list[Any], samples: _Samples) -> list[tuple[float, float]]:
    held: list[list[Any]] = [[] for _ in samples.arrays]
    for owner, value in zip(samples.owners, values, strict=True):
        held[owner].append(value)
    return [total(it) for it in held]


def _agrees(values: list[Any], totals: list[tuple[float, float]]) -> bool:
    """Returns whether a field holds these sums; zeros prove nothing."""
    pairs = [
        (total([it])[0], *both)
        for it, both in zip(values, totals, strict=True)
        if is_number(it) and 0 < both[1] < math.inf
    ]
    agree = sum(abs(stated - real) <= _ROUNDING * size for stated, real, size in pairs)
    return len(pairs) > 1 and agree >= _AGREEING * len(pairs)
