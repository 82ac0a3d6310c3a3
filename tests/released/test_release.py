"""A release is built, and what is in it can be installed and used."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bucketwise import __version__
from bucketwise.config.schema import policy_file_schema
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.proof, pytest.mark.process]


def _release(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "ops" / "release.py"),
        "--without-image",
        "--allow-changes",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_what_a_release_has(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    built = _release("--output", str(folder))
    assert built.returncode == 0, built.stderr
    names = {it.name for it in folder.iterdir()}
    stem = f"bucketwise-{__version__}"
    assert names == {
        f"{stem}-py3-none-any.whl",
        f"{stem}.tar.gz",
        f"{stem}.cdx.json",
        f"{stem}-manual.tar.gz",
        "bucketwise.schema.json",
        "SHA256SUMS",
    }
    assert all(name in built.stdout for name in names)
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert json.loads((folder / "bucketwise.schema.json").read_text()) == policy_file_schema()
    materials = json.loads((folder / f"{stem}.cdx.json").read_text())
    assert {"pymongo", "pyarrow", "boto3"} <= {it["name"] for it in materials["components"]}
    wheel = zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl").namelist()
    sources = {
        f"bucketwise/{path.relative_to(ROOT)}"
        for top in ("config", "buckets", "rollups", "archivers", "jobs")
        for path in (ROOT / top).rglob("*.py")
    }
    assert sources <= set(wheel), "the wheel is built from the source distribution"
    assert "bucketwise/config/policies.md" in wheel
    again = _release("--output", str(folder))
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
