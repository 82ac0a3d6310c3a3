"""The lock file of the image: each dependency is in it, at a version that the project allows."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT

LOCK = ROOT / "requirements.lock"


def locked() -> dict[str, str]:
    """The version of each package, by its normalised name."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), flags=re.MULTILINE))


def extras() -> list[str]:
    """The extras that the lock file was made for, by the command at its top."""
    return re.findall(r"--extra (\w+)", LOCK.read_text())


def test_each_dependency_is_locked_at_an_allowed_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(it for name in extras() for it in project["optional-dependencies"][name]),
    ]
    found = locked()
    for requirement in map(Requirement, wanted):
        version = found.get(canonicalize_name(requirement.name), "none")
        assert requirement.specifier.contains(version), f"{requirement}: locked is {version}"


def test_each_package_is_locked_by_its_digest_and_no_place() -> None:
    text = LOCK.read_text()
    assert len(re.split(r"(?m)^\S+==\S+ \\\n(?=    --hash=sha256:[0-9a-f]{64})", text)) == len(locked()) + 1
    assert "://" not in text


def test_the_image_can_do_all_but_the_demo_and_dask() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left_out = {"demo", "dask", "all", "test", "bench", "lint", "docs", "release"}
    assert {*left_out, *extras()} == set(project["optional-dependencies"])
