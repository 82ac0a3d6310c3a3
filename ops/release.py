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
    parser.add_argument("--allow-changes", action="store_true", help="from a tree with uncommitted changes")
    options = parser.parse_args(arguments)
    try:
        folder = build(
            options.output, has_image=not options.without_image, is_clean=not options.allow_changes
        )
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"bucketwise {__version__} in {folder}")
    for path in sorted(folder.iterdir()):
        print(f"  {path.stat().st_size:>12,}  {path.name}")
    return 0


def build(folder: Path, *, has_image: bool, is_clean: bool) -> Path:
    """Returns the folder with the release: a new one, complete or not there. Raises ReleaseError."""
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
        if has_image:
            _image(half)
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
    site = folder / "site"
    _run("build the site", BIN / "mkdocs", "build", "--quiet", "--site-dir", site)
    with tarfile.open(folder / f"bucketwise-{__version__}-manual.tar.gz", "w:gz") as archive:
        archive.add(site, f"bucketwise-{__version__}-manual")
    shutil.rmtree(site)


def _image(folder: Path) -> None:
    """Writes the image, by whichever of two programs is there."""
    name, target = f"bucketwise:{__version__}", folder / f"bucketwise-{__version__}-image.tar"
    found = next((it for it in ("buildah", "docker") if shutil.which(it)), None)
    if found is None:
        raise ReleaseError(
            "build the image: neither buildah nor docker is installed; install one, or --without-image"
        )
    for command in _image_commands(found, name, target):
        _run("build the image", *command)


def _image_commands(program: str, name: str, target: Path) -> Iterator[Sequence[str]]:
    if program == "buildah":
        yield ("buildah", "build", "--format", "docker", "--tag", name, ".")
        yield ("buildah", "push", name, f"oci-archive:{target}")
    else:
        yield ("docker", "build", "--tag", name, ".")
        yield ("docker", "save", "--output", str(target), name)


def _run(what: str, *command: str | Path) -> str:
    """Returns what a program prints. Raises ReleaseError, with the end of what it said."""
    ran = subprocess.run([str(it) for it in command], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise ReleaseError(f"{what}: {(ran.stderr + ran.stdout).strip()[-2000:]}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
