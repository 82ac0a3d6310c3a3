"""The address of a cluster that executes the tasks of a run."""

from __future__ import annotations

from urllib.parse import urlsplit

#: URL schemes of clusters, and the schemes of their client.
SCHEMES = {"dask": "tcp", "tls": "tls"}
EXECUTOR_REMEDY = 'write the scheduler\'s address: "dask://host:8786", or "tls://host:8786" for TLS'
BOTH = "workers are processes on this machine, an executor is a cluster: use one of the two"


def executor_fault(url: str) -> str | None:
    """Returns what is wrong with the address of a cluster; None where nothing is."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in SCHEMES:
        return "it is not a dask:// or tls:// address"
    if "@" in url:
        return "credentials do not belong in this address: a scheduler takes none"
    if not host or port is None or parts.path or parts.query or parts.fragment:
        return "it has to be a host and a port, and nothing else"
    return None
