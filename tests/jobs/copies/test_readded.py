"""Copies that were out of the policy file, out of the database, or out of a `rekey` for a while."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta

import pytest

from tests.jobs.copies.test_copies import copied, files
from tests.jobs.place import POLICIES, START, Place

KEY, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
TWO = f"""{POLICIES}
[policies.other]
collection = "other"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t"]
[policies.other.archive]
after = "30d"
to = "offline"
"""


def encrypted(*keys: str) -> str:
    return f"encryption_key = {json.dumps(list(keys))}\n"


def load(place: Place, day: int) -> None:
    start = START + timedelta(days=day)
    prices = {str(second): 1.0 + second for second in range(60)}
    place.database.ticks.insert_many(
        {"symbol": "NEW", "d": start + timedelta(minutes=minute), "p": prices} for minute in range(20)
    )


@pytest.mark.proof
def test_a_copy_that_was_out_of_the_file_is_filled_before_it_counts(place: Place) -> None:
    copied(place, "b")
    assert place("run").code == 0
    place.write_config()
    load(place, 1)
    assert place("run").code == 0
    copied(place, "b")
    load(place, 2)
    ran = place("run", "-p", "ticks")
    assert (ran.code, "bucketwise copy" in ran.err) == (5, True), ran
    assert place.database.ticks.count_documents({}) == 20
    assert place("copy").code == place("run").code == 0
    assert files(place.folder / "store").keys() <= files(place.folder / "b").keys()


@pytest.mark.proof
def test_with_the_database_what_a_copy_had_is_forgotten(place: Place) -> None:
    copied(place, "b required = false")
    assert place("run").code == 0
    (place.folder / "b").rename(place.folder / "away")
    load(place, 1)
    place("run")
    (place.folder / "away").rename(place.folder / "b")
    for name in place.database.list_collection_names():
        if name.startswith("bucketwise_"):
            place.database.drop_collection(name)
    copied(place, "b")
    assert place("run", "-p", "ticks").code == 5
    assert place("adopt", "-p", "ticks", "--reason", "restored").code in (0, 5)
    load(place, 2)
    assert place("run", "-p", "ticks").code == 5
    assert place.database.ticks.count_documents({}) == 20


@pytest.mark.proof
def test_a_lost_store_is_filled_for_every_policy(place: Place) -> None:
    copied(place, "b", policies=TWO)
    place.database.other.create_index("at")
    place.database.other.insert_many(
        {"sensor": 1, "at": START + timedelta(hours=h), "t": 1.5} for h in range(9)
    )
    assert place("run").code == 0
    before = files(place.folder / "store")
    shutil.rmtree(place.folder / "store")
    (place.folder / "store").mkdir()
    assert place("repair").code == 0
    assert files(place.folder / "store") == before
    assert place("verify").code == 0


@pytest.mark.proof
def test_a_keyring_that_was_left_out_of_a_rekey_is_copied_anew(place: Place) -> None:
    copied(place, "b", encryption=encrypted(KEY))
    assert place("run").code == 0
    place.write_config()
    text = place.config.read_text()
    place.config.write_text(text.replace("[store]", f"[store]\n{encrypted(OTHER, KEY)}"))
    ran = place("rekey", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["left"]) == (3, ["b"])
    copied(place, "b", encryption=encrypted(OTHER, KEY))
    assert place("copy", "-p", "ticks").code == 0
    copied(place, "b", encryption=encrypted(OTHER))
    assert place("verify", "-p", "ticks").code == 0
    assert files(place.folder / "store").items() <= files(place.folder / "b").items()


@pytest.mark.proof
def test_a_store_that_was_emptied_is_not_taken_over(place: Place) -> None:
    copied(place, "b")
    assert place("run", "-p", "ticks").code == 0
    shutil.rmtree(place.folder / "store")
    (place.folder / "store").mkdir()
    before = list(place.database.bucketwise_receipts.find())
    ran = place("adopt", "-p", "ticks", "--reason", "why")
    assert (ran.code, "bucketwise repair" in ran.err) == (5, True), ran
    assert files(place.folder / "store") == {}
    assert list(place.database.bucketwise_receipts.find()) == before
