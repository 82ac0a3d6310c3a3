"""Archives that are encrypted: no reading in the clear, no key no reading, and keys that change."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from bson import encode

from bucketwise.archivers.stores.base import Corrupt
from bucketwise.archivers.stores.encrypted import EncryptedStore, EncryptionKeys
from bucketwise.archivers.stores.file import FileStore
from tests.jobs.place import Place
from tests.jobs.states import after

KEY, OTHER = "k" * 40, "o" * 40


def use(place: Place, *keys: str, more: str = "") -> None:
    place.write_config()
    said = place.config.read_text()
    listed = ", ".join(f'"{it}"' for it in keys)
    place.config.write_text(said.replace("[store]", f"[store]\nencryption_key = [{listed}]\n{more}"))


def files(place: Place) -> dict[str, bytes]:
    store = place.folder / "store"
    return {str(it.relative_to(store)): it.read_bytes() for it in store.rglob("*") if it.is_file()}


def test_nothing_of_a_reading_or_a_series_is_in_the_clear(place: Place) -> None:
    use(place, KEY)
    raw = sorted(encode(it) for it in place.database.ticks.find())
    ran = place("run", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["archive"]["deleted"]) == (0, len(raw))
    found = files(place)
    parts = [it for it in found if it.endswith(".parquet")]
    assert len(parts) == 2 and all(found[it].startswith(b"PARE") for it in parts)
    for name, data in found.items():
        assert b"MDB" not in data and b"symbol" not in data, name
    assert place("verify", "-p", "ticks").code == place("audit", "-p", "ticks").code == 0
    assert place("drill", "-p", "ticks").code == place("check", "-p", "ticks").code == 0
    assert place("restore", "-p", "ticks", "--to", "back").code == 0
    assert sorted(encode(it) for it in place.database.back.find()) == raw
    rows = place("query", "SELECT count(*) AS n, min(symbol) AS s FROM ticks", "--json", now=None)
    assert rows.json["rows"] == [[10_800, "MDB"]]
    before = place.everything()
    assert place("run", "-p", "ticks").code == 0
    assert {k: v for k, v in place.everything().items() if k.endswith(".parquet")} == {
        k: v for k, v in before.items() if k.endswith(".parquet")
    }


def test_others_read_parts_with_the_key(place: Place) -> None:
    """As the manual says."""
    encrypted(place)
    manual = Path(__file__).parents[3] / "docs/encryption.md"
    (told,) = re.findall(r"```python\n(.*?)```", manual.read_text(), re.DOTALL)
    part = next((place.folder / "store/ticks/data").rglob("*.parquet"))
    scope: dict[str, Any] = {}
    exec(told, scope)
    table, key = scope["read_part"](place.folder / "store", "ticks", KEY, part)
    assert table.num_rows == 10_800 and table["symbol"][0].as_py() == "MDB"
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('part', '{key}')")
        found = f"read_parquet('{part}', encryption_config = {{footer_key: 'part'}})"
        rows = connection.execute(f"SELECT count(*), min(symbol) FROM {found}").fetchall()
    assert rows == [(10_800, "MDB")]


def encrypted(place: Place) -> None:
    use(place, KEY)
    assert place("run", "-p", "ticks").code == 0


@pytest.mark.proof
def test_without_the_key_nothing_is_read_or_written(place: Place) -> None:
    encrypted(place)
    place.load()
    for keys in ((), (OTHER,)):
        use(place, *keys)
        before = files(place), place.database.ticks.count_documents({})
        for verb in ("run", "verify", "restore", "compact"):
            ran = place(verb, "-p", "ticks", *(["--to", "back"] if verb == "restore" else []))
            assert ran.code == 5, ran
            assert "store.encryption_key" in ran.err and KEY not in ran.err, ran
        assert place("check", "-p", "ticks", "--json").code == 1
        assert (files(place), place.database.ticks.count_documents({})) == before


@pytest.mark.proof
def test_another_key_takes_over(place: Place) -> None:
    encrypted(place)
    before = files(place)
    use(place, OTHER, KEY)
    assert place("verify", "-p", "ticks").code == 0
    assert place("rekey", "-p", "ticks", "--json").policy("ticks")["rekeyed"] == 1
    changed = {name for name, data in files(place).items() if before[name] != data}
    assert changed == {"ticks/meta/keyring.json"}
    use(place, OTHER)
    assert place("verify", "-p", "ticks").code == place("audit", "-p", "ticks").code == 0
    use(place, KEY)
    assert place("verify", "-p", "ticks").code == 5


@pytest.mark.proof
@after("run")
def test_what_was_archived_before_is_read_as_it_lies(place: Place) -> None:
    use(place, KEY)
    assert place("audit", "-p", "ticks").code == 0
    place.load()
    assert place("run", "-p", "ticks").code == place("audit", "-p", "ticks").code == 0
    parts = [data[:4] for name, data in files(place).items() if name.endswith(".parquet")]
    assert sorted(parts) == [b"PAR1"] * 2 + [b"PARE"] * 2


def test_a_file_in_the_place_of_another_and_a_lost_keyring(place: Place) -> None:
    encrypted(place)
    store = place.folder / "store"
    keyring = store / "ticks/meta/keyring.json"
    kept = keyring.read_bytes()
    keyring.unlink()
    ran = place("run", "-p", "ticks")
    assert (ran.code, "keyring is missing" in ran.err) == (5, True), ran
    assert not keyring.exists()
    keyring.write_bytes(kept)
    owner = store / "ticks/meta/owner.json"
    shutil.copy(next((store / "ticks/meta/manifests").iterdir()), owner)
    ran = place("run", "-p", "ticks")
    assert (ran.code, "under another name" in ran.err) == (5, True), ran


def test_a_command_prints_the_keys(place: Place) -> None:
    place.write_config()
    said = place.config.read_text()
    place.config.write_text(said.replace("[store]", f"[store]\nkey_command = \"printf '{KEY}\\\\n'\""))
    assert place("run", "-p", "ticks").code == 0
    use(place, KEY)
    assert place("verify", "-p", "ticks").code == 0
    place.config.write_text(said.replace("[store]", '[store]\nkey_command = "exit 3"'))
    ran = place("verify", "-p", "ticks")
    assert (ran.code, "store.key_command: it ended with 3" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('key_command = "cat key"', "leave one of them out"),
        ('[lake]\ncatalog = "bucketwise"', "nothing encrypts"),
    ],
)
def test_what_does_not_go_with_encryption(untouched: Place, more: str, message: str) -> None:
    place = untouched
    before = place.config.read_text()
    head, _, rest = before.partition("[policies")
    listed = head.replace("[store]", f'[store]\nencryption_key = "{KEY}"') + more + "\n[policies" + rest
    place.config.write_text(listed)
    ran = place("check")
    place.config.write_text(before)
    assert (ran.code, message in ran.err) == (2, True), ran


def test_a_plain_commit_is_damage_behind_the_first_encrypted_one(tmp_path: Path) -> None:
    """Whatever the database knows; and nothing that is left out of the keyring changes that."""

    def manifest(number: int, folder: str) -> str:
        return f"{folder}/meta/manifests/{number:010}_x.json"

    plain = FileStore(tmp_path)
    plain.put_bytes(manifest(1, "mixed"), b"{}")
    keys = EncryptionKeys(KEY)
    written = EncryptedStore(plain, lambda: keys)
    written.put_bytes(manifest(2, "mixed"), b"{}")
    written.put_bytes("whole/meta/owner.json", b"{}")
    assert plain.get_bytes(manifest(2, "mixed")).startswith(b"BWE1")
    for folder in ("mixed", "whole"):
        plain.put_bytes(manifest(3, folder), b"{}")
        with pytest.raises(Corrupt, match="it is not encrypted, and what lies beside it is"):
            EncryptedStore(plain, lambda: keys).get_bytes(manifest(3, folder))
    assert EncryptedStore(plain, lambda: keys).get_bytes(manifest(1, "mixed")) == b"{}"
    plain.put_bytes("whole/meta/checkpoints/1_x.json", b"{}")
    with pytest.raises(Corrupt):
        EncryptedStore(plain, lambda: keys).get_bytes("whole/meta/checkpoints/1_x.json")
    assert EncryptedStore(plain, lambda: keys).rekey("whole") == 1
    ring = json.loads(plain.get_bytes("whole/meta/keyring.json"))
    others = json.loads(plain.get_bytes("mixed/meta/keyring.json"))["encrypted_from"]
    for forged in ({**ring, "encrypted_from": others}, {"format": 1, "keys": ring["keys"]}):
        plain.put_bytes("whole/meta/keyring.json", json.dumps(forged).encode())
        with pytest.raises(Corrupt):
            EncryptedStore(plain, lambda: keys).get_bytes(manifest(3, "whole"))
