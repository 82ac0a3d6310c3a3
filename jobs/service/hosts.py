"""Which Host headers the service answers: of its own address, and of names that it was told. So another site
that has its name point here (DNS rebinding) can't read it through a browser. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from bucketwise.config.errors import UsageError

_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{0,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Hosts:
    """Names and addresses under which the service is read, as `_plain` writes them."""

    names: frozenset[str]

    @classmethod
    def of(cls, listening: str, allowed: Sequence[str]) -> Hosts:
        """Returns the hosts of a service that listens there. Raises UsageError where one that is allowed is
        no host."""
        return cls(frozenset(["localhost", _plain(listening), *map(_allowed, allowed)]))

    def admit(self, header: str, reached: str) -> bool:
        """Returns whether a request may have this header. `reached`: the address at which it came in."""
        found = _HEADER.fullmatch(header.strip())
        if found is None:
            return False
        host = _plain(found[1])
        address = _address(host)
        return host in self.names or host == _plain(reached) or (address is not None and address.is_loopback)


def in_url(host: str) -> str:
    """Returns a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _allowed(said: str) -> str:
    host = said.strip()
    if _address(_plain(host)) is None and not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise UsageError(
            f"--allow-host {said}: it is no name or address of a host. Write it without scheme and port: "
            "--allow-host metrics.example.com"
        )
    return _plain(host)


def _plain(host: str) -> str:
    """Returns a host in small letters, without brackets and last dot; an address in its short form."""
    plain = host.lower().strip("[]").removesuffix(".")
    address = _address(plain)
    return plain if address is None else str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
