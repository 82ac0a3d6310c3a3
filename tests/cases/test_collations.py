"""Each model in a collection whose collation takes series for one another, with times as text: what commands
say and do goes by bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from tests.cases.case import Bench
from tests.jobs.command import CommandLine
from tests.tiers import tier

Document = dict[str, Any]
START, HOUR, MINUTE = datetime(2025, 3, 3, tzinfo=UTC), timedelta(hours=1), timedelta(minutes=1)
SERIES = ["a", "A", "á", "10", "9"]
COLLATIONS: list[Document] = [
    {"locale": "en", "strength": 1},
    {"locale": "en", "strength": 2},
    {"locale": "en", "strength": 1, "numericOrdering": True},
    {"locale": "en"},
]
_SAMPLES = 'model = "samples"\nsamples_field = "s"\nsample_time_field = "t"\nsample_time_unit = "iso"\n'
MODELS: dict[str, tuple[str, Callable[[int], Document], int]] = {
    "reading": (
        'model = "reading"\ntime_field = "d"\ntime_unit = "iso"\n',
        lambda hour: {"d": _text(START + hour * HOUR), "v": 1.5},
        1,
    ),
    "slots": (
        'model = "slots"\ntime_field = "d"\ntime_unit = "iso"\nslot = "minute"\n',
        lambda hour: {"d": _text(START + hour * HOUR), "v": {str(i): 1.5 for i in range(60)}},
        60,
    ),
    "samples": (
        _SAMPLES + 'start_field = "first"\nend_field = "last"\ntime_unit = "iso"\n',
        lambda hour: {"first": _text(START + hour * HOUR), "last": _text(_at(hour, 9)), "s": _array(hour)},
        10,
    ),
    "samples that alone tell times": (_SAMPLES, lambda hour: {"s": _array(hour)}, 10),
    "arrays": (
        'model = "samples"\nsamples_as = "arrays"\nsample_time_field = "t"\nsample_time_unit = "iso"\n',
        lambda hour: {"t": [_text(_at(hour, i)) for i in range(10)], "v": [1.5] * 10},
        10,
    ),
}


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(hour: int, minute: int) -> datetime:
    return START + hour * HOUR + minute * MINUTE


def _array(hour: int) -> list[Document]:
    return [{"t": _text(_at(hour, i)), "v": 1.5} for i in range(10)]


def _rows(bench: Bench) -> dict[str, int]:
    ran = bench.run("query", "SELECT m, count(*) FROM c GROUP BY m")
    assert ran.code == 0, ran
    return dict(json.loads(ran.out)["rows"])


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("model", "to", "collation"),
    [
        pytest.param(model, to, collation, marks=tier(is_first=number == at % 3, is_proof=number == 3))
        for at, model in enumerate(MODELS)
        for to in ("offline", "online")
        for number, collation in enumerate(COLLATIONS)
    ],
)
def test_commands_tell_series_apart_by_their_bytes(
    tmp_path: Path,
    database: Database[Any],
    mongodb_uri: str,
    bucketwise: CommandLine,
    model: str,
    to: str,
    collation: Document,
) -> None:
    keys, document, each = MODELS[model]
    bench = Bench(tmp_path, database, mongodb_uri, bucketwise)
    bench.now = "2025-06-01T00:00:00Z"
    target = 'collection = "gone"\n' if to == "online" else ""
    head = f'[policies.c]\ncollection = "c"\nseries_fields = ["m"]\nvalue_fields = ["v"]\n{keys}'
    rest = (
        f'[policies.c.rollup]\nhourly = "c_hourly"\n[policies.c.archive]\nafter = "1d"\nto = "{to}"\n{target}'
    )
    bench.write_policy(head + rest)
    for name in ("c", "gone") if to == "online" else ("c",):
        database.create_collection(name, collation=collation)
    bench.load(
        [
            bson.encode({"_id": 100 * number + hour, "m": name, **document(hour)})
            for number, name in enumerate(SERIES)
            for hour in range(6)
        ]
    )
    before = sorted(bench.raw("c"))
    expected = dict.fromkeys(SERIES, 6 * each)
    assert _rows(bench) == expected
    assert bench.run("run").code == 0
    assert database["c"].count_documents({}) == 0
    assert _rows(bench) == expected
    counted = {it["m"]: it["count"] for it in database["c_hourly"].find({"start": START})}
    assert counted == dict.fromkeys(SERIES, each)
    span = ("--since", "2025-03-01", "--until", "2025-03-05")
    assert bench.run("restore", *span, "--to", "back").code == 0
    assert sorted(bench.raw("back")) == before
    assert bench.run("restore", *span, "--series", "m=a", "--to", "one").code == 0
    assert {it["m"] for it in database["one"].find()} == {"a"}
    assert bench.run("erase", "--series", "m=a", "--reason", "asked", "--confirm", "c").code == 0
    assert _rows(bench) == {name: count for name, count in expected.items() if name != "a"}
    assert sorted(database["c_hourly"].distinct("m", collation={"locale": "simple"})) == sorted(SERIES[1:])
