"""An online archive that is not what was left: whatever reads it or would write from it says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jobs.place import POLICIES, Place

READERS = (
    ("plan",),
    ("run",),
    ("verify",),
    ("restore", "--to", "back"),
    ("readings",),
    ("coverage",),
    ("summarize", "--since", "2018-06-30T00:00Z", "--until", "2018-06-30T03:00Z"),
)


def drop(place: Place) -> None:
    place.database.iot_archive.drop()


def rename(place: Place) -> None:
    place.database.iot_archive.rename("elsewhere")


def half_empty(place: Place) -> None:
    for found in list(place.database.iot_archive.find().limit(9)):
        place.database.iot_archive.delete_one(found)


def mistype(place: Place) -> None:
    place.write_config(POLICIES.replace('"iot_archive"', '"iot_archve"'))


@pytest.mark.parametrize("fault", [drop, rename, half_empty, mistype])
def test_nothing_passes_over_what_is_gone(place: Place, fault: Callable[[Place], None]) -> None:
    place.write_config(POLICIES)
    assert place("run", "-p", "iot").code == 0
    summaries = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    fault(place)
    place.database.iot.insert_one({"sensor": 7, "at": place.database.iot_hourly.find_one()["start"], "t": 1})  # type: ignore[index]
    for command in READERS:
        ran = place(*command, "-p", "iot")
        assert (ran.code, "iot_arch" in ran.err + ran.out) == (5, True), (command, ran)
    assert place("query", "SELECT count(*) FROM iot").code == 5
    checked = place("check", "-p", "iot", "--json", now=None)
    assert checked.code == 1
    assert "archive-incomplete" in {it["code"] for it in checked.policy("iot")["findings"]}
    audited = place("audit", "-p", "iot", "--json")
    assert audited.code == 5
    assert any(it["code"].startswith("archive-") for it in audited.policy("iot")["findings"])
    after = sorted(place.database.iot_hourly.find({}, {"_id": 0, "count": 1, "start": 1}), key=str)
    assert after == summaries
