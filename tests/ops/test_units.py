"""The systemd units and the CronJob: valid, and with a command line that bucketwise takes."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bucketwise.jobs import cli
from bucketwise.jobs.schedule.server import HEALTH
from tests.docs.pages import ROOT
from tests.docs.played.test_container import image_environment, last
from tests.ops.debian import program

OPS = ROOT / "ops"
SERVICE = "bucketwise-schedule.service"
INSTALLED = "/opt/bucketwise/bin/bucketwise"


def verify(folder: Path, *names: str) -> str:
    """What systemd has to say of units. Of an unknown key it warns only, so that silence is wanted."""
    units = [str(folder / name) for name in names]
    command = [program("systemd-analyze", "systemd"), "verify", "--man=no", *units]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr + ("" if ran.returncode == 0 else f"ended with {ran.returncode}")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, on a machine where bucketwise is installed."""
    program = tmp_path / "bucketwise"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("bucketwise.service", "bucketwise.timer", SERVICE):
        (tmp_path / name).write_text((OPS / name).read_text().replace(INSTALLED, str(program)))
    return tmp_path


@pytest.mark.process
def test_units_are_valid(units: Path) -> None:
    assert verify(units, "bucketwise.timer", "bucketwise.service", SERVICE) == ""


@pytest.mark.process
def test_what_is_wrong_would_be_told(units: Path) -> None:
    service = units / "bucketwise.service"
    service.write_text(service.read_text().replace("PrivateTmp", "PrivatTmp"))
    assert "PrivatTmp" in verify(units, "bucketwise.service")


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(OPS / name)
    return found


def takes(arguments: list[str]) -> None:
    command: Any = cli.program()
    command.commands[arguments[0]].make_context(arguments[0], list(arguments[1:]))


def test_the_service_runs_what_bucketwise_takes() -> None:
    service = unit("bucketwise.service")["Service"]
    installed, *arguments = shlex.split(service["ExecStart"])
    assert installed == INSTALLED
    takes(arguments)
    assert service["SuccessExitStatus"].split() == ["3", "130"]


def test_the_service_that_stays_up_runs_what_bucketwise_takes() -> None:
    service = unit(SERVICE)["Service"]
    installed, *arguments = shlex.split(service["ExecStart"])
    assert installed == INSTALLED
    takes(arguments)
    assert (service["Type"], service["Restart"]) == ("exec", "on-failure")


def test_the_cron_job_runs_what_the_image_takes() -> None:
    (document,) = yaml.safe_load_all((OPS / "cronjob.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "CronJob")
    assert document["spec"]["concurrencyPolicy"] == "Forbid"
    check_pod(document["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    assert re.fullmatch(r"\S+ \S+ \S+ \S+ \S+", document["spec"]["schedule"])


def test_the_deployment_runs_what_the_image_takes() -> None:
    (document,) = yaml.safe_load_all((OPS / "deployment.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "Deployment")
    assert (document["spec"]["replicas"], document["spec"]["strategy"]["type"]) == (1, "Recreate")
    template = document["spec"]["template"]
    assert document["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    check_pod(template["spec"])
    (container,) = template["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == HEALTH
    assert str(container["ports"][0]["containerPort"]) in container["args"]


def check_pod(pod: Any) -> None:
    """It runs as the image's user, with a command line that bucketwise takes, and mounts what it has."""
    user, _, group = last("USER").partition(":")
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsGroup"] == int(group)
    (container,) = pod["containers"]
    takes(container["args"])
    mounts = {it["name"]: it["mountPath"] for it in container["volumeMounts"]}
    assert mounts["config"] == str(Path(image_environment()["BUCKETWISE_CONFIG"]).parent)
    assert set(mounts) == {it["name"] for it in pod["volumes"]}
