"""A release with its image, built without a daemon, and the image's commands as an engine starts them.

The base is made of Debian's packages and gets the name that stands after FROM: no registry of images is used.
A command runs in the image's root, which is read-only, as the image's user and without capabilities.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs.played.test_container import ROOT, instructions
from tests.jobs.command import CommandLine, Ran
from tests.ops.debian import program

STORE = "/var/lib/bucketwise"
#: A package index may be reached by a proxy with a certificate of its own.
_CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"
_ENTER = f"""
root=$1 config=$2 store=$3; shift 3
mkdir -p "$root{STORE}"
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$config" "$root/etc/bucketwise"
mount -o remount,bind,ro "$root/etc/bucketwise"
mount --bind "$store" "$root{STORE}"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Image:
    """A built image: its files, and what its configuration says."""

    root: Path
    config: Mapping[str, Any]

    @contextmanager
    def started(self, *command: str, place: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """A process in the image, ended with the block. `place` has the policy file, and the store."""
        store = place / "store"
        store.mkdir(exist_ok=True)
        user, group = self.config["User"].split(":")
        os.chown(store, int(user), int(group))
        place.chmod(0o755)
        enter = ["unshare", "--mount", "sh", "-euc", _ENTER, "sh", str(self.root), str(place), str(store)]
        enter += [
            "env",
            f"--chdir={self.config['WorkingDir']}",
            "setpriv",
            f"--reuid={user}",
            f"--regid={group}",
        ]
        enter += ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        given = dict(pair.split("=", 1) for pair in self.config["Env"])
        with subprocess.Popen(
            [*enter, *command],
            env=given | {"HOME": "/nonexistent"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *command: str, place: Path, **environment: str) -> Ran:
        with self.started(*command, place=place, **environment) as process:
            out, err = process.communicate(timeout=300)
        return Ran(process.returncode, out, err, [])


class Commands(CommandLine):
    """The entry point of an image, in the form in which other tests call bucketwise."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> Ran:
        entry = self._image.config["Entrypoint"]
        return self._image.run(*entry, *arguments, place=cwd, **environment)


@contextmanager
def built(folder: Path) -> Iterator[tuple[Path, Image]]:
    """Builds a release with `folder` for all files, and gives the folder that it is in, and its image, read
    from there; some minutes and 4 GB."""
    if os.geteuid() != 0:
        pytest.fail("the image is built and entered as root, without a daemon")
    buildah = program("buildah", "buildah")
    environment = _environment(folder)

    def run(*command: str) -> str:
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command[:2]}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        return ran.stdout.strip()

    try:
        (base,) = {argument.split()[0] for name, argument in instructions() if name == "FROM"}
        container = run(buildah, "from", "scratch")
        _fill(Path(run(buildah, "mount", container)), base)
        run(buildah, "commit", "--quiet", "--rm", container, f"docker.io/library/{base}")
        release = folder / "release"
        options = ("--image-by", "buildah", "--allow-changes", "--output", str(release))
        told = run(sys.executable, str(ROOT / "ops" / "release.py"), *options)
        assert all(path.name in told for path in release.iterdir())
        run(buildah, "rmi", "--all", "--force")
        (file,) = release.glob("*-image.tar")
        container = run(buildah, "from", f"docker-archive:{file}")
        config = json.loads(run(buildah, "inspect", container))["Docker"]["config"]
        yield release, Image(Path(run(buildah, "mount", container)), config)
    finally:
        run(buildah, "rm", "--all")
        run(buildah, "rmi", "--all", "--force")


def _environment(folder: Path) -> dict[str, str]:
    """What makes buildah work in a container that has no rights of its own, with all files in `folder`."""
    (storage := folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
    )
    (containers := folder / "containers.conf").write_text(f'[containers]\nvolumes = ["{_CERTIFICATES}"]\n')
    return os.environ | {
        "TMPDIR": str(folder),
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_CONF": str(containers),
    }


def _fill(root: Path, base: str) -> None:
    """What the official image of Python has, of Debian's: a Python in /usr/local with an installer."""
    named = re.fullmatch(r"python:([\d.]+)-slim-(\w+)", base)
    assert named is not None, base
    version, suite = named.groups()
    debootstrap = [program("debootstrap", "debootstrap"), "--variant=minbase"]
    for command in (
        [*debootstrap, "--include=ca-certificates,python3-venv", suite, str(root)],
        ["chroot", str(root), f"python{version}", "-m", "venv", "/usr/local"],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{command[0]}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
