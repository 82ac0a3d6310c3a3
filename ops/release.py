"""Builds a release into a folder and prints what is in it: `make release`. Nothing is uploaded.

Wheel and source distribution, the image, the bill of materials of what it installs, the manual as a site, the
schema of the policy file, and the digests of all.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bucketwise import __version__

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


class ReleaseError(Exception):
    """A step failed; the message says which, and why."""


def main(arguments: Sequence[str]) -> int:
    """Builds the release; returns 0, or 1 where something of it could not be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "release" / __version__)
    parser.add_argument("--without-image", action="store_true", help="build no image")
    parser.add_argument(
        "--image-by", choices=[it.program for it in BUILDERS], help="build it by this program"
    )
    parser.add_argument("--allow-changes", action="store_true", help="from a tree with uncommitted changes")
    options = parser.parse_args(arguments)
    try:
        builder = None if options.without_image else _builder(options.image_by)
        folder = build(options.output.resolve(), builder, is_clean=not options.allow_changes)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"bucketwise {__version__} in {folder}")
    for path in sorted(folder.iterdir()):
        print(f"  {path.stat().st_size:>12,}  {path.name}")
    return 0


def build(folder: Path, builder: Builder | None, *, is_clean: bool) -> Path:
    """Returns the folder with the release: a new one, complete or not there. Without a builder it has no
    image. Raises ReleaseError."""
    if is_clean and (changed := _run("look at the tree", "git", "status", "--porcelain")):
        raise ReleaseError(f"there are uncommitted changes:\n{changed}")
    if folder.exists():
        raise ReleaseError(f"{folder} is there already: remove it, or name another one with --output")
    half = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        _run(
            "read what 0.1.0 wrote", BIN / "pytest", "-q", "-p", "no:xdist", "tests/released/test_released.py"
        )
        _run("build the packages", BIN / "python", "-m", "build", "--no-isolation", "--outdir", half)
        _materials(half)
        _site(half)
        (half / "bucketwise.schema.json").write_text(
            _run("write the schema", BIN / "bucketwise", "config", "schema")
        )
        if builder is not None:
            _image(builder, half)
        digests = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(half.iterdir())
        }
        (half / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
        half.rename(folder)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    return folder


def _materials(folder: Path) -> None:
    """Writes the bill of materials: all that the lock file names, with its digests."""
    output = folder / f"bucketwise-{__version__}.cdx.json"
    options = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-format", "JSON")
    command = (BIN / "cyclonedx-py", "requirements", *options, "--output-file", output, "requirements.lock")
    _run("write the bill of materials", *command)


def _site(folder: Path) -> None:
    """Writes the manual of this version: a folder to unpack beside those of others."""
    site = folder / "site"
    _run("build the site", BIN / "mkdocs", "build", "--quiet", "--site-dir", site)
    with tarfile.open(folder / f"bucketwise-{__version__}-manual.tar.gz", "w:gz") as archive:
        archive.add(site / __version__, __version__)
    shutil.rmtree(site)


@dataclass(frozen=True)
class Builder:
    """A program that builds images. `answers`: fails where it can't work; `save`: writes NAME as FILE."""

    program: str
    answers: tuple[str, ...]
    build: tuple[str, ...]
    save: tuple[str, ...]

    def obstacle(self) -> str | None:
        """Returns why it can build nothing here; None where it can."""
        if shutil.which(self.program) is None:
            return "is not installed"
        ran = subprocess.run([self.program, *self.answers], capture_output=True, text=True)
        told = ran.stderr.strip().splitlines() or ["does not say why"]
        return f"does not work: {told[-1]}" if ran.returncode else None

    def commands(self, name: str, file: Path) -> Iterator[list[str]]:
        """Yields the commands that build the image and write it, as an archive that all of them load."""
        for arguments in (self.build, self.save):
            yield [self.program, *(it.replace("NAME", name).replace("FILE", str(file)) for it in arguments)]


#: The first that works here builds the image.
BUILDERS = (
    Builder("docker", ("version",), ("build", "--tag", "NAME", "."), ("save", "--output", "FILE", "NAME")),
    Builder(
        "podman",
        ("info",),
        ("build", "--format", "docker", "--tag", "NAME", "."),
        ("save", "--format", "docker-archive", "--output", "FILE", "NAME"),
    ),
    Builder(
        "buildah",
        ("info",),
        ("build", "--format", "docker", "--tag", "NAME", "."),
        ("push", "NAME", "docker-archive:FILE:NAME"),
    ),
)


def _builder(named: str | None) -> Builder:
    """Returns the program that builds the image: the first that can, or the one that was named. Raises
    ReleaseError where none can."""
    asked = [it for it in BUILDERS if named in (None, it.program)]
    obstacles = {it.program: it.obstacle() for it in asked}
    found = next((it for it in asked if obstacles[it.program] is None), None)
    if found is None:
        told = "; ".join(f"{program} {obstacle}" for program, obstacle in obstacles.items())
        raise ReleaseError(
            f"nothing builds the image: {told}. Install one of them (on Debian and Ubuntu: apt-get "
            "install buildah), or build no image: --without-image"
        )
    return found


def _image(builder: Builder, folder: Path) -> None:
    file = folder / f"bucketwise-{__version__}-image.tar"
    for command in builder.commands(f"bucketwise:{__version__}", file):
        _run(f"build the image by {builder.program}", *command)


def _run(what: str, *command: str | Path) -> str:
    """Returns what a program prints. Raises ReleaseError, with the end of what it said."""
    ran = subprocess.run([str(it) for it in command], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise ReleaseError(f"{what}: {(ran.stderr + ran.stdout).strip()[-2000:]}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
