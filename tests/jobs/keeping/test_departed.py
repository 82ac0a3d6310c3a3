"""What becomes of the archive of a policy that has left the file, where no policy is named."""

from __future__ import annotations

import json

import pytest

from tests.jobs.copies.test_copies import copied, files
from tests.jobs.place import POLICIES, Place

KEY, OTHER = "k" * 40, "o" * 40
WITHOUT_TICKS = POLICIES[POLICIES.index("[policies.iot]") :]
LATER = "2099-01-01T00:00:00Z"


@pytest.mark.proof
@pytest.mark.parametrize("is_retired", [False, True])
def test_its_key_is_wrapped_and_its_copy_filled_with_the_others(place: Place, is_retired: bool) -> None:
    """Whoever removes the old key, or relies on the copy, would lose its archive else."""
    copied(place, encryption=f"encryption_key = {json.dumps([KEY])}\n")
    assert place("run", "-p", "ticks").code == 0
    turned = f"encryption_key = {json.dumps([OTHER, KEY])}\n"
    copied(place, "b", policies=WITHOUT_TICKS, encryption=turned)
    if is_retired:
        assert place("retire", "ticks", "--reason", "over").code == 0
    assert place("copy", "--json").policy("ticks")["copied"] > 0
    assert place("rekey", "--json").policy("ticks")["rekeyed"] == 1
    copied(place, "b", policies=WITHOUT_TICKS, encryption=turned.replace(f', "{KEY}"', ""))
    assert place("verify", "-p", "ticks").code == 0
    assert files(place.folder / "b") == files(place.folder / "store")
    next((place.folder / "store/ticks").rglob("*.parquet")).unlink()
    assert place("repair", "--json").policy("ticks")["repaired"] == 1


def test_a_key_is_wrapped_also_where_the_file_that_says_whose_archive_it_is_was_lost(place: Place) -> None:
    place.write_config(f"encryption_key = {json.dumps([KEY])}\n{POLICIES}")
    assert place("run", "-p", "ticks").code == 0
    place.write_config(f"encryption_key = {json.dumps([OTHER, KEY])}\n{WITHOUT_TICKS}")
    (place.folder / "store/ticks/meta/owner.json").unlink()
    assert place("rekey", "--json").policy("ticks")["rekeyed"] == 1


def test_one_that_lies_in_another_store_is_left_to_its_own_file(place: Place) -> None:
    assert place("run", "-p", "ticks").code == 0
    (place.folder / "store").rename(place.folder / "elsewhere")
    copied(place, "b", policies=WITHOUT_TICKS)
    ran = place("copy", "--json")
    assert (ran.code, [it["policy"] for it in ran.json["policies"]]) == (0, ["iot"])


@pytest.mark.proof
def test_an_audit_names_it_until_it_is_retired(place: Place) -> None:
    assert place("run").code == 0
    place.write_config(WITHOUT_TICKS)

    def told(*more: str, now: str = LATER) -> list[str]:
        findings = place("audit", "--json", *more, now=now).policy("iot")["findings"]
        return [it["policy"] for it in findings if it["code"] == "policy-departed"]

    assert told() == ["ticks"]
    assert told("-p", "iot") == []
    assert told(now="2026-01-01T00:00:00Z") == []  # it has run since: from another file
    assert place("retire", "ticks", "--reason", "over").code == 0
    assert told() == []
