"""The request of an erasure, and which buckets it means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, check_selector, selected
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import is_of_series
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy

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


class Selected(NamedTuple):
    """Indices of a batch: of buckets that go, and of those that hold something beyond the range as well, or
    whose time can't be read."""

    erased: NDArray[np.int64]
    across: NDArray[np.int64]


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

    def sort(self, batch: Batch) -> Selected:
        """Returns which buckets of a batch go: those of the series that lie in the range, broken or not."""
        found = sorted(self._spans(batch))
        start, end = self.within.start_ms, self.within.end_ms
        erased = [i for i, first, stop in found if start <= first and stop <= end]
        touching = [i for i, first, stop in found if first < end and stop > start]
        across = np.setdiff1d(touching, erased).astype(np.int64)
        return Selected(np.array(erased, dtype=np.int64), across)

    def _spans(self, batch: Batch) -> Iterator[tuple[int, int, int]]:
        """Yields the buckets of the series, each with [start, end) of what it holds. Where that can't be read
        it is all of time."""
        decoded = decode(batch, self.policy)
        columns, spans = decoded.columns, decoded.spans()
        is_asked = selected(columns.series, self.policy, self.series)
        for place in np.flatnonzero(columns.holds(is_asked)).tolist() if len(is_asked) else ():
            first, last = spans[place].tolist()
            yield int(decoded.units[place]), first, last + 1
        ever = TimeRange()
        for i in np.setdiff1d(np.arange(len(batch)), decoded.units).tolist():
            if is_of_series(self.policy, batch.main[i], self.series):
                span = model_of(self.policy).covered_span(batch.main[i])
                yield (i, *(span or (ever.start_ms, ever.end_ms)))


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
    if policy.sample_series:
        fields = ", ".join(policy.sample_series)
        raise UsageError(
            f"policy {name}: its buckets hold samples of several series ({fields}), and a bucket is erased "
            "whole or not at all. Nothing was changed"
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
