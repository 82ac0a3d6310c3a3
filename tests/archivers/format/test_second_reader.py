"""`ops/unarchive.py`, the second reader of archives: it knows the page of the format, not the program."""

from __future__ import annotations

import ast
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.stores import open_store
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, Case, deletable, raw_documents, slots
from tests.archivers.harness import Cycle
from tests.archivers.states import all_archived, archived_every_few_hours
from tests.conftest import S3Server
from tests.second_reader import PROGRAM, reader

Document = dict[str, Any]
CASES = {case.name: case for case in deletable()}


def ran(*arguments: object) -> int:
    return int(reader().main([str(it) for it in arguments]))


def written(folder: Path, collection: str) -> list[bytes]:
    path = folder / f"{collection}.bson"
    return (
        sorted(bytes(it.raw) for it in bson.decode_file_iter(path.open("rb"), RAW)) if path.exists() else []
    )


RAW = bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)


def test_it_uses_nothing_of_bucketwise() -> None:
    source = PROGRAM.read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.name for node in imports if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
    outside = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert outside == {"bson", "pyarrow"}
    assert len(source.splitlines()) <= 400


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("state", [all_archived, archived_every_few_hours])
@pytest.mark.parametrize("name", sorted(CASES))
def test_it_gives_back_what_was_archived_to_the_bit(
    name: str, state: Any, prepared: Any, tmp_path: Path
) -> None:
    cycle: Cycle = prepared(CASES[name], state)
    case, place = cycle.case, (cycle.root, cycle.policy.identity)
    assert ran("check", *place) == 0
    assert ran("write", *place, "--into", tmp_path / "all") == 0
    assert written(tmp_path / "all", case.policy.collection) == sorted(case.documents)
    if case.policy.overflow:
        assert written(tmp_path / "all", case.policy.overflow.collection) == sorted(case.overflow)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("hours", [(0, 5), (7, 30)])
def test_of_a_range_it_gives_what_restore_does(
    name: str, hours: tuple[int, int], prepared: Any, tmp_path: Path
) -> None:
    cycle: Cycle = prepared(CASES[name], archived_every_few_hours)
    since, until = (DAY0 + timedelta(hours=it) for it in hours)
    cycle.restore("back", since=since, until=until)
    span = ("--since", since.isoformat(), "--until", until.isoformat())
    assert ran("write", cycle.root, cycle.policy.identity, "--into", tmp_path / "some", *span) == 0
    found = written(tmp_path / "some", cycle.policy.collection)
    restored = raw_documents(cycle.database, "back")
    assert set(found) >= set(restored)
    more = [bson.decode(it) for it in set(found) - set(restored)]
    assert len(found) == len(restored) + len(more)
    assert all(it["samples"] == [] for it in more)  # only its model tells when one without readings was


def test_it_names_each_object_that_was_changed(
    database: Database[Document], file_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    cycle = Cycle(database, slots(), file_store, keys=Keys("a key of thirty-two characters, at least")).load()
    archived_every_few_hours(cycle)
    cycle.compact()
    monkeypatch.setenv("KEY", "a key of thirty-two characters, at least")
    asked = ("check", cycle.root, cycle.policy.identity, "--key-variable", "KEY")
    assert ran(*asked) == 0
    marks = ("/data/", "/manifests/", "/buckets/", "/superseded/", "/checkpoints/")
    files = [it for it in cycle.root.rglob("*") if it.is_file() and any(mark in str(it) for mark in marks)]
    assert files
    capsys.readouterr()
    for path in files:
        content = path.read_bytes()
        for changed in (content[:40] + bytes([content[40] ^ 1]) + content[41:], content[:-9], b""):
            path.write_bytes(changed)
            found = ran(*asked)
            told = capsys.readouterr().err
            assert found == 1, path
            assert path.name in told or path.name.partition("_")[2].removesuffix(".json") in told
        path.write_bytes(content)
    monkeypatch.setenv("KEY", "another key of thirty-two characters")
    assert ran(*asked) == 1


def test_usage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("list", tmp_path, "ticks") == 1
    assert "has no archive of ticks" in capsys.readouterr().err
    for wrong in (("write", tmp_path, "ticks"), ("write", tmp_path, "ticks", "--into", tmp_path)):
        with pytest.raises(SystemExit) as ended:
            ran(*wrong)
        assert ended.value.code == 2


def test_it_reads_a_store_in_s3(
    database: Database[Document],
    moto_store: Store,
    moto_server: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case: Case = slots()
    cycle = Cycle(database, case, moto_store).load()
    cycle.run()
    assert open_store(moto_store).list()
    host = moto_server.endpoint_url.removeprefix("http://")
    url = f"{moto_store.url}?scheme=http&endpoint_override={host}&region={moto_store.region}"
    assert ran("list", url, cycle.policy.identity) == 0
    assert f"{len(case.readings)} readings" in capsys.readouterr().out
    assert ran("write", url, cycle.policy.identity, "--into", tmp_path / "all") == 0
    assert written(tmp_path / "all", case.policy.collection) == sorted(case.documents)
