"""The calendar, the bars and the years of the page, held against days counted one by one."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.jobs.audit.drawings import BAR_HEIGHT, KINDS, Row, Strip, bars, strip
from bucketwise.jobs.audit.page import by_year
from tests.jobs.page.reports import month_of, runs_of

STATES = ["live", "archived", "both", "online", "summarised", "expired", "gap"]
#: A leap year, so that each day of any year has a place in it.
LEAP = 2000


@st.composite
def calendars(draw: st.DrawFn) -> dict[date, str]:
    """Days that follow one another, in runs of states."""
    day = draw(st.dates(date(1999, 1, 1), date(2025, 12, 31)))
    found: dict[date, str] = {}
    for state, count in draw(st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 200)), min_size=1)):
        for _ in range(count):
            found[day] = state
            day += timedelta(days=1)
    return found


def columns(path: str) -> list[int]:
    """Those that a path of horizontal lines covers."""
    found: list[int] = []
    at = 0
    for move, by in re.findall(r"([Mmh])(-?\d+)", path):
        if move == "h":
            found += range(at, at + int(by))
        at = int(by) if move == "M" else at + int(by)
    return found


def column_of(day: date, shown: Strip) -> int:
    if shown.columns == 31:
        return day.day - 1
    return (day.replace(year=LEAP) - date(LEAP, 1, 1)).days


def row_of(day: date, shown: Strip) -> Row:
    (found,) = (it for it in shown.rows if it.label == day.isoformat()[: 7 if shown.columns == 31 else 4])
    return found


@given(calendars(), st.booleans())
def test_each_day_is_drawn_in_its_state_and_in_no_other(states: dict[date, str], is_brief: bool) -> None:
    shown = strip(runs_of(states), is_brief=is_brief)
    months = {(day.year, day.month) for day in states}
    assert shown.columns == (366 if len(months) > 12 else 31)
    drawn = {
        (row.label, column): state
        for row in shown.rows
        for state, path in row.lines
        for column in columns(path)
    }
    assert len(drawn) == sum(len(columns(path)) for row in shown.rows for _, path in row.lines)
    for day, state in states.items():
        found = drawn.pop((row_of(day, shown).label, column_of(day, shown)), "gap")
        assert found == state, day
    # What is left is the place of 29 February in years that have none.
    assert all(column == 59 and shown.columns == 366 for _, column in drawn)


@given(calendars(), st.booleans())
def test_all_that_is_told_under_the_pointer_is_so(states: dict[date, str], is_brief: bool) -> None:
    """Each day has one text, and the texts count all days."""
    shown = strip(runs_of(states), is_brief=is_brief)
    for row in shown.rows:
        covered = [column for mark in row.marks for column in columns(mark.path)]
        days = [day for day in states if row_of(day, shown) is row]
        assert len(covered) == len(set(covered))
        assert {column_of(day, shown) for day in days} <= set(covered)
        counts = Counter(states[day] for day in days)
        told = dict(re.findall(r"(\w+) (\d+)", row.title.partition(": ")[2]))
        assert {state: int(count) for state, count in told.items()} == counts
        if is_brief:
            texts = " ".join(mark.title.partition(": ")[2] for mark in row.marks)
            total: Counter[str] = Counter()
            for state, count in re.findall(r"(\w+) (\d+)", texts):
                total[state] += int(count)
            assert total == counts


def test_a_run_is_told_whole() -> None:
    first = date(2018, 6, 29)
    states = dict.fromkeys((first + timedelta(days=n) for n in range(4)), "archived")
    states[date(2018, 7, 3)] = "gap"
    shown = strip(runs_of(states), is_brief=False)
    assert [row.label for row in shown.rows] == ["2018-06", "2018-07"]
    told = "2018-06-29 to 2018-07-02, 4 days: archived, 20 readings"
    assert [mark.title for row in shown.rows for mark in row.marks] == [
        told,
        told,
        "2018-07-03: gap, 5 readings",
    ]
    assert [row.title for row in shown.rows] == [
        "2018-06: archived 2 days",
        "2018-07: archived 2, gap 1 days",
    ]


@given(calendars())
def test_the_labels_above_stand_where_they_belong(states: dict[date, str]) -> None:
    shown = strip(runs_of(states), is_brief=True)
    assert sum(tick.days for tick in shown.ticks) == shown.columns
    at = 0
    for tick in shown.ticks:
        if shown.columns == 31:
            assert tick.label == str(at + 1)
        else:
            assert tick.label == f"{date(LEAP, 1, 1) + timedelta(days=at):%b}"
        at += tick.days


volumes = st.dictionaries(
    st.tuples(st.integers(1999, 2030), st.integers(1, 12)),
    st.tuples(*[st.integers(0, 10**6)] * 4),
    min_size=1,
    max_size=40,
)


@given(volumes)
def test_bars_are_as_high_as_there_are_bytes(found: dict[tuple[int, int], tuple[int, ...]]) -> None:
    ordered = sorted(found.items())
    months = [
        month_of(f"{year}-{month:02}", **dict(zip(KINDS, counts, strict=True)))
        for (year, month), counts in ordered
    ]
    most = max(map(sum, found.values()))
    shown = bars(months)
    if shown is None:
        assert most == 0
        return
    assert shown.most == 1000 * most
    drawn = {
        (kind, (int(x) - 5) // 10): int(bottom) - int(top)
        for kind, path in shown.lines
        for x, bottom, top in re.findall(r"M(\d+) (\d+)V(\d+)", path)
    }
    (first_year, first_month), _ = ordered[0]
    for (year, month), counts in ordered:
        at = (year - first_year) * 12 + month - first_month
        for kind, count in zip(KINDS, counts, strict=True):
            assert abs(drawn.pop((kind, at), 0) - BAR_HEIGHT * count / most) <= 1
        assert at * 10 < shown.width
    assert not drawn


@given(volumes)
def test_years_are_the_sums_of_their_months(found: dict[tuple[int, int], tuple[int, ...]]) -> None:
    months = [
        month_of(f"{year}-{month:02}", **dict(zip(KINDS, counts, strict=True)))
        for (year, month), counts in sorted(found.items())
    ]
    years = by_year(months)
    assert [it["month"] for it in years] == sorted({str(year) for year, _ in found})
    for kind, count in zip(KINDS, map(sum, zip(*found.values(), strict=True)), strict=True):
        assert sum(_first(it[kind]) for it in years) == count
        assert sum(it[kind]["bytes"] for it in years) == 1000 * count


def _first(volume: dict[str, Any]) -> int:
    return int(next(iter(volume.values())))


def test_what_cannot_be_told_of_a_month_cannot_be_told_of_its_year() -> None:
    unknown: dict[str, Any] = month_of("2018-02", archived=3)
    unknown["archived"]["readings"] = None
    (year,) = by_year([month_of("2018-01", archived=2), unknown])
    assert year["archived"] == {"readings": None, "bytes": 5000}


def test_numbers_of_receipts_are_a_range() -> None:
    told = [
        {"month": "2018-01", "receipts": 2, "buckets": 10, "first": 1, "last": 2},
        {"month": "2018-03", "receipts": 1, "buckets": 5, "first": 3, "last": 3},
    ]
    assert by_year(told) == [{"month": "2018", "receipts": 3, "buckets": 15, "first": 1, "last": 3}]


def test_months_without_bytes_have_no_bars() -> None:
    assert bars([]) is None
    assert bars([month_of("2018-01")]) is None


@pytest.mark.parametrize("count", [12, 13])
def test_few_months_have_narrow_bars(count: int) -> None:
    shown = bars([month_of(f"{2018 + n // 12}-{n % 12 + 1:02}", live=1) for n in range(count)])
    assert shown is not None and shown.few == (count == 12)
