"""Rules of a policy, against plain Python over all documents: which series are under which, what is due."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
from bson.objectid import ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.rules import NEVER, SeriesRules
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rule
from bucketwise.config.values import glob_pattern
from tests.examples import examples
from tests.jobs.counting import Counts

Mongo = Database[dict[str, Any]]
few = settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
START = datetime(2024, 1, 1, tzinfo=UTC)
MISSING = object()
OID = ObjectId("0123456789abcdef01234567")
SITES = [
    "lab-1",
    "lab-2",
    "hall",
    "lab",
    "",
    "a.b",
    "lab-1\n",
    "LAB-1",
    7,
    71,
    7.0,
    7.5,
    True,
    OID,
    MISSING,
    None,
]
KINDS = ["temp", "hum", "co2", MISSING]
GLOBS = ["lab-*", "lab-?", "hall", "*", "7", "7*", "[hl]a*", "[!l]*", "true", "a.b", "*1", "0123*", "7.5"]
rules = st.lists(
    st.dictionaries(
        st.sampled_from(["site", "kind"]),
        st.lists(st.sampled_from([*GLOBS, "temp", "h*", "co2"]), min_size=1, max_size=3).map(tuple),
        min_size=1,
    ),
    max_size=4,
)
documents = st.lists(
    st.tuples(st.sampled_from(SITES), st.sampled_from(KINDS), st.integers(0, 9)), min_size=1, max_size=12
)


def policy_of(matches: list[dict[str, tuple[str, ...]]], **changes: Any) -> Policy:
    found = tuple(Rule(match=it, after=timedelta(days=1)) for it in matches)
    return make_policy(
        **{
            "name": "c", "collection": "c", "model": "reading", "time_field": "at",
            "series_fields": ("site", "kind"), "value_fields": ("v",), "rules": found, **changes,
        }
    )  # fmt: skip


def text(value: Any) -> str:
    """A value as `--series` names it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def may_hold(matches: list[dict[str, tuple[str, ...]]], values: dict[str, Any]) -> set[int]:
    """The rules that may hold for a series, the policy's own one last."""
    found = set()
    for number, match in enumerate(matches):
        fits = [
            None
            if values[name] in (MISSING, None)
            else any(fnmatchcase(text(values[name]), it) for it in globs)
            for name, globs in match.items()
        ]
        if False in fits:
            continue
        found.add(number)
        if None not in fits:
            return found
    return {*found, len(matches)}


@few
@given(rules, documents, st.sets(st.integers(0, 4)), st.lists(st.integers(-1, 9), min_size=5, max_size=5))
def test_what_is_due_is_found_by_queries_and_told_by_series(
    database: Mongo,
    matches: list[dict[str, tuple[str, ...]]],
    drawn: list[tuple[Any, Any, int]],
    numbers: set[int],
    days: list[int],
) -> None:
    policy, rows = policy_of(matches), []
    for i, (site, kind, day) in enumerate(drawn):
        named = {"site": site, "kind": kind}
        document = {"_id": i, "at": START + timedelta(days=day), "v": 1.0}
        rows.append(document | {key: it for key, it in named.items() if it is not MISSING})
    database.c.delete_many({})
    database.c.insert_many(rows)
    found, numbers = SeriesRules(policy), numbers & set(range(len(matches) + 1))
    under = [may_hold(matches, {"site": site, "kind": kind}) for site, kind, _ in drawn]

    held = {it["_id"] for it in database.c.find(found.query(numbers))}
    assert {i for i, it in enumerate(under) if it <= numbers} <= held
    # Of numbers that are no whole ones by their type, a query finds all.
    known = {i for i, it in enumerate(under) if len(it) == 1 and not isinstance(drawn[i][0], float)}
    assert held & known == {i for i in known if under[i] <= numbers}

    limits = [NEVER if day < 0 else as_ms(START + timedelta(days=day)) for day in days[: len(matches) + 1]]
    wanted = {
        i
        for i, (site, kind, day) in enumerate(drawn)
        if MISSING not in (site, kind) and None not in (site, kind)
        and as_ms(START + timedelta(days=day)) < min(limits[number] for number in under[i])
    }  # fmt: skip
    seen = set[int]()
    source = Source(database, policy)
    for start, end, also in found.due(as_ms(START), limits):
        for batch in source.ending(start, end, also):
            decoded = decode(batch, policy)
            due = decoded.last < found.limits_of(decoded.columns, limits)
            ids = {int(batch.main.decode_id(int(i))) for i in decoded.units[due]}
            assert not ids & seen  # each is met once
            seen |= ids
    assert seen == wanted


SAMPLED = {
    "model": "samples", "time_field": None, "series_fields": ("site", "samples.*.kind"),
    "samples_field": "samples", "sample_time_field": "t", "start_field": "first", "end_field": "last",
}  # fmt: skip


@pytest.mark.parametrize("kinds", [["temp"], ["temp", "hum"], ["hum", "co2"], ["co2"], []])
def test_a_bucket_of_several_series_follows_the_longest(database: Mongo, kinds: list[str]) -> None:
    matches: list[dict[str, tuple[str, ...]]] = [
        {"kind": ("hum",)},
        {"kind": ("co2",), "site": ("hall",)},
        {"kind": ("t*",)},
    ]
    limits = dict(enumerate([as_ms(START), as_ms(START) + 20, as_ms(START) + 30, as_ms(START) + 10]))
    policy = policy_of(matches, **SAMPLED)
    samples = [{"kind": kind, "t": START, "v": 1.0} for kind in kinds]
    database.c.insert_one({"site": "hall", "first": START, "last": START, "samples": samples})
    rules, batch = (
        SeriesRules(policy),
        next(iter(Source(database, policy).ending(as_ms(START), as_ms(START) + 1))),
    )
    decoded = decode(batch, policy)
    own = {"temp": 2, "hum": 0, "co2": 1}
    least = min((limits[own[it]] for it in kinds), default=min(limits.values()))
    assert rules.limits_of(decoded.columns, list(limits.values())).tolist() == [least]
    for number in range(4):
        due = {it for it in range(4) if limits[it] >= limits[number]}
        is_due = least >= limits[number]
        assert database.c.count_documents(rules.query(due)) >= is_due


@given(st.sampled_from(GLOBS), st.text(max_size=6))
def test_a_glob_is_that_of_the_shell(glob: str, value: str) -> None:
    matched = re.match(glob_pattern(glob), value, re.DOTALL) is not None
    assert matched == fnmatchcase(value, glob)


@pytest.mark.parametrize("series", [20, 1_000])
def test_a_rule_costs_one_query_however_many_series_stay(
    database: Mongo, mongodb_uri: str, series: int
) -> None:
    matches: list[dict[str, tuple[str, ...]]] = [{"site": (f"s{n:02}-*",)} for n in range(20)]
    policy = policy_of([*matches, {"kind": ("hum",)}])
    limits = [NEVER] + [as_ms(START) + n for n in range(1, 20)] + [NEVER, as_ms(START) + 30]
    database.c.create_index([("site", 1), ("kind", 1), ("at", 1)])
    database.c.create_index("at")
    database.c.insert_many(
        {"site": f"s00-{n}" if n % 2 else "hall", "kind": "hum", "at": START, "v": 1.0} for n in range(series)
    )
    database.c.insert_one({"site": "hall", "kind": "temp", "at": START, "v": 1.0})
    counts, found = Counts(), 0
    with MongoClient[dict[str, Any]](mongodb_uri, tz_aware=True, event_listeners=[counts]) as client:
        source = Source(client[database.name], policy)
        for start, end, also in SeriesRules(policy).due(as_ms(START), limits):
            at = source.earliest_ending(start, also)
            assert at in (as_ms(START), None)
            found += sum(len(batch) for batch in source.ending(start, end, also)) if at is not None else 0
    assert (found, counts.commands["find"]) == (1, 21)  # one a stretch, and one for what is due
