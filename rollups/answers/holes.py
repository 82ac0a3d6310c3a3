"""Finds holes: stretches longer than a policy's `max_hole` without a reading of a series, according to
its summaries."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import bson
from bson.datetime_ms import DatetimeMS
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.fields.times import as_date
from bucketwise.config.durations import format_duration
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import Span, aligned_levels
from bucketwise.rollups.calendar.windows import HOUR, LOWEST, span_ms, to_ms
from bucketwise.rollups.summaries import coverage, documents

Document = dict[str, Any]


class Hole(NamedTuple):
    """A span [start, end), milliseconds, without a reading of a series."""

    start: int
    end: int
    series: dict[str, Any]
    collection: str

    def message(self, policy: Policy) -> str:
        """Returns a sentence that describes the hole: its series, start, end, and the expected interval."""
        named = ", ".join(f"{name}={extended_json(_at(self.series, name))}" for name in policy.series_names)
        of = f"of {named} " if named else ""
        mark = " local time" if aligned_levels(policy)[0].local else "Z"
        start, end = (as_date(ms).isoformat().replace("+00:00", mark) for ms in (self.start, self.end))
        seconds = (self.end - self.start) / 1000
        expected = format_duration(policy.expected_interval)
        return f"no reading {of}from {start} to {end}, {seconds:g} s; one is expected every {expected}"


class _Covered(NamedTuple):
    """How far the summaries of a series have been read."""

    reached: int  # everything before it has been read
    end: int  # of the last window


def longest_holes(database: Database[Document], policy: Policy, at_most: int) -> tuple[list[Hole], int]:
    """Returns the longest holes, in the order of time, and how many more there are.

    Reads daily summaries where they are made, and hourly ones after the last day; if days are local, hourly
    ones alone. A hole may span windows, and windows without a summary are part of it. There is none before a
    series' first reading, or after its last window."""
    shortest = span_ms(policy.max_hole) if policy.max_hole is not None else 0
    longest: list[tuple[int, int, Hole]] = []
    count = 0
    for count, hole in enumerate(_holes(database, policy, shortest), start=1):
        ranked = (hole.end - hole.start, -count, hole)
        if len(longest) < at_most:
            heapq.heappush(longest, ranked)
        else:
            heapq.heappushpop(longest, ranked)
    found = sorted((hole for _, _, hole in longest), key=lambda hole: hole.start)
    return found, count - len(found)


def _holes(database: Database[Document], policy: Policy, shortest: int) -> Iterator[Hole]:
    interval = coverage.interval_of(policy)
    if interval is None:
        return
    covered: dict[bytes, _Covered] = {}
    collection = ""
    for collection, summary in _summaries(database, policy):
        series = summary["_id"]["series"]
        key = bson.encode(series, codec_options=documents.OPTIONS)
        window = to_ms(summary["start"]), to_ms(summary["end"])
        spans = _spans(summary, window, interval)
        reached, end = covered.get(key, _Covered(spans[0][0], window[1]))
        for start, stop in spans:
            if start - reached > shortest:
                yield Hole(reached, start, series, collection)
            reached = max(reached, stop)
        covered[key] = _Covered(reached, max(end, window[1]))
    for key, (reached, end) in covered.items():
        if end - reached > shortest:
            yield Hole(reached, end, bson.decode(key, documents.OPTIONS), collection)


def _spans(summary: Mapping[str, Any], window: Span, interval: int) -> list[Span]:
    """Returns the spans that hold readings. If they are not known, returns the whole window, so that no
    hole is reported."""
    try:
        runs = coverage.unpack(summary.get("coverage"), window[0], interval)
    except ValueError:  # made with other settings, and yet to be made anew
        return [window]
    return [
        (max(start, window[0]), min(end, window[1])) for start, end in coverage.spans(runs, interval)
    ] or [window]


def _summaries(database: Database[Document], policy: Policy) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each summary with the name of its collection, those of each series in the order of time."""
    after = LOWEST
    # Days first. Weeks and months do not contain each other: only where there is nothing finer.
    levels = aligned_levels(policy)
    for level in reversed([it for it in levels if not it.is_long] or levels[:1]):
        collection: Collection[Document] = database.get_collection(
            level.collection, codec_options=documents.OPTIONS
        )
        # An hour that reaches over the last day's end is in both.
        wanted = {"start": {"$gt": DatetimeMS(after - HOUR)}, "_id.series": {"$exists": True}}
        for summary in collection.find(wanted, {"start": 1, "end": 1, "coverage": 1}).sort("start", 1):
            after = max(after, to_ms(summary["end"]))
            yield level.collection, summary


def _at(series: Mapping[str, Any], name: str) -> Any:
    found: Any = series
    for part in name.split("."):
        found = found[part]
    return found
