"""The JSON Schema of the policy file: what is sound passes, what an editor can see to be wrong does not."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bucketwise.config.schema import FILE_NAME, policy_file_schema
from tests.config.bad_configs import GOOD
from tests.config.schemas import faults

ROOT = Path(__file__).resolve().parents[2]
SLOTS = {
    "collection": "ticks",
    "model": "slots",
    "time_field": "d",
    "series_fields": ["symbol"],
    "value_fields": ["p"],
    "slot": "second",
}


def with_policy(**keys: Any) -> dict[str, Any]:
    mongodb = {"uri": "${MONGODB_URI}", "database": "market"}
    return {"mongodb": mongodb, "policies": {"ticks": {**SLOTS, **keys}}}


def test_what_is_sound_passes() -> None:
    example = (ROOT / "config" / "example.toml").read_text(encoding="utf-8")
    assert faults(tomllib.loads(example)) == []
    assert faults(tomllib.loads(GOOD)) == []
    assert faults(with_policy(archive={"after": "${AFTER}", "to": "${KIND}", "max_delete": "20%"})) == []
    assert faults(with_policy(archive={"after": "forever", "to": "none", "max_delete": 7})) == []
    assert faults({"policies": {"ticks": SLOTS}}) == [], "the environment may say where MongoDB is"


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"colection": "x"}, ""),
        ({"samples_field": "s"}, ".samples_field"),
        ({"model": "slot"}, ".model"),
        ({"series_fields": "symbol"}, ".series_fields"),
        ({"sparse_ok": "yes"}, ".sparse_ok"),
        ({"rollup": {"hourly": "h", "settle": "10 minutes"}}, ".rollup.settle"),
        ({"rollup": {"settle": "forever"}}, ".rollup.settle"),
        ({"rollup": {"levels": [{"name": "yearly", "collection": "y"}]}}, ".rollup.levels.0.name"),
        ({"archive": {"after": 30, "to": "offline"}}, ".archive.after"),
        ({"archive": {"after": "30d", "to": "s3"}}, ".archive.to"),
        ({"overflow": {"flag_field": "f"}}, ".overflow"),
        ({"values": {"p": {"map": {"ON": "1"}}}}, ".values.p.map.ON"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(keys: dict[str, Any], place: str) -> None:
    assert faults(with_policy(**keys)) == [f"policies.ticks{place}"]


def test_what_a_model_needs() -> None:
    lacking = with_policy(model="reading", time_field="d")
    del lacking["policies"]["ticks"]["time_field"], lacking["policies"]["ticks"]["slot"]
    assert faults(lacking) == ["policies.ticks"]


@pytest.mark.proof
@pytest.mark.process
def test_taplo_finds_the_schema_by_the_first_line(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(policy_file_schema()))
    text = f"#:schema ./{FILE_NAME}\n" + (ROOT / "config" / "example.toml").read_text(encoding="utf-8")
    assert "# Durations" in text
    for name, written in {"good": text, "bad": text.replace('to = "offline"', 'to = "ofline"')}.items():
        (tmp_path / f"{name}.toml").write_text(written)
        taplo = Path(sys.executable).with_name("taplo")
        told = subprocess.run(
            [taplo, "lint", "--colors", "never", f"{name}.toml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert told.returncode == (name == "bad"), told.stderr
        assert ("ofline" in told.stderr) == (name == "bad")
