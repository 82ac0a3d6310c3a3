"""The wheel, installed beside modules of a user's own that are named as packages of the suite are."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.jobs.command import ROOT
from tests.jobs.place import MINUTES, NOW, Place

_OWN = ("config.py", "jobs.py", "buckets.py", "rollups/__init__.py", "archivers/__init__.py")
_API = """
import sys, bucketwise, bucketwise.jobs
assert not {"pyarrow", "duckdb", "pymongo"} & set(sys.modules), sorted(sys.modules)
assert set(bucketwise.__all__) <= set(dir(bucketwise))
counted = bucketwise.connect().sql("select count(*) from ticks").fetchall()
print(bucketwise.__version__, bucketwise.scan("ticks").read_all().num_rows, counted, bucketwise.jobs.__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; what it needs is that of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {it.partition("/")[0].partition("-")[0] for it in names} == {"bucketwise"}
    venv.create(folder / "env", symlinks=True)
    python = folder / "env/bin/python"
    pip = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = (folder / "env/lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in _OWN:
        path = folder / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise SystemExit('{name} of the user was imported')\n")
    return folder


def _run(place: Place, installed: Path, program: str, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(installed / "own"), "MONGODB_URI": place.uri
    }  # fmt: skip
    command = [str(installed / "env/bin" / program), *arguments]
    ran = subprocess.run(
        command, cwd=place.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.proof
def test_it_works_beside_modules_named_as_its_packages_are(place: Place, installed: Path) -> None:
    _run(place, installed, "bucketwise", "run", "-p", "ticks", "--now", NOW)
    assert place.database.ticks.count_documents({}) == 0
    _run(place, installed, "python", "-m", "bucketwise", "verify", "-p", "ticks")
    version, readings, counted, path = _run(place, installed, "python", "-c", _API).split()
    assert version == _run(place, installed, "bucketwise", "--version").split()[1]
    assert (readings, counted) == (f"{MINUTES * 60}", f"[({MINUTES * 60},)]")
    assert path.startswith(str(installed / "env"))
