"""A command imports what it needs: what takes long stays out where there is nothing to do with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bucketwise.jobs.suite import ENTRIES
from tests.clouds import CREDENTIALS
from tests.docs.pages import ROOT
from tests.jobs.place import NOW, Place

pytestmark = pytest.mark.process
#: What takes longer to import than a short command may take.
LIBRARIES = (
    "apscheduler", "boto3", "bson", "distributed", "duckdb", "jinja2", "numpy", "obstore",
    "prometheus_client", "pyarrow", "pydantic", "pyiceberg", "pymongo", "redis", "rich", "structlog",
)  # fmt: skip
#: What all commands import of `jobs`.
SHARED = {"cli", "core", "output", "suite"}
#: The jobs that make up a run.
RUN = {"run", "rollup", "archive", "compact", "lake", "publish", "stats", "copy"}
POLICIES = """
[mongodb]
uri = "mongodb://localhost:27017"
database = "market"
[policies.ticks]
collection = "ticks"
model = "reading"
time_field = "at"
series_fields = ["symbol"]
value_fields = ["p"]
[policies.ticks.rollup]
hourly = "ticks_hourly"
"""
SCRIPT = """
import atexit, sys

def tell():
    print(*sorted(sys.modules), file=sys.__stderr__)

atexit.register(tell)
from bucketwise.__main__ import main
main()
"""

#: Tells for each verb which modules it is the first to bring: its options and its help, as the command line
#: has them.
LOADED = """
import json, sys
from bucketwise.jobs.cli import _command
from bucketwise.jobs.suite import ENTRIES

known, brought = set(), {}
for verb in ENTRIES:
    _command(verb)
    brought[verb] = sorted({*sys.modules} - known)
    known = {*sys.modules}
print(json.dumps(brought))
"""


def imported(*arguments: str, cwd: Path | None = None, **environment: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def ours(modules: set[str]) -> set[str]:
    return {it for it in modules if it.startswith("bucketwise.")}


def rooms(modules: set[str]) -> set[str]:
    """The jobs among them, and what jobs share."""
    return {it.split(".")[2] for it in ours(modules) if it.startswith("bucketwise.jobs.")}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_only_tells_of_the_program_imports_no_library_and_no_job(option: str) -> None:
    modules = imported(option)
    assert modules.isdisjoint(LIBRARIES)
    assert rooms(modules) == SHARED
    assert {it.split(".")[1] for it in ours(modules)} <= {"__main__", "buckets", "config", "jobs"}


def test_a_job_that_has_not_begun_has_neither_libraries_nor_what_reads_buckets_and_archives() -> None:
    """Its help, and what a shell completes of it, come at once."""
    ran = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True)
    brought = {verb: set(modules) for verb, modules in json.loads(ran.stdout).items()}
    assert list(brought) == list(ENTRIES)
    dear = {verb: sorted(it for it in modules if is_dear(it)) for verb, modules in brought.items()}
    assert {verb: modules for verb, modules in dear.items() if modules} == {}


def is_dear(module: str) -> bool:
    """Whether a module is for work: a library but that of tables, or one of ours that works on data."""
    if module.startswith(("bucketwise.archivers", "bucketwise.rollups", "bucketwise.buckets.")):
        return module not in (
            "bucketwise.buckets.heap",
            "bucketwise.buckets.fields",
            "bucketwise.buckets.fields.times",
        )
    return module in LIBRARIES and module != "rich"


def test_the_policy_file_is_shown_by_a_quarter_of_the_program(tmp_path: Path) -> None:
    """Nothing that reads buckets or archives is among it, nor an array."""
    (tmp_path / "bucketwise.toml").write_text(POLICIES)
    modules = imported("config", "show", "--json", cwd=tmp_path)
    assert modules & set(LIBRARIES) == {"bson", "pydantic", "pymongo", "rich"}
    assert rooms(modules) == SHARED | {"settings"}
    assert len(ours(modules)) < 70


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("url", "client"), [("s3://acme", "boto3"), ("az://acme", "obstore"), ("gs://acme", "obstore")]
)
def test_a_store_brings_its_own_client_alone(url: str, client: str) -> None:
    text = (
        "import sys; from bucketwise.archivers.stores import open_store; "
        "from bucketwise.config.tables import Store; "
        f"open_store(Store(url={url!r})); print(*sys.modules)"
    )
    given = {**os.environ, "PYTHONPATH": str(ROOT), **CREDENTIALS}
    done = subprocess.run([sys.executable, "-c", text], env=given, capture_output=True, text=True, check=True)
    assert {"boto3", "obstore"} & set(done.stdout.split()) == {client}


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("verb", "jobs"), [("status", {"status"}), ("run", RUN)])
@pytest.mark.after("run")
def test_where_nothing_is_due_no_part_is_read_and_no_library_comes_for_it(
    place: Place, verb: str, jobs: set[str]
) -> None:
    modules = imported(verb, "--now", NOW, "--quiet", cwd=place.folder, MONGODB_URI=place.uri)
    assert modules.isdisjoint(
        {"apscheduler", "boto3", "distributed", "duckdb", "jinja2", "obstore", "pyarrow", "structlog"}
    )
    assert rooms(modules) == SHARED | jobs
