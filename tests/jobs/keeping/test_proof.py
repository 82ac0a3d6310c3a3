"""The command line where the archive has to be proven: a key, a store that was put back, receipts."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise import __version__
from tests.jobs.command import Ran
from tests.jobs.place import MINUTES, START, Place
from tests.jobs.states import after

KEY = "hunter2-hunter2-hunter2-hunter2-hunter2"


def set_key(place: Place, key: str) -> None:
    lines = [it for it in place.config.read_text().splitlines() if not it.startswith("signing_key")]
    at = lines.index("[store]") + 1
    place.config.write_text("\n".join([*lines[:at], f"signing_key = {key}", *lines[at:], ""]))


def shown(ran: Ran) -> str:
    return ran.out + ran.err


@pytest.mark.proof
@after("run")
def test_signing_from_off_to_on_to_another_key(place: Place) -> None:
    """Each step says what to do next; the key is in nothing that is printed or written."""
    set_key(place, f'"{KEY}"')
    refused = place("run", "--json")
    assert refused.code == 5
    assert "bucketwise sign" in refused.policy("ticks")["error"]
    signed = place("sign", "--json")
    assert signed.code == 0
    assert (signed.policy("ticks")["manifests"], signed.policy("ticks")["receipts"]) == (1, 1)
    assert (signed.policy("iot")["manifests"], signed.policy("iot")["receipts"]) == (0, 1)
    runs = [refused, signed, place("run"), place("verify"), place("audit"), place("receipts")]
    assert [ran.code for ran in runs[2:]] == [0, 0, 0, 0]
    other = KEY[::-1]
    set_key(place, f'["{other}", "{KEY}"]')
    runs += [place("run"), place("sign")]
    set_key(place, f'"{other}"')
    runs += [place("run"), place("verify")]
    assert [ran.code for ran in runs[6:]] == [0, 0, 0, 0]
    set_key(place, "[]")
    lost = [place("run", "--json"), place("verify"), place("audit")]
    assert [ran.code for ran in lost] == [5, 5, 4]
    assert "not among store.signing_key" in lost[0].policy("ticks")["error"]
    text = "".join(map(shown, [*runs, *lost]))
    assert "hunter2" not in text
    assert other not in text
    place.config.unlink()
    assert b"hunter2" not in repr(place.everything()).encode()
    assert other.encode() not in repr(place.everything()).encode()


@pytest.mark.proof
def test_a_store_that_was_rolled_back(place: Place) -> None:
    store, yesterday = place.folder / "store", place.folder / "yesterday"
    place.database.ticks.delete_many({})
    place.database.ticks.insert_one({"_id": 1, "symbol": "MDB", "d": START, "p": {"0": 1.5}})
    assert place("run", "-p", "ticks").code == 0
    shutil.copytree(store, yesterday)
    place.database.ticks.insert_one({"_id": 2, "symbol": "MDB", "d": START.replace(hour=5), "p": {"0": 1.5}})
    assert place("run", "-p", "ticks").code == 0
    shutil.rmtree(store)
    shutil.copytree(yesterday, store)
    place.database.ticks.insert_one({"_id": 3, "symbol": "MDB", "d": START.replace(hour=7), "p": {"0": 1.5}})
    for verb in ("plan", "run", "archive", "verify"):
        ran = place(verb, "-p", "ticks")
        assert ran.code == 5, verb
        assert "not as it was left" in shown(ran).replace("\n", " ")
    assert place("audit", "-p", "ticks").code == 4
    assert place.database.ticks.count_documents({}) == 1


@after("run")
def test_receipts_tell_what_went(place: Place) -> None:
    receipts = place("receipts", "--json")
    found: Any = receipts.policy("ticks")
    (one,) = found["deletes"]
    assert one["buckets"] == MINUTES
    assert one["positions"] == [[0, MINUTES - 1]]
    assert json.loads(found["policies"][one["policy_sha256"]])["collection"] == "ticks"
    for file in one["held_by"]["files"]:
        assert (place.folder / "store" / file["key"]).is_file()
    (online,) = receipts.policy("iot")["deletes"]
    assert len(online["ids"]) == online["buckets"] == MINUTES // 10
    assert place("receipts", "--json", "--until", "2018-09-01").policy("ticks")["deletes"] == []
    assert place("receipts", "--json", "--since", "2018-09-01").policy("ticks")["deletes"] == [one]
    assert one["held_by"]["commit"][:10] in place("receipts").out


@pytest.mark.proof
def test_receipts_and_ledger_tell_who_worked_and_by_which_clock(place: Place) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert place("run", "-p", "ticks").code == 0
    place("hold", "add", "case-17", "-p", "ticks", "--reason", "Litigation")
    deleted, placed = place("receipts", "--json", "-p", "ticks").policy("ticks")["deletes"]
    (run,) = place.database.bucketwise_runs.find({"policy": "ticks"})
    (told,) = place("status", "--json", "-p", "ticks").policy("ticks")["last_runs"]
    for it in (deleted, placed, told):
        assert it["host"] == socket.gethostname()
        assert (it["user"], it["version"]) == (getpass.getuser(), __version__)
        assert it["now_given"] == "2018-09-01T00:00:00Z"
    assert deleted["run"] == told["run"] == run["run"] != placed["run"]
    assert deleted["at"] == told["now"] == "2018-09-01T00:00:00Z"
    for since in (deleted["done_at"], placed["done_at"], told["taken_at"]):
        assert before <= datetime.fromisoformat(since) <= datetime.now(UTC) + timedelta(seconds=1)
    assert f"{getpass.getuser()}@{socket.gethostname()}" in place("receipts").out
    # Without --now there is none, and the signed seal covers all of it.
    place("hold", "release", "case-17", now=None)
    *_, released = place("receipts", "--json", "-p", "ticks").policy("ticks")["deletes"]
    assert released["now_given"] is None
    assert place("audit", "-p", "ticks").code == 0
    place.database.bucketwise_receipts.update_one({"_id.name": "delete-0000000001"}, {"$set": {"host": "x"}})
    assert "receipt-differs" in place("audit", "-p", "ticks").out


@after("run")
def test_an_audit_tells_of_damage_once_and_of_all_else(place: Place) -> None:
    place.database.iot.insert_one({"sensor": "a", "at": START, "t": 1.0})
    place.database.ticks.insert_one({"symbol": "B", "d": START + timedelta(days=3), "p": {"0": 1.0}})
    (part,) = (place.folder / "store" / "ticks" / "data").rglob("*.parquet")
    whole = part.read_bytes()
    for damaged, code in ((whole[:-20] + b"x" + whole[-19:], "part-differs"), (None, "part-missing")):
        part.unlink()
        if damaged is not None:
            part.write_bytes(damaged)
        ran = place("audit", "-p", "ticks", "--json")
        assert ran.code == 5
        found = ran.policy("ticks")["findings"]
        assert [it["code"] for it in found if it["place"].endswith(part.name)] == [code]
        assert {it["code"] for it in found} >= {code, "overdue"}
    part.write_bytes(whole)
