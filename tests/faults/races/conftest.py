from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.crashes.traces import follow, is_modelled
from tests.faults.scene import Scene
from tests.jobs.command import CommandLine, Meddle


@pytest.fixture(autouse=True)
def followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:  # noqa: ARG001
    """All that runs do is a path of the model, whoever else is at work: not restores to elsewhere, and not
    two policies in one log. `tmp_path`: logs lie there until the end."""
    runs: list[tuple[str, str, Path]] = []
    begin = Scene.begin

    def watched(
        self: Scene, verb: str = "run", *arguments: str, meddle: Meddle | None = None, **given: Any
    ) -> CommandLine:
        if is_modelled(self.text, verb) and "[policies.second]" not in self.text and "--to" not in arguments:
            log = self.folder / f"log-{len(runs)}"
            runs.append((self.text, verb, log))
            in_cloud = self.store.url.startswith("gs:")
            more = {"log": str(log), "folder": str(self.folder), "first": meddle, "in_cloud": in_cloud}
            meddle = "tests.faults.crashes.watched", more
        return begin(self, verb, *arguments, meddle=meddle, **given)

    monkeypatch.setattr(Scene, "begin", watched)
    yield
    assert not runs or sum(follow(*run) for run in runs) > 0
