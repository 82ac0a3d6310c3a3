"""Checks where data lies, by the kinds of stores: what their URLs look like, and what they can do. Connects
to nothing.

`bucketwise.archivers.stores` has a module for each, named after the scheme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from bucketwise.config.checks.names import database_fault
from bucketwise.config.policies import Archive, Policy
from bucketwise.config.problems import Fault, Key, ProblemReport, dotted, nearest
from bucketwise.config.tables import COLD, MongoDB, Store, StoreCopy, StorePlace

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")
_GOOGLE_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")


@dataclass(frozen=True)
class StoreKind:
    """A kind of store. `place_fault`: returns what is wrong with the part of a URL between `//` and the next
    `/`, given whether there is one. `root_fault`: what is wrong with a URL that has nothing behind it."""

    scheme: str
    name: str
    example: str  # of its URL
    place_fault: Callable[[str, bool], Fault | None]
    root_fault: Fault | None = None
    credentials: str = "the environment"  # where they come from
    extra: str | None = None  # of the package, that brings its client
    has_regions: bool = True
    lock_fault: Fault | None = None  # why there are no locks; None: there are
    class_fault: Fault | None = None  # why there are no storage classes; None: there are
    classes: Sequence[str] = ()  # storage classes whose objects can be read at once, whatever it costs
    cold_classes: Sequence[str] = ()  # whose objects have to be thawed before a read
    refused_classes: Mapping[str, Fault] = field(default_factory=dict)  # an archive can't rest on them


def _bucket_fault(name: str, _is_rooted: bool) -> Fault | None:
    if _BUCKET.fullmatch(name) and ".." not in name and not _ADDRESS.fullmatch(name):
        return None
    remedy = "a bucket name has 3 to 63 lower-case letters, digits, dots and hyphens"
    return Fault("not a valid S3 bucket name", remedy)


def _container_fault(name: str, _is_rooted: bool) -> Fault | None:
    if _CONTAINER.fullmatch(name):
        return None
    remedy = "it has 3 to 63 lower-case letters and digits, with single hyphens between them"
    return Fault("not a valid name of a container", remedy)


def _google_fault(name: str, _is_rooted: bool) -> Fault | None:
    if _GOOGLE_BUCKET.fullmatch(name) and ".." not in name and not _ADDRESS.fullmatch(name):
        return None
    remedy = "a bucket name has 3 to 63 lower-case letters, digits, dots, hyphens and underscores"
    return Fault("not a valid name of a Google Cloud Storage bucket", remedy)


def _host_fault(name: str, is_rooted: bool) -> Fault | None:
    if is_rooted and not name:
        return None
    return Fault("a file:// URL must be absolute", 'write three slashes: "file:///var/lib/bucketwise"')


S3 = StoreKind(
    scheme="s3",
    name="an S3 bucket",
    example="s3://bucket/prefix",
    place_fault=_bucket_fault,
    credentials="boto3's own chain: environment, profile or role",
    classes=("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"),
    cold_classes=COLD,
    refused_classes={
        "REDUCED_REDUNDANCY": Fault(
            "it loses one object in ten thousand a year, and an archive is the only copy",
            'write "STANDARD_IA", or leave it out',
        ),
    },
)
AZURE = StoreKind(
    scheme="az",
    name="an Azure container",
    example="az://container/prefix",
    place_fault=_container_fault,
    credentials="the environment (AZURE_STORAGE_ACCOUNT_NAME, …) or a managed identity",
    extra="azure",
    has_regions=False,
    class_fault=Fault(
        "bucketwise sets no access tiers in Azure",
        "remove it, and set the account's default tier, or a lifecycle rule that does not lead to Archive; "
        "or archive to an s3:// store",
    ),
)
GOOGLE = StoreKind(
    scheme="gs",
    name="a Google Cloud Storage bucket",
    example="gs://bucket/prefix",
    place_fault=_google_fault,
    credentials="GOOGLE_APPLICATION_CREDENTIALS, gcloud's login or a service account",
    extra="gcs",
    has_regions=False,
    class_fault=Fault(
        "bucketwise sets no storage classes in Google Cloud Storage",
        "remove it, and give the bucket a default class, Autoclass or a lifecycle rule; or archive to an "
        "s3:// store",
    ),
)
DIRECTORY = StoreKind(
    scheme="file",
    name="a directory",
    example="file:///directory",
    place_fault=_host_fault,
    root_fault=Fault("is the root directory", "use a directory of its own"),
    lock_fault=Fault(
        "a directory can't lock its files", "remove it, or archive to a store of S3, Azure or Google"
    ),
    class_fault=Fault("a directory has no storage classes", "remove it, or archive to an s3:// store"),
)
KINDS = {kind.scheme: kind for kind in (S3, AZURE, GOOGLE, DIRECTORY)}


def kind_of(url: str) -> StoreKind | None:
    """Returns the kind of store at a URL; None where there is none of this scheme."""
    return KINDS.get(url.partition("://")[0])


def url_faults(url: str) -> Iterator[Fault]:
    """Yields what is wrong with the URL of a store."""
    _, separator, rest = url.partition("://")
    place, slash, prefix = rest.partition("/")
    kind = kind_of(url)
    if kind is None or not separator:
        examples = " or ".join(f'"{it.example}"' for it in KINDS.values())
        yield Fault("not a supported store URL", f"use {examples}")
        return
    if "@" in place or (":" in place and "@" in rest):
        yield _credentials_fault(kind)
    elif fault := kind.place_fault(place, bool(slash)):
        yield fault
    if re.search(r"[?#%\\\x00-\x1f\x7f]", rest):
        yield Fault("contains ?, #, %, \\ or a control character", "leave them out")
    if kind.root_fault is not None and slash and not prefix:
        yield kind.root_fault
    elif prefix:
        yield from _prefix_faults(prefix.removesuffix("/").split("/"))


def _credentials_fault(kind: StoreKind | None) -> Fault:
    where = kind.credentials if kind is not None else S3.credentials
    return Fault("credentials do not belong in this URL", f"remove them; they come from {where}")


def _prefix_faults(parts: list[str]) -> Iterator[Fault]:
    if not all(parts):
        yield Fault("a part of the path is empty", "write one slash between the parts")
    if any(part in (".", "..") for part in parts):
        yield Fault("the path contains `.` or `..`", "write the full path")
    if any(part.startswith("~") for part in parts):
        yield Fault("`~` is not expanded to a home directory", "write the full path")
    if any(part.startswith("$") for part in parts):
        yield Fault("a part of the path starts with `$`", "write an environment variable as `${NAME}`")


def check_object_lock(store: Store, report: ProblemReport) -> None:
    """Reports an object lock for a store, or a copy of it, that can't lock files."""
    for at, place in places_of(store):
        kind = kind_of(place.url)
        if place.object_lock is not None and kind is not None and kind.lock_fault is not None:
            report.add((*at, "object_lock"), kind.lock_fault, rests_on=[(*at, "url")])


def check_storage_class(policy: Policy, store: Store | None, report: ProblemReport) -> None:
    """Reports storage classes that parts can't have: unknown, unsuitable, of a store without any, or in an
    order in which they can't follow one another."""
    if policy.archive is None:
        return
    at: Key = ("policies", policy.name, "archive")
    tables = policy.archive.storage_classes
    named = {(*at, "storage_classes", str(n), "class"): it.named for n, it in enumerate(tables, start=1)}
    if policy.archive.storage_class is not None:
        named = {(*at, "storage_class"): policy.archive.storage_class, **named}
    kind = None if store is None else kind_of(store.url)
    for key, name in named.items():
        if not policy.has_parts:
            fault = Fault("it is for parts in S3, and only an offline archive has any", "remove it")
            report.add(key, fault, rests_on=[(*at, "to")])
        elif kind is not None and kind.class_fault is not None:
            report.add(key, kind.class_fault, rests_on=[("store", "url")])
        else:
            _check_class(name, kind, key, report)
    _check_moves(policy.archive, at, report)


def _check_classes(store: Store, report: ProblemReport) -> None:
    """Reports storage classes that parts in a copy of a store can't have."""
    for at, place in places_of(store):
        if isinstance(place, StoreCopy) and place.storage_class is not None:
            kind, key = kind_of(place.url), (*at, "storage_class")
            if kind is not None and kind.class_fault is not None:
                report.add(key, kind.class_fault, rests_on=[(*at, "url")])
            else:
                _check_class(place.storage_class, kind, key, report)


def _check_class(name: str, kind: StoreKind | None, key: Key, report: ProblemReport) -> None:
    known = kind or S3
    choices = (*known.classes, *known.cold_classes)
    if name in known.refused_classes:
        report.add(key, known.refused_classes[name])
    elif name not in choices:
        near, shown = nearest(name, choices), " or ".join(f'"{it}"' for it in choices)
        remedy = f'did you mean "{near}"? It may be {shown}' if near else f"write {shown}"
        report.add(key, Fault("it is not a storage class", remedy))


def _check_moves(archive: Archive, at: Key, report: ProblemReport) -> None:
    """Reports classes to which parts can't move: out of a cold one, to one twice, or earlier than to the
    class before it; and a move of parts whose originals are never deleted."""
    before = [("storage_class", archive.storage_class, timedelta(0))] if archive.storage_class else []
    for number, it in enumerate(archive.storage_classes, start=1):
        key = (*at, "storage_classes", str(number))
        if cold := next((name for _, name, _ in before if name in COLD), None):
            message = f"parts would leave {cold}, where they have to be thawed before they can be copied"
            fault = Fault(message, f"let {cold} be the last class, or leave it out")
            report.add((*key, "class"), fault)
        elif any(it.named == name for _, name, _ in before):
            fault = Fault(f"parts are in {it.named} by then", "name each class once")
            report.add((*key, "class"), fault)
        if before and it.after <= before[-1][2]:
            message = f"{before[-1][0]} comes at the same time or later"
            report.add((*key, "after"), Fault(message, "write the classes in the order of their ages"))
        before.append((f"storage_classes.{number}", it.named, it.after))
    if archive.moves and not archive.delete:
        name = "storage_classes" if archive.storage_classes else "storage_class"
        message = "parts move once their originals are deleted, and delete = false keeps these"
        report.add((*at, name), Fault(message, "remove it"), rests_on=[(*at, "delete")])


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


def places_of(store: Store) -> Iterator[tuple[Key, StorePlace]]:
    """Yields the keys of the tables of a store and its copies, with what they say."""
    yield ("store",), store
    for number, copy in enumerate(store.copies, start=1):
        yield ("store", "copies", str(number)), copy


def check_store(store: Store, report: ProblemReport) -> None:
    """Reports a store URL, endpoint, key or copy that is not valid. Connects to nothing."""
    for at, place in places_of(store):
        for fault in url_faults(place.url):
            report.add((*at, "url"), fault)
        kind = kind_of(place.url)
        if place.endpoint_url is not None and (misplaced := _endpoint_fault(place.endpoint_url, kind)):
            report.add((*at, "endpoint_url"), misplaced)
        if place.region is not None and kind is not None and not kind.has_regions:
            fault = Fault(f"{kind.name} is reached without a region", "remove it")
            report.add((*at, "region"), fault, rests_on=[(*at, "url")])
    _check_copies(store, report)
    _check_classes(store, report)
    _check_keys("signing_key", store.signing_key, report)
    _check_keys("encryption_key", store.encryption_key, report)
    if store.key_command is not None and store.encryption_key:
        fault = Fault("the keys stand in the file, and a command prints them", "leave one of them out")
        report.add(("store", "key_command"), fault)


def _check_keys(name: str, secrets: Sequence[SecretStr], report: ProblemReport) -> None:
    keys = [key.get_secret_value() for key in secrets]
    if any(len(key) < SHORTEST_KEY for key in keys):
        fault = Fault(
            f"a key has fewer than {SHORTEST_KEY} characters",
            "generate one: openssl rand -hex 32; keep it safe",
        )
        report.add(("store", name), fault)
    if len(set(keys)) < len(keys):
        report.add(("store", name), Fault("a key is listed twice", "list each key once"))


def _check_copies(store: Store, report: ProblemReport) -> None:
    """Reports copies that have one name, lie in one place with another, or can't lag."""
    names: dict[str, str] = {}
    before: list[tuple[Key, StorePlace]] = []
    for at, place in places_of(store):
        for key, other in before:
            if _overlaps(place, other):
                fault = Fault(
                    f"it lies in one place with {dotted((*key, 'url'))}", "give it a place of its own"
                )
                report.add((*at, "url"), fault, rests_on=[(*key, "url")])
        before.append((at, place))
        if not isinstance(place, StoreCopy):
            continue
        if not place.name:
            report.add((*at, "name"), Fault("it is empty", "use 1 to 32 letters, digits, `_` and `-`"))
        if (first := names.setdefault(place.name.lower(), at[-1])) != at[-1]:
            earlier = dotted(("store", "copies", first))
            report.add((*at, "name"), Fault(f"{earlier} has this name", "give each copy a name of its own"))
        if place.required and place.lag is not None:
            message = "a copy that is required never lags: a commit counts once it is there as well"
            report.add((*at, "lag"), Fault(message, "remove it, or write required = false"))


def _overlaps(one: StorePlace, other: StorePlace) -> bool:
    """Returns whether one of two places contains the other."""
    paths = [f"{it.url.removesuffix('/')}/" for it in (one, other)]
    return one.endpoint_url == other.endpoint_url and (
        paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])
    )


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


def _endpoint_fault(url: str, kind: StoreKind | None) -> Fault | None:
    remedy = 'write "https://host" or "http://host:port"'
    try:
        parts: SplitResult = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return Fault("not a valid URL", remedy)
    if parts.username is not None or "@" in url:
        return _credentials_fault(kind)
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
