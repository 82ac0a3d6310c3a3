"""Summaries on an even grid, against plain Python over the readings; what fills steps without readings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.config.errors import UsageError
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.answers import Question
from bucketwise.rollups.calendar.tiling import NOT_ROLLED_UP
from bucketwise.rollups.grids import (
    FILLINGS,
    Fill,
    GridAnswer,
    GridQuestion,
    Point,
    grid_steps,
    summarize_grid,
)
from tests.rollups.conftest import Bench

Document = dict[str, Any]
Plain = tuple[datetime, float]
FIRST = datetime(2021, 3, 27, tzinfo=UTC)  # the day before clocks change in Berlin
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=it) for it in (1, 60, 3600, 86_400))
NOW = FIRST + 5 * DAY
GAP = 3 * HOUR


def policy_of(zone: str = "UTC", **levels: str) -> Policy:
    further = [{"name": name, "collection": to} for name, to in levels.items() if name == "15m"]
    named = {name: to for name, to in levels.items() if name != "15m"} or {
        "hourly": "hourly",
        "daily": "daily",
    }
    return make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("s",),
        value_fields=("c", "m", "p", "t"),
        values={
            "c": {"kind": "counter", "max_gap": "3h"},
            "m": {"kind": "state", "max_gap": "3h"},
            "p": {"max_gap": "3h"},
            "t": {"time_weighted": "linear", "max_gap": "3h"},
        },
        rollup={**named, "levels": further, "timezone": zone, "percentiles": (50,)},
    )


def ticks(seed: int) -> list[Document]:
    """Two series of which hours have many readings, one or none, and longer holes; whole seconds."""
    chance, found = random.Random(seed), []
    for series in ("a", "b"):
        at, counter = FIRST - 2 * HOUR, 0
        while at < FIRST + 3 * DAY:
            counter = 0 if chance.random() < 0.1 else counter + chance.randrange(50)
            value = chance.randrange(-8, 9) / 4
            found.append(
                {"s": series, "d": at, "c": counter, "m": chance.randrange(3), "p": value, "t": value}
            )
            at += chance.choice((7 * SECOND, 20 * MINUTE, HOUR, 2 * HOUR + SECOND, 3 * HOUR, 4 * HOUR))
    return [{"_id": number, **it} for number, it in enumerate(found)]


def plain(found: Sequence[Document], series: str, name: str) -> list[Plain]:
    return sorted((it["d"], float(it[name])) for it in found if it["s"] == series)


def steps_between(readings: Sequence[Plain]) -> list[tuple[Plain, Plain]]:
    return [(one, other) for one, other in pairwise(readings) if other[0] - one[0] <= GAP]


def on_line(one: Plain, other: Plain, at: datetime) -> Fraction:
    share = Fraction((at - one[0]) // SECOND, (other[0] - one[0]) // SECOND)
    return Fraction(one[1]) + (Fraction(other[1]) - Fraction(one[1])) * share


def increase_of(readings: Sequence[Plain], start: datetime, end: datetime) -> tuple[float, float | None]:
    ended = [it for it in steps_between(readings) if start <= it[1][0] < end]
    total = sum(b[1] if b[1] < a[1] else b[1] - a[1] for a, b in ended)
    lasting = sum((b[0] - a[0]) / SECOND for a, b in ended)
    return total, total / lasting if lasting else None


def seconds_of(readings: Sequence[Plain], start: datetime, end: datetime) -> dict[str, float]:
    found: dict[str, float] = {}
    for one, other in steps_between(readings):
        lasting = (min(other[0], end) - max(one[0], start)) / SECOND
        if lasting > 0:
            key = str(int(one[1]))
            found[key] = found.get(key, 0.0) + lasting
    return found


def time_average(readings: Sequence[Plain], start: datetime, end: datetime) -> float | None:
    area, lasting = Fraction(0), Fraction(0)
    for one, other in steps_between(readings):
        low, high = max(one[0], start), min(other[0], end)
        if low < high:
            length = Fraction((high - low) // SECOND)
            area += (on_line(one, other, low) + on_line(one, other, high)) / 2 * length
            lasting += length
    return float(area / lasting) if lasting else None


def filled(readings: Sequence[Plain], start: datetime, end: datetime, fill: Fill) -> dict[str, float] | None:
    """The extremes, ends and average of a step without readings; None where nothing is known."""
    before = [it for it in readings if it[0] < start]
    after = [it for it in readings if it[0] >= end]
    if fill == "null" or not before:
        return None
    one = before[-1]
    if fill == "previous":
        return (
            dict.fromkeys(("min", "max", "avg", "first", "last"), one[1]) if start - one[0] <= GAP else None
        )
    if not after or after[0][0] - one[0] > GAP:
        return None
    ends = [float(on_line(one, after[0], at)) for at in (start, end)]
    mean = float((on_line(one, after[0], start) + on_line(one, after[0], end)) / 2)
    return {"min": min(ends), "max": max(ends), "avg": mean, "first": ends[0], "last": ends[1]}


def check_point(found: Sequence[Document], series: str, point: Point, fill: Fill) -> None:
    start, end = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=it) for it in point.span)
    values, within = (
        point.statistics["values"],
        [it for it in found if it["s"] == series and start <= it["d"] < end],
    )
    assert (point.statistics["count"], point.is_filled) == (len(within), not within)
    counter, state, smooth = (plain(found, series, name) for name in ("c", "m", "t"))
    total, rate = increase_of(counter, start, end)
    assert values["c"]["increase"] == total
    assert values["c"]["rate"] == (None if rate is None else pytest.approx(rate, rel=1e-12))
    if within:
        assert values["p"]["sum"] == sum(it["p"] for it in within)
        assert not any("filled" in it for it in values.values())
    if within or fill != "null":
        assert values["m"]["seconds"] == seconds_of(state, start, end) or (
            not within and filled(state, start, end, "linear") is None and values["m"]["seconds"] == {}
        )
        wanted = time_average(smooth, start, end)
        if within or filled(smooth, start, end, fill) is not None:
            assert values["t"]["time_avg"] == (
                None if wanted is None else pytest.approx(wanted, rel=1e-12, abs=1e-12)
            )
    if not within:
        wanted_values = filled(plain(found, series, "p"), start, end, fill)
        assert values["p"].get("filled", False) is (wanted_values is not None)
        for key in ("min", "max", "avg", "first", "last"):
            expected = wanted_values[key] if wanted_values else None
            assert values["p"][key] == (None if expected is None else pytest.approx(expected, abs=1e-12)), key


def answered(bench: Bench, policy: Policy, every: timedelta, fill: Fill | None, **more: Any) -> GridAnswer:
    question = Question(**({"since": FIRST, "until": FIRST + 3 * DAY} | more))
    return summarize_grid(bench.database, policy, GridQuestion(question, every, fill))


@pytest.mark.parametrize("every", [HOUR, 2 * HOUR, 5 * HOUR, DAY], ids=str)
@pytest.mark.parametrize("fill", FILLINGS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(it, marks=pytest.mark.proof) for it in range(2, 6))])
def test_each_step_is_what_its_readings_give(bench: Bench, every: timedelta, fill: Fill, seed: int) -> None:
    policy, found = policy_of(), ticks(seed)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    until = FIRST + (3 * DAY // every) * every
    answer = answered(bench, policy, every, fill, until=until)
    assert [series for series, _ in answer.series] == [("a",), ("b",)]
    assert answer.missing == []
    for (series,), points in answer.series:
        assert len(points) == (until - FIRST) // every
        for point in points:
            check_point(found, series, point, fill)


def test_days_follow_the_calendar_and_their_steps_the_clock(bench: Bench) -> None:
    policy, found = policy_of("Europe/Berlin"), ticks(7)
    bench.database["ticks"].insert_many(found)
    berlin = ZoneInfo("Europe/Berlin")
    since, until = (datetime(2021, 3, day, tzinfo=berlin) for day in (27, 30))
    for level in (policy, policy_of("Europe/Berlin", daily="daily")):
        bench.roll_up(level, NOW)
        answer = answered(bench, level, DAY, "previous", since=since, until=until)
        assert answer.tiling.windows("daily") == 3
        assert [(end - start) / 3_600_000 for start, end in answer.steps] == [24, 23, 24]
        for (series,), points in answer.series:
            for point in points:
                check_point(found, series, point, "previous")
    with pytest.raises(UsageError, match="end there, but at 2021-03-29T22:00:00Z"):
        answered(bench, policy, DAY, None, since=since, until=FIRST + 2 * DAY)


def test_a_series_without_readings_in_the_range(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(
        [
            {"_id": 1, "s": "before", "d": FIRST - HOUR, "p": 1.5},
            {"_id": 2, "s": "long before", "d": FIRST - 4 * HOUR, "p": 2.5},
            {"_id": 3, "s": "behind", "d": FIRST + 5 * HOUR, "p": 3.5},
            {"_id": 4, "s": "around", "d": FIRST - HOUR, "p": 0.0},
            {"_id": 5, "s": "around", "d": FIRST + 2 * HOUR, "p": 6.0},
        ]
    )
    bench.roll_up(policy, NOW)
    shown: dict[Fill | None, dict[str, list[float | None]]] = {}
    for fill in (None, "null", "previous", "linear"):
        answer = answered(bench, policy, HOUR, fill, until=FIRST + 2 * HOUR)
        shown[fill] = {
            series[0]: [it.statistics["values"]["p"]["avg"] for it in points]
            for series, points in answer.series
        }
    assert shown[None] == shown["null"] == {}
    assert shown["previous"]["before"] == [1.5, 1.5]
    assert shown["previous"]["around"] == [0.0, 0.0]
    assert set(shown["previous"].get("long before", [None])) == {None}
    assert shown["linear"]["around"] == pytest.approx([3.0, 5.0])
    assert set(shown["linear"]["before"]) == {None}
    late = answered(
        bench, policy, HOUR, "previous", since=FIRST + HOUR, until=FIRST + 4 * HOUR, series={"s": "before"}
    )
    assert [it.statistics["values"]["p"]["last"] for it in late.series[0][1]] == [1.5, 1.5, None]


def test_all_series_together(bench: Bench) -> None:
    policy, found = policy_of(), ticks(3)
    bench.database["ticks"].insert_many(found)
    bench.roll_up(policy, NOW)
    answer = answered(bench, policy, 6 * HOUR, "null", by_series=False)
    ((name, points),) = answer.series
    assert name == ()
    for point in points:
        start, end = (FIRST + timedelta(milliseconds=it - answer.steps[0][0]) for it in point.span)
        total = sum(increase_of(plain(found, it, "c"), start, end)[0] for it in ("a", "b"))
        assert point.statistics["values"]["c"]["increase"] == total
    with pytest.raises(UsageError, match="leave out --by none"):
        answered(bench, policy, 6 * HOUR, "previous", by_series=False)


def test_steps_that_summaries_dont_cover_are_missing(bench: Bench) -> None:
    policy = policy_of()
    bench.database["ticks"].insert_many(ticks(4))
    bench.roll_up(policy, FIRST + 30 * HOUR + 15 * MINUTE)
    answer = answered(bench, policy, 4 * HOUR, "previous")
    (gap,) = answer.missing
    assert (gap.start, gap.reason) == (answer.steps[0][0] + 30 * 3_600_000, NOT_ROLLED_UP)
    assert {len(points) for _, points in answer.series} == {7}, "of 28 hours"


def test_the_finest_level_is_named() -> None:
    span = (0, 86_400_000)
    cases = [
        (policy_of(), 15 * MINUTE, "--every 15m: the finest level that policy ticks keeps is hourly"),
        (policy_of(), 90 * MINUTE, "no multiple of its windows"),
        (policy_of(daily="d"), HOUR, "is daily"),
        (policy_of(**{"15m": "q", "daily": "d"}), 10 * MINUTE, "is 15m"),
    ]
    for policy, every, message in cases:
        with pytest.raises(UsageError, match=message):
            grid_steps(policy, span, every)
    assert len(grid_steps(policy_of(**{"15m": "q"}), span, 45 * MINUTE)) == 32
    with pytest.raises(UsageError, match=r"no window begins there.*00:00:00Z and 1970-01-01T01:00:00Z"):
        grid_steps(policy_of(), (60_000, 86_400_000), HOUR)
    with pytest.raises(UsageError, match="more than 100,000 such steps"):
        grid_steps(policy_of(), (0, 100_001 * 3_600_000), HOUR)


known = st.one_of(st.none(), st.tuples(st.integers(0, 100), st.floats(-1e6, 1e6)))


@given(known, st.integers(1, 50), st.integers(1, 50), st.integers(0, 200), st.floats(-1e6, 1e6))
def test_what_fills_agrees_with_itself(
    before: tuple[int, float] | None, ahead: int, width: int, gap: int, value: float
) -> None:
    """A span has the values of its ends, and nothing is known further away than the gap."""
    start = ahead + (before[0] if before else 0)
    span, after = (start, start + width), (start + width + 1, value)
    for filling in FILLINGS.values():
        found = filling.over(span, before, after, gap)
        at_start = filling.value(span[0], before, after, gap)
        if found is None:
            assert at_start is None
            continue
        assert before is not None
        assert found["first"] == at_start
        assert found["min"] <= found["avg"] <= found["max"] or found["avg"] == pytest.approx(found["min"])
        assert span[0] - before[0] <= gap
