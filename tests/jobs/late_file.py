"""Meddles with `init`: its file is made by somebody else just before it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def install(path: str) -> None:
    """Makes the file when it is first opened for writing."""
    opened = Path.open

    def meddled(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "x" and str(self.absolute()) == path:
            with opened(Path(path), "w") as file:
                file.write("mine")
        return opened(self, mode, *arguments, **options)

    Path.open = meddled  # type: ignore[method-assign]
