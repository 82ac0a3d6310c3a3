"""The second reader over each archive that a proof leaves in its folder: it reads what is whole."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pydantic import SecretStr

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.encrypted import EncryptionKeys, Keyring
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Store

PROGRAM = Path(__file__).parents[1] / "ops" / "unarchive.py"
#: Sections of more BSON are left out: the reader goes value by value.
_MOST_BYTES = 1_000_000
#: The keys under which tests encrypt archives that are read here.
SECRETS = ("k" * 40, "o" * 40, "0123456789abcdef" * 2)


@cache
def reader() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("unarchive", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


class SecondReader:
    """A plugin of pytest that reads what a test has left in its folder."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Any:
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        if isinstance(folder, Path):
            for manifests in sorted(folder.rglob("meta/manifests")):
                self._read(manifests)
        return (yield)

    def _read(self, manifests: Path) -> None:
        policy = manifests.parents[1]
        archive = _unlocked(policy)
        for path in sorted(manifests.glob("*.json")):
            manifest = _manifest(archive, path, path.relative_to(policy.parent).as_posix())
            if not isinstance(manifest, dict) or "sections" not in manifest:
                continue
            for section, parts in reader().sections(manifest):
                named = [*parts, section["buckets_file"]]
                if section["documents_bytes"] > _MOST_BYTES:
                    continue
                whole = all(
                    _is_whole(policy.parent / it["key"], it["sha256"], archive.data_keys) for it in named
                )
                try:
                    units = list(reader().units(archive, manifest, section, parts))
                except (reader().BadArchive, pa.ArrowException):
                    assert not whole, f"{path}: the second reader can't read what is whole"
                    continue
                assert whole, f"{path}: the second reader takes what was changed"
                self.read["documents"] += sum(1 + len(overflow) for _, overflow, _ in units)
            self.read["commits"] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["second_reader"] = dict(self.read)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.read.update(getattr(node, "workeroutput", {}).get("second_reader", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(
            f"second reader: {self.read['commits']} commits, {self.read['documents']} documents, to the bit"
        )


def _unlocked(policy: Path) -> Any:
    """The archive, with whichever of the secrets its keyring has; without, if a test has damaged it."""
    keyring, program = policy / "meta/keyring.json", reader()
    if not keyring.exists():
        return program.open_archive(str(policy.parent), policy.name)
    for secret in SECRETS:
        with suppress(program.BadArchive):
            return program.open_archive(str(policy.parent), policy.name, secret)
    with suppress(BucketwiseError):
        Keyring.read(keyring.read_bytes(), EncryptionKeys(*SECRETS), str(keyring))
        pytest.fail(f"{keyring}: the second reader can't open what the first one does")
    files, root = program.fs.FileSystem.from_uri(policy.parent.as_uri())
    return program.Archive(files, root, policy.name)


def _manifest(archive: Any, path: Path, key: str) -> Any:
    """A manifest; None if a test has damaged it: then the first reader can't read it either."""
    settings = Store(url=f"file://{archive.root}", encryption_key=tuple(map(SecretStr, SECRETS)))
    first = second = None
    with suppress(BucketwiseError):
        first = open_store(settings).opened(key, path.read_bytes())
    with suppress(reader().BadArchive):
        second = archive.read(key)
    assert first == second, f"{path}: the second reader reads other bytes than the first"
    try:
        if second:  # a forged one is refused: it is no manifest, or of no policy
            Manifest.model_validate_json(second).archived_policy  # noqa: B018
        return json.loads(second or b"null")
    except (ValueError, KeyError, BucketwiseError):
        return None


def _is_whole(path: Path, digest: str, data_keys: dict[bytes, bytes]) -> bool:
    """Whether a file is what its manifest says, and its key is there."""
    content = path.read_bytes() if path.exists() else b""
    return hashlib.sha256(content).hexdigest() == digest and (
        not content.startswith(b"PARE") or bool(data_keys)
    )
