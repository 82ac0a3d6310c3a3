"""What is recorded of summaries, apart from MongoDB: how many there are, and what their tombstones mean."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bucketwise.rollups.calendar.windows import span_ms
from bucketwise.rollups.standing import (
    LIFTED_FOR,
    NEVER,
    Retention,
    SummaryCount,
    Tombstone,
    Tombstones,
    month_of,
    span_of,
)

DAY = 86_400_000
NOW = 20_000 * DAY
#: Kept for a hundred days, gone a week after they got a tombstone.
RULE = Retention(timedelta(days=100), timedelta(days=7), NOW, NOW - 100 * DAY)
AT_ONCE = replace(RULE, grace=timedelta(0))


def later(days: int, rule: Retention = RULE, ms: int = 0) -> Retention:
    """The rule so many days later."""
    return replace(rule, now=rule.now + days * DAY + ms, past=rule.past + days * DAY + ms)


def placed(*days: int) -> Tombstones:
    """What runs have placed, so many days after the first."""
    return Tombstones(tuple(Tombstone(it.past, it.now, it.text) for it in map(later, days)))


@pytest.mark.parametrize("month", ["2018-01", "2018-11", "2018-12"])
def test_a_month_spans_the_instants_that_are_of_it(month: str) -> None:
    start, end = span_of(month)
    assert [month_of(it) == month for it in (start - 1, start, end - 1, end)] == [False, True, True, False]


def test_nothing_is_missing_where_the_estimate_is_as_it_was() -> None:
    count = SummaryCount({"2018-06": 5, "2018-07": 7}, beside=2)
    assert [count.fits(it) for it in (13, 14, 15)] == [False, True, False]
    assert not replace(count, wanted={"2018-06": 6}).fits(14)
    assert count.missing({"2018-06": 5, "2018-07": 7}) == {}
    assert count.missing({"2018-06": 3, "2018-07": 9, "2018-08": 1}) == {"2018-06": 2}


def test_what_no_run_has_made_again_yet_is_missing_still() -> None:
    count = SummaryCount({"2018-06": 5}, {"2018-06": 8, "2018-05": 2})
    assert count.missing({"2018-06": 5}) == {"2018-06": 3, "2018-05": 2}
    assert replace(count, wanted={"2018-06": 4}).missing({"2018-06": 4}) == {"2018-06": 1}


def test_what_came_from_elsewhere_is_lost_no_more() -> None:
    count = SummaryCount({"2018-06": 5, "2018-07": 5}, lost={"2018-06": 3, "2018-07": 1, "2018-08": 1})
    found = count.recounted({"2018-06": 7, "2018-07": 4, "2018-08": 1}, 14)
    assert found == SummaryCount(
        {"2018-06": 7, "2018-07": 4, "2018-08": 1}, {"2018-07": 5}, {"2018-06": 1, "2018-07": 1}, 2
    )


def test_what_no_reading_gives_again_is_lost() -> None:
    count = SummaryCount(
        {"2018-06": 5, "2018-07": 7}, {"2018-06": 6, "2018-07": 7, "2018-08": 2}, {"2018-06": 1}
    )
    assert count.settled() == replace(count, wanted={}, lost={"2018-06": 2, "2018-08": 2})
    assert replace(count, lost={"2018-06": 0, "2018-07": -1, "2018-08": 1}).legible().lost == {"2018-08": 1}


def test_what_is_under_a_tombstone_goes_when_that_has_stood_for_its_grace() -> None:
    both = placed(0, 1)
    assert [both.removable(later(6, ms=it)) for it in (DAY - 1, DAY)] == [NEVER, RULE.past]
    assert both.removable(later(8)) == RULE.past + DAY
    assert both.removable(later(99)) == RULE.past + DAY
    assert (both.covered(later(8)), Tombstones().covered(RULE)) == (RULE.past + DAY, NEVER)
    assert both.covered(RULE) == RULE.past  # no more than is past its time


def test_without_a_grace_all_goes_that_is_past_its_time() -> None:
    assert Tombstones().removable(AT_ONCE) == RULE.past
    assert Tombstones().removable(RULE) == NEVER


@pytest.mark.parametrize("other", [replace(RULE, keep=timedelta(days=99)), replace(RULE, scope="0123abcd")])
def test_a_tombstone_of_another_length_or_rule_does_not_count(other: Retention) -> None:
    both = placed(0)
    assert (both.removable(later(9, other)), both.covered(later(9, other))) == (NEVER, NEVER)
    assert both.after_run([later(1, other)], NOW + DAY).placed == (
        Tombstone(later(1, other).past, NOW + DAY, other.text),
    )


def test_a_lift_keeps_what_ends_later_for_thirty_days_and_a_grace() -> None:
    since, days = RULE.past - 5 * DAY, LIFTED_FOR.days
    lifted = placed(0).lifted(since, NOW)
    assert lifted.removable(later(7)) == since + 1
    for rule, grace in ((RULE, 7), (AT_ONCE, 0)):
        edge = later(days + grace, rule)
        assert lifted.removable(later(0, edge, -1)) == since + 1
        assert lifted.removable(edge) == (edge.past if rule is AT_ONCE else RULE.past)
    assert [lifted.is_lifted(it, NOW) for it in (since - 1, since, since + 1)] == [False, True, True]
    ends = NOW + span_ms(LIFTED_FOR)
    assert [lifted.is_lifted(since, it) for it in (ends - 1, ends)] == [True, False]
    for now, stays in ((ends + 7 * DAY - 1, True), (ends + 7 * DAY, False)):
        assert bool(lifted.after_run([AT_ONCE, RULE], now).lifts) == stays
    assert bool(lifted.after_run([], ends).lifts) is False


def test_a_run_places_one_a_day_and_forgets_what_a_later_one_covers() -> None:
    def runs(known: Tombstones, rule: Retention) -> list[int]:
        return [(it.at - NOW) // DAY for it in known.after_run([rule], rule.now).placed]

    assert runs(Tombstones(), RULE) == [0]
    assert runs(placed(0), later(0, ms=span_ms(timedelta(hours=21)) - 1)) == [0]
    assert runs(placed(0), later(0, ms=span_ms(timedelta(hours=21)))) == [0, 0]
    assert runs(placed(0, 1, 2), later(7)) == [0, 1, 2, 7]
    assert runs(placed(0, 1, 2), later(8)) == [1, 2, 8]
    assert runs(placed(0, 1, 2), later(30)) == [2, 30]
    assert runs(placed(0, 1, 2), later(1)) == [0, 1]  # none of a clock that went ahead
    assert runs(placed(0), later(9, AT_ONCE)) == [0]
    long = replace(RULE, grace=timedelta(days=80))
    assert runs(placed(0), later(0, long, DAY - 1)) == [0]
    assert runs(placed(0), later(1, long)) == [0, 1]
