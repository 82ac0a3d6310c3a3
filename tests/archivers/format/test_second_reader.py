"""`ops/unarchive.py`, the second reader of archives: it knows the page of the format, not the program."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pydantic import SecretStr
from pymongo.database import Database

from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.stores import open_store
from bucketwise.config.policies import ValueField
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, Case, deletable, raw_documents, slots
from tests.archivers.harness import Cycle
from tests.archivers.states import all_archived, archived_every_few_hours
from tests.conftest import S3Server
from tests.second_reader import PROGRAM, SECRETS, reader

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
    assert outside == {"bson", "cryptography", "pyarrow"}
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


def test_columns_are_named_as_the_policy_names_values(
    database: Database[Document], file_store: Store, tmp_path: Path
) -> None:
    base = slots()
    field = ValueField.model_validate({"as": "price.at.noon"})
    policy = base.policy.model_copy(update={"values": {base.policy.value_fields[0]: field}})
    cycle = Cycle(database, replace(base, policy=policy), file_store).load()
    all_archived(cycle)
    assert ran("write", cycle.root, policy.identity, "--into", tmp_path / "all") == 0
    assert written(tmp_path / "all", policy.collection) == sorted(base.documents)


@pytest.mark.proof
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


SECRET = SECRETS[0]
SEALED = (b"BWE1", b"PARE")


@pytest.fixture
def encrypted(database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Cycle:
    """Several commits, one in the clear from before there was a key, and receipts that have moved."""
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("ANOTHER", SECRETS[1])
    cycle = Cycle(database, slots("minute").with_archive(move_receipts=timedelta(days=90)), file_store).load()
    cycle.run(DAY0 + timedelta(days=30, hours=2))
    cycle.store = open_store(file_store.model_copy(update={"encryption_key": (SecretStr(SECRET),)}))
    archived_every_few_hours(cycle)
    cycle.run(LATER + timedelta(days=200))
    return cycle


def test_it_reads_an_encrypted_archive(
    encrypted: Cycle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (encrypted.root, encrypted.policy.identity, "--secret-variable", "SECRET")
    begins = Counter(it.read_bytes()[:4] for it in encrypted.root.rglob("*.parquet"))
    assert begins[b"PAR1"] and begins[b"PARE"] > 2, begins
    receipts = list(encrypted.root.rglob("meta/receipts/*.gz"))
    assert {it.read_bytes()[:4] for it in receipts} == {b"BWE1"}
    assert ran("list", *place) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list(encrypted.root.rglob("manifests/*.json")))
    assert ran("check", *place) == 0
    told = capsys.readouterr().out
    assert f"{len(encrypted.case.readings)} readings" in told and " 0 moved receipts" not in told
    assert ran("write", *place, "--into", tmp_path / "all") == 0
    assert written(tmp_path / "all", encrypted.policy.collection) == sorted(encrypted.case.documents)


@pytest.mark.proof
def test_an_encrypted_archive_needs_its_secret(
    encrypted: Cycle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (encrypted.root, encrypted.policy.identity)
    for given in ((), ("--secret-variable", "ANOTHER")):
        for command in ("list", "check"):
            assert ran(command, *place, *given) == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert "meta/keyring.json needs the secret of key " in line and "--secret-variable" in line
    with pytest.raises(SystemExit) as ended:
        ran("list", *place, "--secret-variable", "NOT_THERE")
    assert (ended.value.code, "no NOT_THERE" in capsys.readouterr().err) == (2, True)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cryptography.exceptions", None)
        assert ran("list", *place, "--secret-variable", "SECRET") == 1
    assert "cryptography" in capsys.readouterr().err


@pytest.mark.proof
def test_it_names_an_encrypted_object_that_is_another(
    encrypted: Cycle, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("check", encrypted.root, encrypted.policy.identity, "--secret-variable", "SECRET")
    for kind in ("meta/manifests/*.json", "meta/receipts/*.gz", "data/*/*.parquet"):
        sealed = [it for it in sorted(encrypted.root.rglob(kind)) if it.read_bytes()[:4] in SEALED]
        path, content = sealed[0], sealed[0].read_bytes()
        flipped = content[:40] + bytes([content[40] ^ 1]) + content[41:]
        others = (flipped, content[:5], sealed[-1].read_bytes())
        for other in others if len(sealed) > 1 else others[:2]:
            path.write_bytes(other)
            assert ran(*asked) == 1, path
            assert path.name in capsys.readouterr().err
        path.write_bytes(content)
    keyring = next(encrypted.root.rglob("keyring.json"))
    content = keyring.read_bytes()
    for damaged in (content[:-9], b"{}", content.replace(b"wrapped", b"warped")):
        keyring.write_bytes(damaged)
        assert ran(*asked) == 1
        assert "keyring.json" in capsys.readouterr().err
    keyring.unlink()
    assert ran(*asked) == 1
    assert "the keyring does not hold" in capsys.readouterr().err


def test_usage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("list", tmp_path, "ticks") == 1
    assert "has no archive of ticks" in capsys.readouterr().err
    for wrong in (("write", tmp_path, "ticks"), ("write", tmp_path, "ticks", "--into", tmp_path)):
        with pytest.raises(SystemExit) as ended:
            ran(*wrong)
        assert ended.value.code == 2


@pytest.mark.proof
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
