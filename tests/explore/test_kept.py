"""What is learned of the model is kept until a file of it changes."""

from __future__ import annotations

from pathlib import Path

from tests.explore.kept import learned
from tests.explore.paths import Paths


def test_it_is_learned_once_and_anew_where_a_file_has_changed(tmp_path: Path) -> None:
    times: list[str] = []

    def learn() -> Paths:
        times.append(source.read_text())
        found = Paths()
        found.starts[source.read_text()].add((("run", 1),))
        return found

    source, folder = tmp_path / "model.py", tmp_path / "kept"
    for text in ("one", "one", "two", "two"):
        source.write_text(text)
        found = learned(folder, "paths", [source], learn)
        assert dict(found.starts) == {text: {(("run", 1),)}}
    assert times == ["one", "two"]
    assert len(list(folder.glob("*.pickle"))) == 1
