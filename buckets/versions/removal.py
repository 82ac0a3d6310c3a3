"""Takes the samples of one series out of buckets that hold several.

The rest of a bucket stays as it is, to the bit, but for its count and sums where these told the truth. What a
bucket becomes depends on its own bytes alone, so that copies of it stay equal, wherever they lie.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs, as_queried
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, elements, first_at
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.fields.values import NUMBERS
from bucketwise.buckets.layouts.layout import Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.samples import SamplesModel
from bucketwise.buckets.models.series import is_of_series, series_text_at
from bucketwise.buckets.models.shape import COUNT_TYPES, split
from bucketwise.buckets.versions.readings import BucketReadings, Typed, array_of, number
from bucketwise.config.models import SamplesPolicy
from bucketwise.config.policies import Policy

_LENGTH = struct.Struct("<i")
#: A writer's sum may differ from ours by rounding.
_SUM_TOLERANCE = 1e-9


class Rest(NamedTuple):
    """The n buckets without the samples. `removed` and `left`: how many samples, (n,). `untimed`: of
    which samples of the series have a time that can't be read, though a range was asked for, (n,)."""

    batch: Batch
    removed: NDArray[np.int64]
    left: NDArray[np.int64]
    untimed: NDArray[np.bool_]


#: Before and after.
Counts = tuple[int, int]


class _Documents(NamedTuple):
    """The documents of one bucket, and how many samples there were and are: in its own document, and with its
    overflow."""

    main: bytes
    extra: list[bytes]
    own: Counts
    whole: Counts
    is_untimed: bool = False


@dataclass(frozen=True)
class SampleRemoval:
    """The samples of one series in a range, as they lie in buckets whose samples tell their series."""

    policy: Policy
    selector: Selector
    within: TimeRange

    def rest(self, batch: Batch) -> Rest:
        """Returns what buckets are without the samples, broken or not. Those that are `untimed` stay as they
        are."""
        found = [self._rest(batch.slice(i, i + 1)) for i in range(len(batch))]
        counts = np.array([it.whole for it in found], dtype=np.int64).reshape(-1, 2)
        changed = np.flatnonzero(counts[:, 0] > counts[:, 1]).tolist()
        mains, extra = [it.main for it in found], [it for one in found for it in one.extra]
        for i in changed:
            mains[i] = self._with_count(mains[i], found[i])
        left = Batch(Docs.of(mains), Docs.of(extra), batch.owner)
        if changed and self._model.sums:
            for i, main in zip(
                changed, self._with_sums(batch.take(changed), left.take(changed)), strict=True
            ):
                mains[i] = main
            left = Batch(Docs.of(mains), left.extra, batch.owner)
        return Rest(
            left,
            counts[:, 0] - counts[:, 1],
            counts[:, 1],
            np.array([it.is_untimed for it in found], dtype=np.bool_),
        )

    @cached_property
    def _model(self) -> SamplesModel:
        model = model_of(self.policy)
        assert isinstance(model, SamplesModel)  # no others have series in samples
        return model

    def time_of(self, sample: Typed, start: int | None) -> int | None:
        """Returns the time of a sample in milliseconds; None where it can't be read. `start`: of its
        bucket."""
        return self._model.sample_ms(as_queried(sample), start)

    def _rest(self, bucket: Batch) -> _Documents:
        main, extra = bucket.main[0], list(bucket.extra)
        if not is_of_series(self.policy, main, self.selector):
            return _Documents(main, extra, own=(0, 0), whole=(0, 0))
        asked = _Asked(self, self._start(main))
        own = asked.without(main, self._model.array)
        more = [asked.without(it, self._overflow_array) for it in extra]
        before, after = (sum(column) for column in zip(own[1], *(counts for _, counts in more), strict=True))
        if asked.is_untimed:
            return _Documents(main, extra, (own[1][0],) * 2, (before, before), is_untimed=True)
        return _Documents(own[0], [it for it, _ in more], own[1], (before, after))

    def _start(self, main: bytes) -> int | None:
        """Returns the start of a bucket, which the times of its samples may count from."""
        field = self.policy.start_field if isinstance(self.policy, SamplesPolicy) else None
        return self._model.own_form.milliseconds(as_queried(first_at(main, split(field)))) if field else None

    @cached_property
    def _overflow_array(self) -> Path:
        assert self.policy.overflow is not None  # which there is a document of
        return split(self.policy.overflow.samples_field)

    def _with_count(self, main: bytes, found: _Documents) -> bytes:
        """Returns a bucket's own document with the count of what is left, where it told what there was."""
        path = split(self._model.count_field or "")
        stated = first_at(main, path)
        if stated[:1] and stated[0] in COUNT_TYPES:
            for before, after in (found.own, found.whole):
                if as_queried(stated) == before:
                    return with_value(main, path, number(stated[0], float(after)))
        return main

    def _with_sums(self, before: Batch, after: Batch) -> Iterator[bytes]:
        """Yields the own document of each bucket with the sums of what is left, where these told the truth of
        what there was. A sum may include NaN and infinities, or leave them out."""
        readings = [BucketReadings(self.policy, it) for it in (before, after)]
        for i, main in enumerate(after.main):
            for name, field in self._model.sums.items():
                if any(it.fault(i) is not None for it in readings):
                    continue
                stated = first_at(main, split(field))
                for is_own, is_finite in itertools.product((True, False), repeat=2):
                    old, new = (it.sum(i, name, is_own=is_own, is_finite=is_finite) for it in readings)
                    if is_stated(stated, old):
                        main = main if old == new else with_value(main, split(field), number(stated[0], new))
                        break
            yield main


class _Asked:
    """The samples of one bucket that are asked for. `start`: of the bucket, in milliseconds."""

    def __init__(self, removal: SampleRemoval, start: int | None) -> None:
        policy = removal.policy
        inside = policy.sample_series.items()
        self._removal, self._start = removal, start
        self._fields = [(name, split(path)) for name, path in inside if name in removal.selector]
        self._known: dict[tuple[Typed, ...], bool] = {}
        self.is_untimed = False

    def without(self, document: bytes, array: Path) -> tuple[bytes, Counts]:
        """Returns a document without the samples, and how many were in its array before and after."""
        held = first_at(document, array)
        if held[:1] != bytes([ARRAY]):
            return document, (0, 0)
        body = held[1:]
        there = [body[at : at + 1] + body[value:end] for at, value, end in elements(body)]
        left = [it for it in there if not (self._is_of_series(it) and self._is_in_range(it))]
        if len(left) < len(there):
            document = with_value(document, array, held[:1] + array_of(left))
        return document, (len(there), len(left))

    def _is_of_series(self, sample: Typed) -> bool:
        if sample[0] != DOCUMENT:
            return not self._fields
        values = tuple(first_at(sample[1:], path) for _, path in self._fields)
        if values not in self._known:
            policy, selector = self._removal.policy, self._removal.selector
            named = zip(self._fields, values, strict=True)
            texts = ((name, series_text_at(policy, name, raw)) for (name, _), raw in named)
            self._known[values] = all(selector[name] == text for name, text in texts)
        return self._known[values]

    def _is_in_range(self, sample: Typed) -> bool:
        within = self._removal.within
        if not within.is_bounded:
            return True
        at = self._removal.time_of(sample, self._start)
        self.is_untimed |= at is None
        return at is not None and within.start_ms <= at < within.end_ms


def with_value(document: bytes, path: Path, typed: Typed) -> bytes:
    """Returns a document with another value at a path, where `first_at` finds one."""
    name = path[0].encode() + b"\0"
    for start, value, end in elements(document):
        if document[start + 1 : value] == name:
            if len(path) > 1:
                typed = document[start : start + 1] + with_value(document[value:end], path[1:], typed)
            body = document[4:start] + typed[:1] + name + typed[1:] + document[end:]
            return _LENGTH.pack(len(body) + 4) + body
    return document


def is_stated(typed: Typed, total: float) -> bool:
    """Returns whether a number of a document, with its type, is this sum, but for rounding."""
    if not typed or typed[0] not in NUMBERS:
        return False
    stated = float(str(as_queried(typed)))
    if math.isnan(stated) or math.isnan(total):
        return math.isnan(stated) and math.isnan(total)
    return math.isclose(stated, total, rel_tol=_SUM_TOLERANCE, abs_tol=_SUM_TOLERANCE)
