"""The README alone leads to a first archived day, and back."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pymongo import MongoClient

from tests.docs.pages import ROOT, blocks
from tests.jobs.command import CommandLine

PAGE = ROOT / "README.md"


def test_it_is_one_page() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 150


def _commands() -> list[list[str]]:
    """What comes after the policy file: check, plan, run, restore."""
    found = blocks(PAGE)
    after = found[[block.language for block in found].index("toml") :]
    lines = [line for block in after if block.language == "console" for line in block.text.splitlines()]
    return [line.split()[1:] for line in lines]


@pytest.mark.proof
def test_init_writes_such_a_policy(tmp_path: Path, mongodb_uri: str, bucketwise: CommandLine) -> None:
    (shown,) = (it for it in blocks(PAGE) if it.language == "toml")
    (load,) = (it for it in blocks(PAGE) if "load" in it.marks)
    with MongoClient[dict[str, object]](mongodb_uri) as client:
        try:
            environment = os.environ | {"MONGODB_URI": mongodb_uri}
            subprocess.run([sys.executable, "-c", load.text], env=environment, check=True)
            ran = bucketwise("init", mongodb_uri.replace("/?", "/market?"), cwd=tmp_path)
            assert ran.code == 0, ran
        finally:
            client.drop_database("market")
    written = tomllib.loads((tmp_path / "bucketwise.toml").read_text())
    wanted = tomllib.loads(shown.text)["policies"]["ticks"]
    layout = {key: it for key, it in wanted.items() if not isinstance(it, dict)}
    assert written["policies"]["ticks"].items() >= layout.items()


@pytest.mark.proof
def test_its_first_day(tmp_path: Path, mongodb_uri: str, bucketwise: CommandLine) -> None:
    (policy,) = (it for it in blocks(PAGE) if it.language == "toml")
    (load,) = (it for it in blocks(PAGE) if "load" in it.marks)
    (tmp_path / "bucketwise.toml").write_text(policy.text)
    (tmp_path / "store").mkdir()
    environment = {"MONGODB_URI": mongodb_uri, "BUCKETWISE_STORE_URL": (tmp_path / "store").as_uri()}
    with MongoClient[dict[str, object]](mongodb_uri) as client:
        market = client["market"]
        try:
            subprocess.run([sys.executable, "-c", load.text], env=os.environ | environment, check=True)
            assert [verb for verb, *_ in _commands()] == ["check", "plan", "run", "restore"]
            for command in _commands():
                ran = bucketwise(*command, cwd=tmp_path, **environment)
                assert ran.code == 0, (command, ran)
            counted = {name: market[name].count_documents({}) for name in market.list_collection_names()}
            wanted = {"ticks": 0, "ticks_daily": 1, "ticks_restored": 1440}
            assert {name: counted.get(name) for name in wanted} == wanted
            assert counted.get("ticks_hourly", 0) == 0
            assert len(list((tmp_path / "store").rglob("data/dt=2018-06-30/*.parquet"))) == 1
        finally:
            client.drop_database("market")
