"""Cases of the same kinds as those that are written down, with numbers, names, zones and days from a seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import Bench
from tests.cases.oracle import Variant, Written, differences
from tests.cases.variants import KINDS
from tests.jobs.command import CommandLine, Ran

Db = Database[dict[str, Any]]
OFFLINE, ONLINE = 'to = "offline"', 'to = "online"\ncollection = "c_archive"'
#: Those that `make test` tries; the others are proofs.
_SOME = [("slots", 8), ("samples", 6)]
_MANY = [(kind, seed) for kind in KINDS for seed in range(30) if (kind, seed) not in _SOME]


@pytest.fixture
def bench(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Bench:
    return Bench(tmp_path, database, mongodb_uri, bucketwise)


def succeeds(bench: Bench, *arguments: str) -> Ran:
    ran = bench.run(*arguments)
    assert ran.code == 0, (arguments, ran.out, ran.err)
    return ran


def parted(variant: Variant) -> tuple[list[Written], list[Written]]:
    """The documents that come in time, and some that are late."""
    return [it for i, it in enumerate(variant.documents) if i % 4 != 1], variant.documents[1::4]


def bodies(documents: Sequence[Written]) -> list[bytes]:
    return [it.body for it in documents]


def check_way(bench: Bench, variant: Variant, archive: str) -> None:
    """There and back: in time and late, summarised, archived, and restored bit for bit."""
    bench.now = variant.now
    bench.write_policy(variant.text(archive))
    in_time, late = parted(variant)
    bench.load(bodies(in_time))
    (policy,) = json.loads(bench.run("check").out)["policies"]
    assert [it["message"] for it in policy["findings"] if it["severity"] == "error"] == []
    succeeds(bench, "run")
    assert differences(bench.database, variant, in_time) == []
    bench.load(bodies(late))
    succeeds(bench, "run")
    assert differences(bench.database, variant, variant.documents) == []
    assert bench.raw("c") == []
    summaries = bench.raw("c_hourly"), bench.raw("c_daily")
    succeeds(bench, "run")
    assert (bench.raw("c_hourly"), bench.raw("c_daily")) == summaries
    for verb in ("verify", "audit", "plan"):
        succeeds(bench, verb)
    (policy,) = json.loads(succeeds(bench, "coverage").out)["policies"]
    assert sum(it["readings"] for it in policy["days"]) == sum(len(it.readings) for it in variant.documents)
    succeeds(bench, "restore", "-p", "c", "--to", "back")
    assert sorted(bench.raw("back")) == sorted(bodies(variant.documents))


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "seed"), _SOME)
def test_a_variant_is_archived_and_comes_back(bench: Bench, kind: str, seed: int) -> None:
    check_way(bench, KINDS[kind](seed), OFFLINE)


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "seed"), _MANY)
def test_many_variants_are_archived_and_come_back(bench: Bench, kind: str, seed: int) -> None:
    check_way(bench, KINDS[kind](seed), [OFFLINE, ONLINE][seed % 2])
