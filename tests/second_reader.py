"""The second reader over each archive that a proof leaves in its folder: it reads what is whole."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

PROGRAM = Path(__file__).parents[1] / "ops" / "unarchive.py"
#: Sections of more BSON are left out: the reader goes value by value.
_MOST_BYTES = 1_000_000


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
        archive = reader().open_archive(str(policy.parent), policy.name)
        for path in sorted(manifests.glob("*.json")):
            try:
                manifest = json.loads(path.read_bytes())
            except ValueError:
                continue  # a test has damaged it
            if not isinstance(manifest, dict) or "sections" not in manifest:
                continue
            for section, parts in reader().sections(manifest):
                named = [*parts, section["buckets_file"]]
                if section["documents_bytes"] > _MOST_BYTES:
                    continue
                whole = all(_is_whole(policy.parent / it["key"], it["sha256"]) for it in named)
                try:
                    units = list(reader().units(archive, manifest, section, parts))
                except (reader().BadArchive, pa.ArrowException):
                    assert not whole, f"{path}: the second reader can't read what is whole"
                    continue
                assert whole, f"{path}: the second reader takes what was changed"
                self.read["documents"] += sum(1 + len(unit.overflow) for unit in units)
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


def _is_whole(path: Path, digest: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest
