"""Steps between readings on a real MongoDB: whatever came when, summaries equal plain Python's over all
readings at once."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import bson
import pytest
from pymongo.collection import Collection

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.rolling import linking
from tests.rollups.conftest import Bench

Document = dict[str, Any]
FIRST = datetime(2021, 3, 26, 10, 0, tzinfo=UTC)  # two days before clocks change in Berlin
LAST = datetime(2021, 5, 3, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
GAPS = {"n": 5 * HOUR, "s": 2 * HOUR, "a": 3 * HOUR, "b": 90 * MINUTE, "t": 2 * HOUR}
#: Texts of a state, and what they are called as keys; what else may stand there.
TEXTS = {"idle": "idle", "a.b": "a%2Eb", "$1": "%241", "": "%", "100%": "100%25", "é\0": "é%00"}
TEXTS |= {"1": "1", "0.5": "0.5", "1.": "1%2E"}
OTHERS: list[tuple[Any, str]] = [(1, "1"), (True, "true"), (-0.0, "0"), (0.5, "0.5")]
ALL_LEVELS = {"hourly": "hourly", "daily": "daily", "levels": [{"name": "monthly", "collection": "monthly"}]}

MONTHS = {"levels": [{"name": "monthly", "collection": "monthly"}]}


def policy_of(rollup: Document | None = None, **more: Any) -> Policy:
    said: Document = {
        "name": "meters",
        "collection": "meters",
        "model": "reading",
        "time_field": "d",
        "series_fields": ("symbol",),
        "value_fields": ("n", "s", "a", "b", "t", "plain"),
        "nonnumeric_ok": ("plain", "t"),
        "archive": {"after": "1d", "to": "offline"},
        "rollup": {"timezone": "Europe/Berlin", "percentiles": (50,), **(rollup or ALL_LEVELS)},
        "values": {
            "n": {"kind": "counter", "max_gap": "5h"},
            "s": {"kind": "state", "max_gap": "2h"},
            "a": {"time_weighted": "previous", "max_gap": "3h"},
            "b": {"time_weighted": "linear", "max_gap": "90m", "kind": "counter"},
            "t": {"kind": "state", "max_gap": "2h"},
        },
    }
    return make_policy(**(said | more))


def readings(source: random.Random, count: int) -> list[Document]:
    """Some close together, some far apart, a few at one instant; a few without numbers."""
    found: list[Document] = []
    at = dict.fromkeys("xyz", FIRST)
    for number in range(count):
        symbol = source.choice("xyz")
        at[symbol] += source.choice([0, 1, 17, 40, 70, 110, 200, 400, 3000]) * MINUTE
        found.append(
            {
                "_id": source.randrange(10**9) * 1000 + number,
                "symbol": symbol,
                "d": at[symbol],
                "n": source.choice([source.random() * 100, 0.1 * number]),
                "s": source.choice([0, 1, 2, 0.5, "unknown"]),
                "a": source.uniform(-5, 5),
                "b": source.choice([source.random(), None, 1e15]),
                "t": source.choice([*TEXTS, *TEXTS, *(it for it, _ in OTHERS), None, [1]]),
                "plain": "text",
            }
        )
    return [it for it in found if it["d"] < LAST - 2 * DAY]


@dataclass(frozen=True)
class Step:
    """From one reading to the next one."""

    start: int
    end: int
    low: Any
    high: Any


def value_of(name: str, held: Any) -> Any:
    """A number; of `t` the key of a state. None: neither."""
    if name != "t":
        return Fraction(held) if isinstance(held, int | float) else None
    if isinstance(held, str):
        return TEXTS[held]
    return next((key for it, key in OTHERS if type(it) is type(held) and it == held), None)


def steps_of(found: list[Document], name: str) -> dict[str, list[Step]]:
    by_series = defaultdict(list)
    for one in sorted(found, key=lambda it: (it["d"], it["_id"])):
        if (value := value_of(name, one[name])) is not None:
            by_series[one["symbol"]].append((to_ms(one["d"]), value))
    longest = GAPS[name] // timedelta(milliseconds=1)
    return {
        symbol: [
            Step(start, end, low, high)
            for (start, low), (end, high) in pairwise(held)
            if end - start <= longest
        ]
        for symbol, held in by_series.items()
    }


def counted(steps: list[Step], start: int, end: int) -> Document:
    ending = [it for it in steps if start <= it.end < end]
    increase = sum((it.high - (it.low if it.high >= it.low else 0) for it in ending), Fraction(0))
    lasting = sum(it.end - it.start for it in ending)
    return {
        "increase": float(increase),
        "resets": sum(it.high < it.low for it in ending),
        "rate": float(1000 * increase / lasting) if lasting else None,
    }


def in_states(steps: list[Step], start: int, end: int) -> Document:
    seconds: dict[str, int] = defaultdict(int)
    for it in steps:
        if (ms := min(it.end, end) - max(it.start, start)) > 0:
            seconds[it.low if isinstance(it.low, str) else f"{float(it.low):g}"] += ms
    changes = sum(it.low != it.high for it in steps if start <= it.end < end)
    return {
        "changes": changes,
        "seconds": {state: ms / 1000 for state, ms in seconds.items()},
        "states_over": False,
    }


def weighted(steps: list[Step], start: int, end: int, *, linear: bool) -> Document:
    area, covered = Fraction(0), 0
    for it in steps:
        low, high = max(it.start, start), min(it.end, end)
        if low < high:
            slope = (it.high - it.low) / (it.end - it.start) if linear else Fraction(0)
            area += (it.low + slope * (Fraction(low + high, 2) - it.start)) * (high - low)
            covered += high - low
    return {"time_avg": float(area / covered) if covered else None, "time_covered": covered / 1000}


def wrong(bench: Bench, policy: Policy, found: list[Document]) -> list[str]:
    """What summaries tell otherwise than plain Python."""
    steps = {name: steps_of(found, name) for name in GAPS}
    faults = []
    for level in levels_of(policy):
        texts = {
            (it["symbol"], level.edges(to_ms(it["d"]), to_ms(it["d"]) + 1)[0])
            for it in found
            if value_of("t", it["t"]) is not None
        }
        summaries = list(bench.database[level.collection].find())
        wanted = {(it["symbol"], tuple(level.edges(to_ms(it["d"]), to_ms(it["d"]) + 1))) for it in found}
        held = {(it["symbol"], (to_ms(it["start"]), to_ms(it["end"]))): it for it in summaries}
        assert held.keys() == wanted
        for (symbol, (start, end)), summary in held.items():
            # A window without any number of a field tells nothing of it, as an hour without a reading does.
            of = {name: steps[name].get(symbol, []) if summary[name]["count"] else [] for name in GAPS}
            told = {
                "n": counted(of["n"], start, end),
                "s": in_states(of["s"], start, end),
                "a": weighted(of["a"], start, end, linear=False),
                "b": weighted(of["b"], start, end, linear=True) | counted(of["b"], start, end),
                "t": in_states(steps["t"].get(symbol, []), start, end)
                if (symbol, start) in texts
                else {"changes": None, "seconds": {}, "states_over": False},
                "plain": {},
            }
            for name, keys in told.items():
                shown = {key: it for key, it in summary[name].items() if key in keys}
                if shown != keys:
                    faults.append(f"{level.name} {symbol} {summary['start']} {name}: {shown}, not {keys}")
    return faults


def played(bench: Bench, policy: Policy, seed: int, *, deletes: bool) -> list[Document]:
    """Rolls up many times while readings come, early and late, move into the archive, and are taken out.
    Returns all that are left."""
    source = random.Random(seed)
    found = readings(source, 150)
    late = {it["_id"]: source.choice([0, 0, 0, 1, 30, 300]) * HOUR for it in found}
    waiting = sorted(found, key=lambda it: it["d"] + late[it["_id"]])
    firsts = {min((it["d"], it["_id"]) for it in found if it["symbol"] == one)[1] for one in "xyz"}
    live, gone, now = bench.database["meters"], set[int](), FIRST
    while waiting:
        count = source.randrange(1, 30)
        some, waiting = waiting[:count], waiting[count:]
        live.insert_many(some)
        now = min(LAST, now + source.choice([HOUR, 7 * HOUR, 2 * DAY, 9 * DAY]))
        bench.roll_up(policy, now)
        if source.random() < 0.5:
            archive(bench, list(live.find({"d": {"$lt": now - source.choice([1, 5]) * DAY}})))
        for it in live.find() if deletes else ():
            if it["_id"] not in firsts and source.random() < 0.05:
                live.delete_one({"_id": it["_id"]})
                gone.add(it["_id"])
    bench.roll_up(policy, LAST + DAY)
    everywhere = [*live.find(), *bench.database["archive"].find()]
    assert not gone.intersection(it["_id"] for it in everywhere)
    return [it | {"d": it["d"].replace(tzinfo=UTC)} for it in everywhere]


def archive(bench: Bench, some: list[Document]) -> None:
    """Moves readings into the archive, as an archive run does."""
    if not some:
        return
    bench.database["archive"].insert_many(some)
    with bench.database.client.start_session() as session, session.start_transaction():
        ids = [it["_id"] for it in some]
        bench.database["meters"].delete_many({"_id": {"$in": ids}}, session=session)
        receipt = {"kind": "delete", "collection": "meters"}
        bench.database["books"].insert_one(receipt, session=session)


@pytest.mark.proof
@pytest.mark.parametrize("deletes", [False, True], ids=["kept", "deleted"])
@pytest.mark.parametrize("levels", [ALL_LEVELS, {"daily": "daily"}, MONTHS], ids=["all", "days", "months"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(it, marks=pytest.mark.proof) for it in range(2, 12))])
def test_any_order_gives_what_plain_python_gives(
    bench: Bench, seed: int, levels: Document, *, deletes: bool
) -> None:
    policy = policy_of(levels)
    bench.database["books"].insert_one({})
    found = played(bench, policy, seed, deletes=deletes)
    assert wrong(bench, policy, found) == []
    summaries = [bench.raw(it) for it in ("hourly", "daily", "monthly")]
    for options in ({"whole": True}, {"since": FIRST.replace(hour=0) + 3 * DAY, "until": FIRST + 9 * DAY}):
        bench.roll_up(policy, LAST + DAY, **options)
        assert [bench.raw(it) for it in ("hourly", "daily", "monthly")] == summaries


@pytest.mark.proof
def test_neighbours_are_found_with_one_command_for_many_series(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each level one; with nothing to do, none."""
    commands: list[Any] = []
    aggregate = Collection.aggregate

    def counted_aggregate(self: Collection[Any], pipeline: Any, *more: Any, **named: Any) -> Any:
        commands.append(self.name)
        return aggregate(self, pipeline, *more, **named)

    policy = policy_of()
    series = [f"S{number}" for number in range(30)]

    def load(at: datetime) -> None:
        some = [
            {"symbol": it, "d": at, "n": 1, "s": 1, "a": 1.0, "b": 1.0, "t": "on", "plain": ""}
            for it in series
        ]
        bench.database["meters"].insert_many(some)

    load(FIRST)
    bench.roll_up(policy, FIRST + HOUR + HOUR)
    load(FIRST + 2 * HOUR)
    monkeypatch.setattr(linking, "_AT_ONCE", 10_000)
    monkeypatch.setattr(Collection, "aggregate", counted_aggregate)
    bench.roll_up(policy, FIRST + 4 * HOUR)
    assert commands.count("hourly") == 1
    summaries = bench.raw("hourly")
    assert all(bson.decode(it)["n"]["increase"] == 0.0 for it in summaries.values())
    assert {bson.decode(it)["t"]["changes"] for it in summaries.values()} == {0}
    commands.clear()
    bench.roll_up(policy, FIRST + 4 * HOUR)
    assert "hourly" not in commands
    assert bench.raw("hourly") == summaries
