"""Copies of the store, through the command line: what they hold, and what becomes of an archive that has
lost objects, or its whole store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.place import MINUTES, POLICIES, Place

Body = dict[str, Any]


def copied(place: Place, *copies: str, policies: str = POLICIES, encryption: str = "") -> None:
    """Writes a policy file in which the store has copies, each with its name and further keys."""
    tables = encryption
    for it in copies:
        name, _, keys = it.partition(" ")
        (place.folder / name).mkdir(exist_ok=True)
        url = (place.folder / name).as_uri()
        tables += f'[[store.copies]]\nname = "{name}"\nurl = "{url}"\n{keys}\n'
    place.write_config(tables + policies)


def files(folder: Path) -> dict[str, bytes]:
    return {str(it.relative_to(folder)): it.read_bytes() for it in folder.rglob("*") if it.is_file()}


def same(place: Place, *names: str) -> bool:
    """Whether copies hold what the store holds, byte for byte."""
    return all(files(place.folder / it) == files(place.folder / "store") for it in names)


def part(folder: Path) -> Path:
    return next(folder.rglob("data/**/*.parquet"))


@pytest.mark.proof
def test_a_run_puts_everything_into_a_copy_that_is_required(place: Place) -> None:
    copied(place, "b")
    assert place("run").code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert part(place.folder / "b")
    assert same(place, "b")
    (told,) = place("status", "--json").policy("ticks")["copies"]
    assert (told["name"], told["required"], told["behind"]) == ("b", True, 0)
    assert place("run").code == 0
    assert same(place, "b")


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("damage", ["flipped", "missing", "manifest"])
def test_a_damaged_object_is_read_from_the_copy_and_put_back(place: Place, damage: str) -> None:
    copied(place, "b")
    place("run")
    store = place.folder / "store"
    before = files(store)
    path = part(store) if damage != "manifest" else next(store.rglob("manifests/*.json"))
    if damage == "flipped":
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    else:
        path.unlink()
    ran = place("restore", "-p", "ticks", "--to", "back", "--json")
    assert ran.code == 3, ran
    told = ran.policy("ticks")["from_copies"]
    assert told["count"] == 1 and told["objects"][0]["copy"] == "b"
    assert place.database.back.count_documents({}) == MINUTES
    assert place("verify").code == 5
    would = place("repair", "--dry-run", "--json")
    assert (would.code, would.policy("ticks")["repaired"]) == (3, 1)
    assert files(store) != before
    ran = place("repair", "--json")
    assert (ran.code, ran.policy("ticks")["repaired"], ran.policy("ticks")["lost"]) == (0, 1, 0)
    assert files(store) == before
    assert place("verify").code == 0
    assert place("repair", "--json").policy("ticks")["repaired"] == 0


@pytest.mark.proof
def test_what_is_damaged_in_a_copy_is_found_and_put_back(place: Place) -> None:
    copied(place, "b")
    place("run")
    before = files(place.folder / "b")
    part(place.folder / "b").write_bytes(b"planted")
    ran = place("verify", "--json")
    assert ran.code == 5
    assert "/b/ticks/data/" in ran.policy("ticks")["damage"][0]["place"]
    assert place("repair", "--json").policy("ticks")["repaired"] == 1
    assert files(place.folder / "b") == before


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("damage", ["a manifest", "the keyring", "all"])
def test_an_encrypted_store_is_repaired_as_any_other(place: Place, damage: str) -> None:
    copied(place, "b", encryption=f'encryption_key = "{"0123456789abcdef" * 2}"\n')
    place("run")
    store = place.folder / "store"
    before = files(store)
    assert before == files(place.folder / "b")
    if damage == "all":
        shutil.rmtree(store)
        store.mkdir()
    else:
        named = "manifests/*.json" if damage == "a manifest" else "keyring.json"
        next(store.rglob(named)).unlink()
    assert place("restore", "-p", "ticks", "--to", "back").code == 3
    assert place.database.back.count_documents({}) == MINUTES
    assert place("repair").code == 0
    assert files(store) == before
    assert place("verify").code == 0


@pytest.mark.proof
def test_what_is_damaged_everywhere_is_lost_and_told(place: Place) -> None:
    copied(place, "b")
    place("run")
    for name in ("store", "b"):
        part(place.folder / name).write_bytes(b"planted")
    ran = place("repair", "--json")
    assert (ran.code, ran.policy("ticks")["lost"]) == (5, 2)
    assert place("restore", "-p", "ticks", "--to", "back").code == 5


@pytest.mark.proof
def test_a_copy_added_later_holds_runs_up_until_it_is_filled(place: Place) -> None:
    place("run")
    copied(place, "b")
    ran = place("run")
    assert ran.code == 5 and "bucketwise copy" in ran.err
    assert place("check").code == 1
    ran = place("copy", "--json")
    assert ran.code == 0 and ran.policy("ticks")["copied"] > 3
    assert same(place, "b")
    assert place("run").code == 0
    assert place("copy", "--json").policy("ticks")["copied"] <= 1
    assert same(place, "b")


@pytest.mark.proof
def test_one_that_may_lag_is_caught_up_by_runs(place: Place) -> None:
    copied(place, 'b required = false\nlag = "7d"')
    b, away = place.folder / "b", place.folder / "away"
    b.rename(away)
    ran = place("run", "--json")
    assert ran.code == 0, ran
    assert place.database.ticks.count_documents({}) == 0
    (told,) = place("status", "--json").policy("ticks")["copies"]
    assert told["behind"] > 3
    assert place("audit").code == 0
    away.rename(b)
    ran = place("run", "--json")
    assert ran.policy("ticks")["copies"]["behind"] == 0
    assert same(place, "b")


@pytest.mark.proof
def test_while_a_copy_that_is_required_is_down_nothing_is_deleted(place: Place) -> None:
    copied(place, "b")
    b, away = place.folder / "b", place.folder / "away"
    b.rename(away)
    ran = place("run")
    assert ran.code in (1, 5) and "copy b" in ran.err
    assert place.database.ticks.count_documents({}) == MINUTES
    away.rename(b)
    assert place("run").code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert same(place, "b")


def test_without_its_store_an_archive_goes_on_from_the_copy(place: Place) -> None:
    copied(place, "b")
    place("run")
    shutil.rmtree(place.folder / "store")
    ran = place("restore", "-p", "ticks", "--to", "back")
    assert ran.code == 3, ran
    assert place.database.back.count_documents({}) == MINUTES
    assert place("query", "SELECT count(*) AS n FROM ticks", "--json").code == 3
    (place.folder / "store").mkdir()
    assert place("run").code == 3  # nothing was due
    assert not any((place.folder / "store").iterdir())
    place.load()
    ran = place("run")
    assert (ran.code, "`bucketwise repair` fills it" in ran.err) == (5, True), ran.err[-1500:]
    ran = place("repair", "--json")
    assert ran.code == 0, ran
    assert same(place, "b")
    assert place("run").code == 0
    shutil.rmtree(place.folder / "store")
    (place.folder / "b").rename(place.folder / "store")
    place.write_config()
    assert place("run").code == 0
    assert place("verify").code == 0


@pytest.mark.proof
def test_an_erasure_reaches_copies_and_is_never_undone_by_one(place: Place) -> None:
    copied(place, "b", "c required = false")
    place("run")
    assert same(place, "b", "c")
    c, away = place.folder / "c", place.folder / "away"
    old = files(place.folder / "store")
    c.rename(away)
    series = ("--series", "symbol=MDB", "--reason", "asked for", "--confirm", "ticks")
    ran = place("erase", "-p", "ticks", *series, "--json")
    assert ran.code == 3, ran
    assert any(it["why"].startswith("copy c: ") for it in ran.policy("ticks")["remaining"])
    away.rename(c)
    gone = {name for name in old if name not in files(place.folder / "store")}
    assert any("/data/" in it for it in gone)
    assert not gone & files(place.folder / "b").keys()
    assert gone & files(c).keys()
    assert place("restore", "-p", "ticks", "--to", "back").code == 0
    assert place.database.back.count_documents({}) == 0
    assert place("run").code == 0
    assert not gone & files(c).keys()
    assert same(place, "b", "c")


def test_a_copy_that_the_policy_file_names_no_more_is_told_until_it_is_forgotten(place: Place) -> None:
    copied(place, "b")
    assert place("run").code == 0
    named = place("copy", "--forget", "b")
    assert (named.code, "the policy file names this copy" in named.err) == (2, True)
    copied(place, "c", "d required = false")
    assert {"copy-removed", "copy-unfilled"} <= codes(place)
    told = place("copy", "--forget", "b", "--json")
    assert (told.code, told.policy("ticks")["forgotten"]) == (0, ["b"])
    assert "copy-removed" not in codes(place)
    assert "No policy has such a copy" in place("copy", "--forget", "b").out
    copied(place)
    none = place("copy")
    assert (none.code, "names no copies of the store" in none.err) == (2, True)


def codes(place: Place) -> set[str]:
    """Of what an audit finds in the archive of the ticks."""
    return {it["code"] for it in place("audit", "--json").policy("ticks")["findings"]}
