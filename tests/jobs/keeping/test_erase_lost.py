"""An erasure where the store has lost a manifest, or a copy has files that the store has not. It ends with 0
only if nothing of what was erased lies anywhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.jobs.copies.test_copies import copied
from tests.jobs.keeping.test_erase import SECRET, erase, fill, found
from tests.jobs.place import Place
from tests.jobs.walker import in_files


def lose(place: Place) -> tuple[Path, bytes]:
    """The store loses the manifest of its commit."""
    (path,) = place.folder.glob("store/ticks/meta/manifests/*.json")
    data = path.read_bytes()
    path.unlink()
    return path, data


def left(place: Place, commit: str) -> list[Path]:
    """What lies in the store and in its copy under the name of a commit, but for the link of the chain."""
    there = (it for name in ("store", "b") for it in (place.folder / name).rglob(f"*{commit}*"))
    return [it for it in there if it.parent.name != "superseded"]


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("has_copy", [True, False])
def test_a_manifest_that_the_store_has_lost(place: Place, has_copy: bool) -> None:
    if has_copy:
        copied(place, "b")
    fill(place)
    assert place("run", "-p", "ticks").code == 0
    path, data = lose(place)
    _, _, commit = path.stem.partition("_")
    before = left(place, commit)
    assert before
    ran = erase(place, "--confirm", "ticks")
    if not has_copy:
        assert ran.code == 5, ran
        assert left(place, commit) == before
        path.write_bytes(data)
        ran = erase(place, "--confirm", "ticks")
    assert ran.code == (3 if has_copy else 0), ran  # 3: something was read from the copy
    assert found(ran.policy("ticks")) == []
    assert left(place, commit) == []
    assert in_files(place.folder, SECRET) == []
    for verb in ("run", "verify", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb


def test_a_file_of_no_commit_that_a_copy_alone_has_is_told(place: Place) -> None:
    copied(place, "b")
    fill(place)
    assert place("run", "-p", "ticks").code == 0
    part = next(place.folder.glob("b/ticks/data/*/*.parquet"))
    planted = part.with_stem(part.stem[:-1] + ("0" if part.stem[-1] != "0" else "1"))
    planted.write_bytes(part.read_bytes())
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 3, ran
    assert [it["place"] for it in found(ran.policy("ticks"))] == [unquote(planted.as_uri())]
    planted.unlink()
    assert erase(place, "--confirm", "ticks").code == 0
