"""Real readings in every shape of document: `init` alone finds out how to read them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.acceptance.readings import ORIGINS, Origin, Reading
from tests.acceptance.shapes import SHAPES
from tests.acceptance.test_real_readings import LAYOUTS, NOW, documents, load, rows_of
from tests.jobs.command import CommandLine, Ran

#: Those that are taken through a whole run, one of each model.
CYCLED = ["iso", "inside", "hourly", "several", "timeseries"]


#: In all shapes in the proofs: guesses at each are tried in tests/buckets/inferring as well.
SOME_AND_ALL = [
    pytest.param(ORIGINS[0], CYCLED, id=f"some of {ORIGINS[0].name}"),
    *(pytest.param(it, [*LAYOUTS, *SHAPES], id=it.name, marks=pytest.mark.proof) for it in ORIGINS),
]


@pytest.mark.proof
@pytest.mark.parametrize(("origin", "shapes"), SOME_AND_ALL)
def test_every_reading_is_read(
    origin: Origin,
    shapes: list[str],
    tmp_path: Path,
    database: Database[dict[str, Any]],
    mongodb_uri: str,
    bucketwise: CommandLine,
) -> None:
    origin = origin.first(20, series=8)
    kinds = origin.kinds(shapes)
    for kind in kinds:
        load(database, kind, documents(kind, origin))

    def call(*arguments: str) -> Ran:
        return bucketwise(*arguments, "--now", NOW, "--quiet", cwd=tmp_path, MONGODB_URI=mongodb_uri)

    base, _, options = mongodb_uri.partition("/?")
    ran = call("init", f"{base}/{database.name}?{options}", "--json")
    assert ran.code == 0, ran
    assert {it["collection"]: it["model"] is not None for it in ran.json["collections"]} == dict.fromkeys(
        kinds, True
    )
    # Six documents of one slot each, of six rigs: nothing tells how far its slots reach, so that it asks.
    asked = {it["collection"] for it in ran.json["collections"] if it.get("asked")}
    assert asked == ({"hours"} if origin.name == "skab" else set())
    kinds = [it for it in kinds if it not in asked]
    for kind in kinds:
        assert call("readings", "-p", kind, "-o", f"{kind}.csv").code == 0
        found, fields = read(tmp_path / f"{kind}.csv")
        rows = rows_of(kind, origin)
        if fields < len(rows[0].values):
            rows = without_constants(rows)
        assert found == Counter((it.series, it.time, in_order(it.values)) for it in rows), kind
    cycled = [argument for kind in kinds if kind in CYCLED for argument in ("-p", kind)]
    (tmp_path / f"{database.name}-archive").mkdir()
    assert call("run", *cycled).code == 0
    assert call("audit", *cycled).code == 0
    archived = {path.parts[-4] for path in tmp_path.rglob("data/dt=*/*.parquet")}
    assert archived == set(cycled) - {"-p"}


def read(path: Path) -> tuple[Counter[tuple[str, datetime, tuple[float, ...]]], int]:
    """Series, time and values of each row; and how many fields have values."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        found = Counter(
            (row.pop("rig"), datetime.fromisoformat(row.pop("time")), in_order(row)) for row in rows
        )
        assert rows.fieldnames is not None
        return found, len(rows.fieldnames) - 2


def without_constants(rows: list[Reading]) -> list[Reading]:
    """Without the fields that are the same whole number in each: whether they are measured, it asks."""
    values = {name: {it.values[name] for it in rows} for name in rows[0].values}
    left_out = [name for name, found in values.items() if len(found) == 1 and min(found).is_integer()]
    assert left_out
    return [
        it._replace(values={name: value for name, value in it.values.items() if name not in left_out})
        for it in rows
    ]


def in_order(values: Mapping[str, Any]) -> tuple[float, ...]:
    """By value: pairs don't name theirs, and a native collection gives its fields in any order."""
    return tuple(sorted(map(float, values.values())))
