"""What a tombstone means at an instant, and when what is under it goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.expiring.held import known_longest
from bucketwise.archivers.expiring.rule import RetentionRule, RetentionRules, lifted
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.policies import Policy, Retain, Rule, RuleRetain
from tests.archivers.builders import reading

Document = dict[str, Any]
DAY, MS = timedelta(days=1), timedelta(milliseconds=1)
NOW = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)
#: Archived a month after they were taken, kept for a hundred days, gone a week after they got a tombstone.
RULE = RetentionRule(100 * DAY, 7 * DAY, NOW, 30 * DAY)
STANDING = {**RULE.tombstone, "receipt": 5}
LIFTED = {**lifted(NOW), "receipt": 6}


EARLIER = {**replace(RULE, now=NOW - 3 * DAY).tombstone, "receipt": 4}


def at(now: datetime) -> RetentionRule:
    return replace(RULE, now=now)


def test_a_tombstone_stands_until_its_grace_is_over() -> None:
    assert STANDING["due"] == NOW + 7 * DAY
    assert at(NOW).stage(None) == "none"
    assert [at(NOW + it).stage(STANDING) for it in (0 * DAY, 7 * DAY - MS, 7 * DAY, 99 * DAY)] == [
        "standing", "standing", "due", "due",
    ]  # fmt: skip


def test_one_of_another_length_or_rule_or_without_a_receipt_does_not_count() -> None:
    late = NOW + 8 * DAY
    for other in (replace(RULE, keep=101 * DAY), replace(RULE, scope="0123abcd")):
        assert replace(other, now=late).stage(STANDING) == "none"
        assert replace(other, now=late).stage({**other.tombstone, "receipt": 5}) == "due"
    assert at(late).stage(RULE.tombstone) == "none"


def test_what_was_lifted_stays_lifted_for_thirty_days() -> None:
    assert [at(NOW + it).stage(LIFTED) for it in (0 * DAY, 30 * DAY - MS, 30 * DAY)] == [
        "lifted", "lifted", "none",
    ]  # fmt: skip


def test_what_is_past_ends_with_a_day_and_has_stayed_as_long_as_others() -> None:
    assert RULE.end == as_ms(datetime(2025, 11, 21, tzinfo=UTC))
    assert RULE.archived_by == NOW - 70 * DAY
    assert replace(RULE, after=200 * DAY).archived_by == NOW


@pytest.mark.parametrize(
    ("tombstone", "archived", "expected"),
    [
        (None, NOW - 400 * DAY, None),
        (LIFTED, NOW - 400 * DAY, None),
        (RULE.tombstone, NOW - 400 * DAY, None),
        (STANDING, NOW - 400 * DAY, NOW + 7 * DAY),
        (STANDING, NOW - 60 * DAY, NOW + 10 * DAY),
        (STANDING, None, NOW + 70 * DAY),
    ],
)
def test_what_is_under_one_goes_when_it_is_due_and_has_stayed(
    tombstone: Document | None, archived: datetime | None, expected: datetime | None
) -> None:
    assert RULE.due(tombstone, archived) == expected


@pytest.mark.parametrize(
    ("last", "archived", "tombstone", "begins"),
    [
        (NOW - 400 * DAY, NOW - 370 * DAY, None, NOW),
        (NOW - 90 * DAY, NOW - 60 * DAY, None, datetime(2026, 3, 12, tzinfo=UTC)),
        (NOW - 400 * DAY, NOW - 60 * DAY, None, NOW + 10 * DAY),
        (NOW - 400 * DAY, None, None, NOW + 70 * DAY),
        (NOW - 400 * DAY, NOW - 370 * DAY, LIFTED, NOW + 30 * DAY),
        (NOW - 400 * DAY, NOW - 370 * DAY, STANDING, NOW),
        (NOW - 400 * DAY, NOW - 370 * DAY, EARLIER, NOW - 3 * DAY),
        (NOW - 400 * DAY, NOW - 370 * DAY, RULE.tombstone, NOW),  # no receipt tells of it
        (NOW - 400 * DAY, NOW - 370 * DAY, {**lifted(NOW - 31 * DAY), "receipt": 6}, NOW),
    ],
)
def test_without_one_it_goes_a_grace_after_it_may_get_one(
    last: datetime, archived: datetime | None, tombstone: Document | None, begins: datetime
) -> None:
    assert RULE.expires_at(as_ms(last), archived, tombstone) == begins + 7 * DAY


def policy(**keeps: int) -> Policy:
    """With a rule a symbol that says how many days its readings are kept, 0: forever; the others for a
    hundred."""
    rules = tuple(
        Rule(match={"symbol": (symbol,)}, retain=RuleRetain(archive=it * DAY if it else None))
        for symbol, it in keeps.items()
    )
    return reading().policy.model_copy(update={"retain": Retain(archive=100 * DAY), "rules": rules})


def test_the_rule_that_keeps_longest_holds_series_of_all_shorter_ones() -> None:
    rules = RetentionRules(policy(A=50, B=400), NOW)
    assert [it and it.keep // DAY for it in rules.rules] == [50, 400, 100]
    assert not rules.is_single
    assert [rules.longest(it) for it in ({0, 1, 2}, {0, 2}, {0})] == [1, 2, 0]
    assert [rules.up_to(it) for it in (0, 1, 2)] == [{0}, {0, 1, 2}, {0, 2}]
    assert RetentionRules(policy(), NOW).is_single


def test_nothing_keeps_longer_than_forever() -> None:
    rules = RetentionRules(policy(A=0), NOW)
    assert rules.rules[0] is None
    assert (rules.longest({0, 1}), rules.up_to(0), rules.up_to(1)) == (0, {0, 1}, {1})
    assert rules.digest == RetentionRules(policy(A=0), NOW + DAY).digest
    assert rules.digest != RetentionRules(policy(A=1), NOW).digest


def test_a_policy_without_an_end_has_no_rule() -> None:
    """What it archives at once has to stay for as long as it keeps; without an archive, none is taken off."""
    plain = reading().policy
    for retain in (None, Retain(hourly=DAY)):
        assert RetentionRule.of(plain.model_copy(update={"retain": retain}), NOW) is None
    ending = plain.model_copy(update={"retain": Retain(archive=100 * DAY)})
    assert plain.archive is not None
    at_once = plain.archive.model_copy(update={"after": None})
    found = [
        RetentionRule.of(ending.model_copy(update={"archive": it}), NOW)
        for it in (plain.archive, at_once, None)
    ]
    assert [it and it.stay for it in found] == [70 * DAY, 100 * DAY, 100 * DAY]


def test_of_equally_long_ones_the_first_is_the_longest() -> None:
    rules = RetentionRules(policy(A=100), NOW)
    assert (rules.longest({0, 1}), rules.up_to(0)) == (0, {0, 1})


def test_a_receipt_tells_the_longest_rule_as_long_as_the_rules_are_the_same() -> None:
    rules, others = RetentionRules(policy(A=50), NOW), RetentionRules(policy(A=51), NOW)
    assert rules.digest != others.digest
    receipt = {"rules": {"of": rules.digest, "longest": 0}}
    assert [known_longest(it, rules) for it in (receipt, {}, {"rules": None})] == [0, None, None]
    assert known_longest(receipt, others) is None
    assert [known_longest(it, RetentionRules(policy(), NOW)) for it in (receipt, {})] == [0, 0]


def test_tombstones_of_rules_that_are_no_more_are_void() -> None:
    rules = RetentionRules(policy(A=50), NOW)
    said = rules.void["tombstone.keep"]["$nin"]
    assert said == [it.said for it in rules.rules if it is not None]
    assert len(set(said)) == 2
    assert all(it.startswith(days) for it, days in zip(said, ("50d, rule ", "100d, rule "), strict=True))
