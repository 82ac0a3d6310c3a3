"""Names of time zones: the list of them is the oracle."""

from __future__ import annotations

import zoneinfo

import pytest

from bucketwise.config.times import is_zone, zones


def test_every_zone_of_the_list_is_one() -> None:
    assert [name for name in sorted(zones()) if not is_zone(name)] == []
    assert "Europe/Berlin" in zones() and zones() <= zoneinfo.available_timezones()


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "Europe", "Europe/", "Europe/Berln", "Europe/Berlin ", "/etc/localtime", "UTC\0"),
        *("../zoneinfo/UTC", "\udc80", "x" * 5000, "zone.tab", "tzdata.zi", "leapseconds", "__init__.py"),
        *("localtime", "Factory", "posixrules", "posix/UTC", "right/UTC"),
    ],
)
def test_nothing_else_is(name: str) -> None:
    assert name not in zones()
    assert not is_zone(name)
