"""A guess at what a collection is: proposals for its documents, each tried on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from bson.binary import Binary
from bson.objectid import ObjectId

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.buckets.decoding.soundness import EARLIEST
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms, as_text
from bucketwise.buckets.inferring import arrays, readings, samples, slots
from bucketwise.buckets.inferring.fields import (
    FLAG,
    Document,
    Fields,
    Notes,
    decoded,
    hints,
    listed,
    nameless,
    non_null,
    quoted,
)
from bucketwise.buckets.inferring.proposal import Evidence, Proposal
from bucketwise.buckets.inferring.ways import Trial, Way, tried, try_keys, undoubted
from bucketwise.buckets.models.overflow import attach, flagged_buckets
from bucketwise.buckets.sampling.fit import LikelyKind, likely_kinds
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Overflow, Policy


def _note(trial: Trial, what: str, documents: str, notes: Notes) -> None:
    """Notes what was read. `what`: how readings lie in a document; `documents`: which were read."""
    sound, readings = len(trial.decoded.units), len(trial.decoded.columns.time)
    notes.evidence["model"] = [
        f"{sound:,} of {len(trial.batch):,} {documents}: {what}: {readings:,} readings"
    ]
    questions = [
        f"{key} = {quoted(str(value))} does not agree with all documents, so it was left out"
        for key, value in trial.left_out.items()
    ]
    for key in trial.left_out:
        notes.drop(key)
    if broken := trial.decoded.quarantined:
        first = quoted(extended_json(broken[0].id))
        questions.append(
            f"{len(broken):,} of {len(trial.batch):,} don't keep to it, such as _id "
            f"{first}, {quoted(broken[0].field)}: {broken[0].reason}"
        )
    notes.questions.pop("model", None)
    for text in questions:
        notes.add_question("model", text)


def _note_mixed(trial: Trial, notes: Notes) -> None:
    """Asks about value fields that hold something else than numbers now and then."""
    for name, kinds in trial.decoded.columns.kinds.items():
        count = int((kinds == ValueKind.NONNUMERIC).sum())
        if count and name not in trial.policy.text_states:
            notes.add_question(
                "value_fields",
                f"{quoted(name)} holds text or the like in {count:,} of {len(kinds):,} readings; "
                "they are counted as nonnumeric. If whole days may be so, write "
                f"nonnumeric_ok = [{quoted(name)}]",
            )


def _with_earliest(way: Way, trial: Trial, notes: Notes) -> Way:
    """Returns the way with the earliest time that is no fault, where most readings are before those that are
    none by default. Asks about a few."""
    times = trial.decoded.columns.time
    early = int((times < as_ms(EARLIEST)).sum())
    if not early:
        return way
    first = as_date(int(times.min()))
    text = f"{early:,} of {len(times):,} readings are before {EARLIEST:%Y}, the first at {as_text(first)}"
    if early < _MIN_FIT * len(times):
        notes.add_question("model", f"{text}. A run leaves their documents where they are. Is that right?")
        return way
    keys = way.policy.model_dump(exclude_unset=True, by_alias=True)
    notes.evidence["earliest"] = [text]
    return replace(way, policy=make_policy(**keys, earliest=f"{first.year:04}-01-01"))


def _with_latest(way: Way, trial: Trial, notes: Notes) -> Way:
    """Returns the way with the latest time that is no fault, where a few readings are years after all
    others: of a clock that was never set."""
    times = np.sort(trial.decoded.columns.time)
    gaps = np.flatnonzero(np.diff(times) > _YEARS_AHEAD)
    behind = [int(it) for it in len(times) - 1 - gaps if it <= _REPEATED * len(times)]
    if not behind:
        return way
    ahead = behind[0]
    first = as_text(as_date(int(times[-ahead])))
    notes.evidence["latest"] = [
        f"{ahead:,} of {len(times):,} readings are at {first} or later, years after all others"
    ]
    keys = way.policy.model_dump(exclude_unset=True, by_alias=True)
    return replace(way, policy=make_policy(**keys, latest="2d"))


#: Milliseconds that no reading is after another one.
_YEARS_AHEAD = 10 * 365 * DAY_MS
#: Share of the readings that have series and time of another one, from which on they are asked about.
_REPEATED = 0.05


def _note_repeated(trial: Trial, notes: Notes) -> None:
    """Asks about readings that have the time of another one of their series."""
    columns = trial.decoded.columns
    rows = np.column_stack([columns.series_of_readings, columns.time])
    repeated = len(rows) - len(np.unique(rows, axis=0))
    if repeated >= _REPEATED * len(rows) > 0:
        notes.add_question(
            "series_fields",
            f"{repeated:,} of {len(rows):,} readings have the time of another one of their series. If they "
            'were sent twice, write duplicates = "last" or "first": which of them the summaries count',
        )


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
    ways: tuple[Way, ...] = ()  # all in which the documents can be read; the policy is that of the first
    timezone: str | None = None
    is_noisy: bool = False
    kinds: dict[str, LikelyKind] = field(default_factory=dict)  # see `likely_kinds`
    is_summaries: bool = False

    @property
    def asked(self) -> bool:
        """Returns whether documents can be read in several ways."""
        return len(self.ways) > 1

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
    hidden = _hidden(documents)
    if best is None or best[1].policy is None:
        reasons = [_reason_for_none(evidence, proposals)] if best is None else best[1].reasons
        return Guess(collection, reasons=[*reasons, *hidden])
    for text in hidden:
        best[1].notes.add_question("value_fields", text)
    return best[1]


def _hidden(documents: list[Document]) -> list[str]:
    """Returns a text about the fields that no policy can name, if there are any."""
    if not (names := nameless(documents)):
        return []
    what, them = ("the field", "It is") if len(names) == 1 else ("the fields", "They are")
    return [
        f'No policy can name {what} {listed(names)}: names can\'t have a dot, begin with "$", or be "*" or '
        f"empty. {them} archived with the documents, and in no summary. For readings, use other names"
    ]


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
    _note(trial, found.what, "sampled documents without overflow", found.notes)
    ways = tuple(replace(it, policy=trial.policy) for it in found.ways[:1])
    return replace(found, policy=trial.policy, left_out=trial.left_out, ways=ways)


def _proposals(evidence: Evidence) -> Iterable[Proposal]:
    of_samples = list(samples.propose(evidence))
    yield from of_samples
    in_arrays = list(arrays.propose(evidence))
    yield from in_arrays
    beside = {it.keys["sample_time_field"] for it in in_arrays}
    taken = beside.union(*(it.keys["value_fields"] for it in in_arrays))
    yield from slots.propose(evidence, taken | {it.keys["samples_field"] for it in of_samples})
    yield from readings.propose(evidence)


def _sampled(docs: Docs) -> Iterable[bytes]:
    step = max(1, docs.size // _MAX_BYTES)
    return [document for number, document in enumerate(docs) if number % step == 0]


def _try(name: str, collection: str, batch: Batch, proposal: Proposal) -> tuple[int, Guess] | None:
    """Returns how many numbers it reads, and the guess; None if too few documents fit."""
    found = tried({"name": name, "collection": collection, **proposal.keys}, proposal, batch)
    if not found or len(found[0][0].decoded.units) < _MIN_FIT * len(batch):
        return None
    if proposal.refusal is not None:
        return found[0][0].finite, Guess(collection, reasons=[proposal.refusal])
    found = undoubted(found)
    trial, _ = found[0]
    _note(trial, proposal.what, "sampled documents", proposal.notes)
    _note_mixed(trial, proposal.notes)
    _note_repeated(trial, proposal.notes)
    ways = tuple(
        _with_latest(_with_earliest(way, it, notes), it, notes)
        for (it, way), notes in zip(found, chain([proposal.notes], repeat(Notes())), strict=False)
    )
    made = Guess(
        collection,
        ways[0].policy,
        notes=proposal.notes,
        what=proposal.what,
        left_out=trial.left_out,
        ways=ways,
        timezone=proposal.timezone,
        is_noisy=is_noisy(trial.decoded.columns),
        kinds=likely_kinds(trial.decoded.columns, trial.policy),
    )
    return trial.finite, made


def _are_summaries(documents: list[Document]) -> bool:
    """Returns whether bucketwise wrote them."""
    names = {"_id", "start", "end", "count"}
    return bool(documents) and all(
        names <= set(it) and isinstance(it["_id"], dict) and set(it["_id"]) == {"series", "start"}
        for it in documents
    )


def _reason_for_none(evidence: Evidence, proposals: Sequence[Proposal]) -> str:
    has_times = bool(evidence.times) and evidence.times[0].form.unit != "objectid"
    if proposals and (has_times or not evidence.times):  # they may lie in arrays
        return "no field holds numbers that could be values"
    if has_times:
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


#: Types that the `_id` of a bucket may have. A query would take a regular expression for a pattern.
_REFERENCE_TYPES = (str, int, ObjectId, Binary)
#: Fields that are tried.
_MAX_FIELDS = 10


def references(fields: Fields) -> dict[str, list[Any]]:
    """Returns the fields that may refer to buckets, with what they hold, each once. Documents without
    anything that could hold samples refer to none."""
    if not fields.several:
        return {}
    found = {
        path: list({repr(it): it for it in held}.values())
        for path, held in fields.in_most().items()
        if path != "_id" and all(isinstance(it, _REFERENCE_TYPES) for it in held)
    }
    return dict(islice(found.items(), _MAX_FIELDS))


def overflows(
    collection: str, ref_field: str, extra: Fields, referred: Fields, others: Fields
) -> Iterator[Overflow]:
    """Yields possible overflows. `referred`: buckets that `extra` refers to; `others`: those that it may not
    refer to."""
    for flag in _flags(referred, others):
        for array in _most_first(extra):
            if array != ref_field:
                yield Overflow(
                    flag_field=flag, collection=collection, ref_field=ref_field, samples_field=array
                )


def _flags(referred: Fields, others: Fields) -> Sequence[str]:
    """Returns the fields that are true in all buckets that are referred to, and not in most others."""
    found = [
        path
        for path, held in referred.in_most().items()
        if all(it is True or it == 1 for it in held) and _is_rare(path, others)
    ]
    return sorted(found, key=lambda it: (not isinstance(referred.single[it][0], bool), not hints(it, FLAG)))


def _is_rare(path: str, others: Fields) -> bool:
    held = non_null(others.single.get(path, ()))
    return not others.documents or sum(map(bool, held)) < len(others.documents)


def _most_first(extra: Fields) -> list[str]:
    return sorted(extra.several, key=lambda it: len(non_null(extra.several[it])), reverse=True)
