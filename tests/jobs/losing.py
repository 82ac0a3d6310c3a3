"""In a process: a store in a directory damages a file of each commit once it is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bucketwise.archivers.stores.file import FileStore


def install(kind: str, flips: bool) -> None:
    """`kind`: of the files, as a glob below the store. `flips`: a bit of it; else it is gone."""
    put = FileStore.put_bytes

    def put_bytes(self: FileStore, key: str, data: bytes, **given: Any) -> None:
        put(self, key, data, **given)
        if "/meta/manifests/" in key:
            damage(next(Path(self.url.removeprefix("file://")).rglob(kind)), flips=flips)

    FileStore.put_bytes = put_bytes  # type: ignore[method-assign]


def damage(path: Path, *, flips: bool) -> None:
    data = path.read_bytes()
    if flips:
        path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    else:
        path.unlink()
