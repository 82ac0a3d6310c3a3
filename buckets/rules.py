"""The rules of a policy: which one a series is under, and queries for what is under some of them.

A rule compares the text of a value, as `--series` does. Where the rule of a series can't be known, as of one
that lacks a field, all that may hold are told: what is decided by them is decided by the longest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from bson.min_key import MinKey
from bson.regex import Regex
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, Series
from bucketwise.buckets.fields.selectors import candidates, series_text
from bucketwise.config.policies import Policy, Rule
from bucketwise.config.values import glob_pattern, is_literal

Document = dict[str, Any]
#: Earlier than every instant: nothing under such a rule is due.
NEVER = -(2**62)
#: Types whose text MongoDB writes as `series_text` does, and those that may have any text.
_LIKE_TEXT = ["int", "long", "objectId", "bool"]
_OTHERS = ["double", "decimal", "date", "binData", "object", "timestamp"]


class Due(NamedTuple):
    """A stretch of time, milliseconds, in which the rules that are due are the same. `also`: narrows a query
    to what may be under them; nothing where all are."""

    start: int
    end: int
    also: Document


class SeriesRules:
    """The rules of one policy, numbered from 0 in their order; the last number is the policy's own."""

    def __init__(self, policy: Policy) -> None:
        self.policies = policy.lives
        self._rules, self._names = policy.rules, policy.series_names
        self._defaults = policy.default_series
        #: Elements of an array may each match a part of a rule, so that nothing follows from its match.
        self._is_plain = not policy.sample_series
        self._sampled = policy.sample_series.keys()
        self._stored = policy.stored_series
        self._known: dict[tuple[Any, ...], tuple[int, ...]] = {}

    @property
    def own(self) -> int:
        """Returns the number of the policy's own rule, for all series that no other is for."""
        return len(self._rules)

    def text(self, number: int) -> str:
        """Returns the name of a rule for people; nothing for the policy's own."""
        return "" if number == self.own else f"rules.{number + 1} {self._rules[number].text}"

    def words(self) -> list[str]:
        """Returns what each rule says, but for the policy's own, as the policy file writes it."""
        return [f"{self.text(number)}: {rule.words}" for number, rule in enumerate(self._rules)]

    def scope(self, number: int) -> str:
        """Returns 8 hex digits that change whenever other series may come under a rule; nothing where there
        are no rules."""
        return self._scope(number + 1, is_own=number == self.own)

    def former_scopes(self, number: int) -> list[str]:
        """Returns the scopes that held all series of a rule, if the policy had some of its first rules alone
        before: its own, and those of all other series."""
        before = range(min(number, self.own - 1), -1, -1)
        return [self.scope(number), *(self._scope(count, is_own=True) for count in before)]

    def _scope(self, count: int, *, is_own: bool) -> str:
        """Returns the scope of the last of the first so many rules, or of all other series."""
        said = [sorted(it.match.items()) for it in self._rules[:count]]
        return hashlib.sha256(repr((said, is_own)).encode()).hexdigest()[:8] if said else ""

    def of(self, series: Series, names: Sequence[str] | None = None) -> tuple[int, ...]:
        """Returns the numbers of the rules that a series may be under: one, where that is known. `names`: of
        its values, where they are not those of the policy."""
        if not self._rules:
            return (0,)
        key = (names and tuple(names), *map(type, series), *map(series_text, series))
        if (found := self._known.get(key)) is None:
            values = dict(zip(self._names if names is None else names, series, strict=True))
            found = self._known[key] = tuple(self._may_hold(values))
        return found

    def _may_hold(self, values: Mapping[str, Any]) -> Iterator[int]:
        for number, rule in enumerate(self._rules):
            matched = _matches(rule, values)
            if matched is not False:
                yield number
            if matched:
                return
        yield self.own

    def longest(self, series: Series, lengths: Sequence[int], names: Sequence[str] | None = None) -> int:
        """Returns the smallest of the limits, one a rule, of the rules that a series may be under."""
        return min(lengths[number] for number in self.of(series, names))

    def limits_of(
        self, columns: Columns, limits: Sequence[int], names: Sequence[str] | None = None
    ) -> NDArray[np.int64]:
        """Returns for each bucket the smallest of the limits, one a rule, of all its series, (b,). A bucket
        whose series are not known has the smallest of all."""
        least = min(limits)
        if least == max(limits):
            return np.full(len(columns.lengths), least, dtype=np.int64)
        of_series = np.array([self.longest(it, limits, names) for it in columns.series], dtype=np.int64)
        if columns.reading_series is None:
            return of_series[columns.bucket_series]
        found = np.full(len(columns.lengths), least, dtype=np.int64)
        starts = columns.starts[columns.filled]
        if len(starts):
            found[columns.filled] = np.minimum.reduceat(of_series[columns.reading_series], starts)
        return found

    def governing(
        self, columns: Columns, limits: Sequence[int], names: Sequence[str] | None = None
    ) -> list[int]:
        """Returns for each bucket the number of the rule with the smallest limit, of those of all its
        series."""
        order = sorted(range(len(limits)), key=lambda number: (limits[number], number))
        ranks = [order.index(number) for number in range(len(limits))]
        return [order[rank] for rank in self.limits_of(columns, ranks, names).tolist()]

    def due(self, start: int, limits: Sequence[int], end: int | None = None) -> list[Due]:
        """Returns the stretches from `start` (milliseconds) to the limits, one a rule: what ends there may be
        due. They end with `end`."""
        found, at = list[Due](), start
        for limit in sorted(set(limits)):
            stop = limit if end is None else min(limit, end)
            if at < stop:
                numbers = {number for number, it in enumerate(limits) if it >= limit}
                found.append(Due(at, stop, self.query(numbers)))
                at = stop
        return found

    def query(self, numbers: Collection[int], paths: Mapping[str, str] | None = None) -> Document:
        """Returns a query that finds all that is under any of these rules, and little else. `paths`: where
        documents hold each series field; None: where buckets do."""
        if len(numbers) == len(self.policies):
            return {}
        fields = self._stored if paths is None else paths
        is_plain = self._is_plain or paths is not None  # a summary is of one series
        is_leading = True  # no rule before it is wanted
        ways, before = list[Document](), list[Document]()
        wanted = list[Document]()
        for number, rule in enumerate(self._rules):
            if number in numbers:
                may = (self._may(path, globs, name, is_plain) for name, path, globs in _of(rule, fields))
                wanted.append(_both(may))
                is_leading = False
                continue
            ways += _way(wanted, before)
            wanted = []
            in_samples = len(self._sampled & rule.match.keys())
            if is_plain or (is_leading and in_samples <= 1):  # then one such sample keeps the bucket
                before.append(_without(list(_of(rule, fields))))
        ways += _way([{}] if self.own in numbers else wanted, before)
        if not ways:
            return {"$nor": [{}]}
        # All documents meet it: without it, no index that begins with these fields is considered.
        indexed = [{path: {"$gte": MinKey()}} for path in fields.values()]
        return {"$and": [ways[0] if len(ways) == 1 else {"$or": ways}, *indexed]}

    def _may(self, path: str, globs: Sequence[str], name: str, is_plain: bool) -> Document:
        """Returns a query for values that globs match, or may match."""
        named = [value for it in globs if is_literal(it) for value in candidates(it) or [it]]
        default = self._defaults.get(name)
        may_lack = name not in self._defaults or matches(series_text(default), globs)
        found: list[Document] = [
            {path: {"$in": [*named, *map(_regex, _wild(globs)), *([None] if may_lack else [])]}}
        ]
        if any(not is_literal(it) or candidates(it) is None for it in globs):
            others = [*_OTHERS, *([] if is_plain else _LIKE_TEXT)]
            found.append({path: {"$type": others}})
            found += [_as_text(path, it) for it in _wild(globs)] if is_plain else []
        return found[0] if len(found) == 1 else {"$or": found}


def matches(text: str, globs: Sequence[str]) -> bool:
    """Returns whether any of the globs matches the text."""
    return any(re.match(glob_pattern(it), text, re.DOTALL) for it in globs)


def _matches(rule: Rule, values: Mapping[str, Any]) -> bool | None:
    """Returns whether a rule matches a series; None where that can't be known."""
    known = True
    for name, globs in rule.match.items():
        value = values.get(name)
        if value is None or isinstance(value, list):
            known = False
        elif not matches(series_text(value), globs):
            return False
    return True if known else None


def _of(rule: Rule, fields: Mapping[str, str]) -> Iterator[tuple[str, str, Sequence[str]]]:
    return ((name, fields[name], globs) for name, globs in rule.match.items())


def _both(parts: Iterator[Document]) -> Document:
    found = list(parts)
    return found[0] if len(found) == 1 else {"$and": found}


def _way(wanted: Sequence[Document], before: Sequence[Document]) -> list[Document]:
    """Returns the query for what meets any of these, and none of those before; none where nothing is
    wanted."""
    if not wanted:
        return []
    chosen = wanted[0] if len(wanted) == 1 else {"$or": list(wanted)}
    return [{"$and": [chosen, *before]} if before else chosen]


def _wild(globs: Sequence[str]) -> list[str]:
    return [it for it in globs if not is_literal(it)]


def _regex(glob: str) -> Regex[str]:
    return Regex(glob_pattern(glob), "s")


def _without(match: Sequence[tuple[str, str, Sequence[str]]]) -> Document:
    """Returns a query for what a rule does not match, and maybe some that it does. Of whole values of one
    field an index knows the bounds."""
    (_, path, globs), *others = match
    if not others and not _wild(globs):
        return {path: {"$nin": _values(globs)}}
    return {"$nor": [_both(_only_matching(path, globs) for _, path, globs in match)]}


def _values(globs: Sequence[str]) -> list[Any]:
    """Returns values that globs without wildcards match."""
    texts = [it for it in globs if is_literal(it)]
    whole = [int(it) for it in texts if it.isascii() and it.lstrip("-").isdecimal() and str(int(it)) == it]
    booleans = [value for value in (True, False) if series_text(value) in texts]
    return [*texts, *booleans, *(it for it in whole if -(2**63) <= it < 2**63)]


def _only_matching(path: str, globs: Sequence[str]) -> Document:
    """Returns a query that finds nothing but values that globs match; it may miss some of these."""
    found: list[Document] = [{path: {"$in": [*_values(globs), *map(_regex, _wild(globs))]}}]
    found += [_as_text(path, it) for it in _wild(globs)]
    return found[0] if len(found) == 1 else {"$or": found}


def _as_text(path: str, glob: str) -> Document:
    """Returns a query for numbers and other values that are no texts, by their text."""
    text = {"$convert": {"input": f"${path}", "to": "string", "onError": "", "onNull": ""}}
    matched = {"$regexMatch": {"input": text, "regex": glob_pattern(glob), "options": "s"}}
    return {path: {"$type": _LIKE_TEXT}, "$expr": matched}
