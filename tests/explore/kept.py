"""What takes long to learn of the model is learned once, by whichever test process comes first, and kept for
as long as nothing of it changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = _ROOT / ".pytest_cache"
#: What the model does follows from these.
_SOURCES = ("tests/explore", "archivers", "jobs/core", "rollups", "config")


def sources() -> list[Path]:
    """Returns the files from which follows what the model does."""
    return sorted(path for it in _SOURCES for path in (_ROOT / it).rglob("*.py"))


def learned(folder: Path, name: str, of: Iterable[Path], learn: Callable[[], Any]) -> Any:
    """Returns what `learn` returns, or returned when these files were last as they are."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in of)).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    kept = folder / f"{name}-{digest}.pickle"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one learns, and the others wait
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        found = learn()
        for old in folder.glob(f"{name}-*.pickle"):
            old.unlink()
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(found))
        whole.rename(kept)
    return found
