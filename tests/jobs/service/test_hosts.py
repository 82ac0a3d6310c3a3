"""Under which names the service answers."""

from __future__ import annotations

import re
import urllib.request

import pytest

from bucketwise.config.errors import UsageError
from bucketwise.jobs.schedule.server import Hosts
from tests.jobs.place import Place
from tests.jobs.service.test_schedule import service

HOSTS = Hosts.of("0.0.0.0", ("Metrics.Example.com.", "[fd00:0::1]", "10.9.9.9"))


@pytest.mark.parametrize(
    "header",
    [
        "127.0.0.1", "127.0.0.1:9464", "127.0.0.1:", "127.8.8.8", "localhost", "LOCALHOST:80", "localhost.",
        "[::1]:9464", "[0:0::1]", "[::ffff:127.0.0.1]", "metrics.example.com", "METRICS.example.com.:9464",
        "[FD00::1]", "10.9.9.9:1", "10.1.2.3:9464", "0.0.0.0:9464", " 127.0.0.1 ",
    ],
)  # fmt: skip
def test_its_own(header: str) -> None:
    assert HOSTS.admit(header, "10.1.2.3")
    assert HOSTS.admit(header, "::ffff:10.1.2.3")  # of a socket for both families


@pytest.mark.parametrize(
    "header",
    [
        "", "evil.example", "10.1.2.4", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:80",
        "127.0.0.1@evil.example", "evil.example/127.0.0.1", "127.0.0.1:x", "[::1", "::1", "[fd00::2]",
        "localhost..", "127.0.0.1, evil.example", "example.com", "a.metrics.example.com", "2130706433",
        "[evil.example]", "metrics.example.com\x00",
    ],
)  # fmt: skip
def test_another(header: str) -> None:
    assert not HOSTS.admit(header, "10.1.2.3")


@pytest.mark.parametrize(
    "said", ["", "*", "http://metrics.example.com", "metrics.example.com:9464", "a b", "é.example"]
)
def test_what_is_no_host_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        Hosts.of("127.0.0.1", [said])


@pytest.mark.proof
def test_names_are_told_from_outside(place: Place) -> None:
    ran = place("schedule", "-p", "ticks", "--allow-host", "http://x", now=None)
    assert (ran.code, ran.connected) == (2, [])
    assert "--allow-host http://x" in ran.err
    options = ("--metrics-port", "0", "--metrics-host", "::1", "--allow-host", "metrics.example.com")
    with service(place, *options, BUCKETWISE_ALLOW_HOST="else.example") as it:
        address = re.search(r"address=(\S+/metrics)", it.until("metrics are served"))
        assert address is not None and "[::1]" in address[1]
        asked = urllib.request.Request(address[1], headers={"Host": "metrics.example.com"})
        assert b"bucketwise" in urllib.request.urlopen(asked).read()
        it.until("run ended")
        assert it.end() == 0
