"""The examples do what they say: against a database, and in the orchestrators that they are for."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bucketwise import Suite
from tests.docs.pages import ROOT
from tests.jobs.place import MINUTES, NOW, Place

EXAMPLES = ROOT / "examples"


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.proof
def test_every_method(
    place: Place, monkeypatch: pytest.MonkeyPatch, mongodb_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MONGODB_URI", mongodb_uri)
    _module("every_method").main(str(place.config), NOW)
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    methods = {it for it in vars(Suite) if not it.startswith("_")} - {"cancel"}
    assert told.keys() == methods | {"refused", "connect", "scan"}
    assert told["plan"] == f"{{'ticks': {MINUTES}, 'iot': {place.database.iot_archive.count_documents({})}}}"
    assert (told["readings"], told["restore"], told["connect"]) == ("10800", "180 180", "10800")
    assert (told["refused"], told["scan"]) == ("--since", "True")
    assert place.database.ticks_again.count_documents({}) == MINUTES


def _environment(folder: Path, package: str) -> Path:
    """An environment of its own with bucketwise and an orchestrator from the package index."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    pip = str(folder / "bin" / "pip")
    install = [pip, "install", "--quiet", "--disable-pip-version-check", package, str(ROOT)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "bin"


#: Both DAGs as Airflow reads them, and their tasks one after the other.
_AIRFLOW = """
import airflow_dag
from airflow.sdk import DAG

for dag in (airflow_dag.bucketwise_run(), airflow_dag.bucketwise_audit()):
    assert isinstance(dag, DAG)
    for task in dag.tasks:
        print(task.task_id, task.python_callable())
"""
#: By orchestrator: the example, and how it is run once.
_ONCE = {
    "apache-airflow>=3,<4": ("airflow_dag.py", ["python", "-c", _AIRFLOW]),
    "dagster>=1.9,<2": (
        "dagster_jobs.py",
        ["dagster", "job", "execute", "-f", "dagster_jobs.py", "-j", "bucketwise"],
    ),
    "prefect>=3,<4": ("prefect_flow.py", ["python", "prefect_flow.py", "--once"]),
}


@pytest.mark.proof
@pytest.mark.parametrize("package", _ONCE)
def test_it_runs_in_its_orchestrator(place: Place, tmp_path: Path, mongodb_uri: str, package: str) -> None:
    example, (program, *arguments) = _ONCE[package]
    programs = _environment(tmp_path / "environment", package)
    shutil.copy(EXAMPLES / example, tmp_path / example)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "BUCKETWISE_CONFIG": str(place.config),
        "MONGODB_URI": mongodb_uri,
        "LANG": "C.UTF-8",
    }
    ran = subprocess.run(
        [programs / program, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert place.database.ticks.count_documents({}) == 0
    assert place.database.iot.count_documents({}) == 0
