"""Checks where data lies. Connects to nothing."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from bucketwise.config.checks.names import database_fault
from bucketwise.config.checks.stores import CREDENTIALS, url_faults
from bucketwise.config.problems import Fault, ProblemReport
from bucketwise.config.tables import MongoDB, Store

SHORTEST_KEY = 32
#: URL schemes of clusters, and the schemes of their client.
SCHEMES = {"dask": "tcp", "tls": "tls"}
EXECUTOR_REMEDY = 'write the scheduler\'s address: "dask://host:8786", or "tls://host:8786" for TLS'
BOTH = "workers are processes on this machine, an executor is a cluster: use one of the two"


def check_mongodb(mongodb: MongoDB, report: ProblemReport) -> None:
    """Reports a MongoDB URI or database name that is not valid. Connects to nothing."""
    if fault := _uri_fault(mongodb.uri.get_secret_value()):
        report.add(("mongodb", "uri"), fault)
    if unnamed := database_fault(mongodb.database):
        report.add(("mongodb", "database"), unnamed)


def check_store(store: Store, report: ProblemReport) -> None:
    """Reports a store URL, endpoint or signing key that is not valid. Connects to nothing."""
    for fault in url_faults(store.url):
        report.add(("store", "url"), fault)
    if store.endpoint_url is not None and (misplaced := _endpoint_fault(store.endpoint_url)):
        report.add(("store", "endpoint_url"), misplaced)
    keys = [key.get_secret_value() for key in store.signing_key]
    if any(len(key) < SHORTEST_KEY for key in keys):
        fault = Fault(
            f"a key has fewer than {SHORTEST_KEY} characters",
            "generate one: openssl rand -hex 32; keep it safe",
        )
        report.add(("store", "signing_key"), fault)
    if len(set(keys)) < len(keys):
        report.add(("store", "signing_key"), Fault("a key is listed twice", "list each key once"))


def _uri_fault(uri: str) -> Fault | None:
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        remedy = 'write "mongodb://host:27017/?replicaSet=rs0" or "mongodb+srv://…"'
        return Fault("does not start with mongodb:// or mongodb+srv://", remedy)
    before, _, options = uri.partition("?")
    parts = {"user, password or hosts": before, "options": uri}
    if uri.startswith("mongodb+srv://"):  # the driver would ask the DNS
        parts = {"user, password or host": before.replace("mongodb+srv://", "mongodb://")}
    remedy = "write mongodb://user:password@host:port/?option=value"
    for what, part in parts.items():
        try:
            parse_uri(part, warn=False)
        except (PyMongoError, ValueError, OSError) as error:
            if what != "options" or "@" in options:  # the driver's words could hold a part of the password
                remedy += "; in user and password write @ as %40, : as %3A, / as %2F, ? as %3F, % as %25"
                return Fault(f"the driver cannot parse its {what}", remedy)
            return Fault(f"the driver rejects its {_refused_option(options)}: {error}", remedy)
    return None


def _refused_option(options: str) -> str:
    """Returns the name of the first option that the driver does not take by itself."""
    for option in re.split("[&;]", options):
        try:
            parse_uri(f"mongodb://host/?{option}", warn=False)
        except (PyMongoError, ValueError, OSError):
            return f"option {option.partition('=')[0]}"
    return "options"


def url_parts(url: str) -> SplitResult | str:
    """Returns the parts of a URL; or what is wrong with it, where no client could take it."""
    if re.search(r"[^\x21-\x7e]", url):
        return "a URL has no spaces, control characters or letters outside ASCII"
    try:
        parts = urlsplit(url)
        return "its port is 0" if parts.port == 0 else parts
    except ValueError:
        return "not a valid URL"


def _endpoint_fault(url: str) -> Fault | None:
    remedy = 'write "https://host" or "http://host:port"'
    try:
        parts: SplitResult = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return Fault("not a valid URL", remedy)
    if parts.username is not None or "@" in url:
        return CREDENTIALS
    if parts.scheme not in ("http", "https") or not host:
        return Fault("not an http:// or https:// URL", remedy)
    if parts.query or parts.fragment or re.search(r"\s", url):
        return Fault("contains more than scheme, host, port and path", remedy)
    return None


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
