"""Manifests: what a commit of the offline archive holds. A commit is there once its manifest is.

A commit is some buckets, archived together: one part a UTC day of their readings, one buckets file, one
manifest. Its name tells the days it covers, the fence of the lease under which it was made and the digest
of its documents, so that a listing alone says which commits may hold a range, and which files belong to
no commit. The name of its manifest begins with its number in the chain, so that a listing can go on where
another has ended.

    <policy>/data/dt=2018-06-30/<commit>.parquet      parts
    <policy>/meta/buckets/<commit>.parquet            buckets file
    <policy>/meta/manifests/<sequence>_<commit>.json  manifest
    <policy>/meta/superseded/<commit>.bson            what was taken out of a commit: not part of the archive
    <policy>/meta/superseded/<commit>.<seal>.json     the manifest of a commit that was dropped
    <policy>/meta/versions/<commit>.<sha256>.bson     versions that count no more (`versions/superseded.py`)

Each manifest names the seals of those that were the heads when it was made, so that they form a chain: none
can be changed, taken out or put back to what it was without the heads telling. A manifest stays when its
commit is dropped, as a link.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archivers.stores.base import Corrupt, ObjectStore
from buckets.fields.times import as_date
from config.errors import HaltedError
from config.policies import LAYOUT_KEYS, Policy

#: 1970-01-01.
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_COMMIT = re.compile(rf"({_DAY})_({_DAY})_f([0-9]+)_([0-9a-f]{{16}})")
_FILE = re.compile(rf"(?:data/dt={_DAY}|meta/buckets)/([^/]+)\.parquet")


class CommitName(NamedTuple):
    """A commit's name, taken apart."""

    name: str
    first: str  # UTC days that it covers
    last: str
    fence: int

    def may_hold(self, start_ms: int, end_ms: int) -> bool:
        return self.first <= day(end_ms - 1) and self.last >= day(start_ms)


class Commit(NamedTuple):
    """A commit, as its manifest's key tells it."""

    name: str
    first: str  # UTC days that it covers
    last: str
    fence: int
    sequence: int  # of its manifest in the chain
    seal: str | None = None  # that the manifest has to have, where it is known

    def may_hold(self, start_ms: int, end_ms: int) -> bool:
        return self.first <= day(end_ms - 1) and self.last >= day(start_ms)


def day(ms: int) -> str:
    return as_date(ms).date().isoformat()


def day_number(day: str) -> int:
    """Returns a UTC day since 1970."""
    return date.fromisoformat(day).toordinal() - _EPOCH


def commit_name(first_ms: int, last_ms: int, fence: int, digest: str) -> str:
    return f"{day(first_ms)}_{day(last_ms)}_f{fence:06d}_{digest[:16]}"


def parse_commit(name: str) -> CommitName | None:
    match = _COMMIT.fullmatch(name)
    return (
        CommitName(name, match[1], match[2], int(match[3]))
        if match and all(map(_is_day, match.group(1, 2)))
        else None
    )


def commit_at(name: str, sequence: int, seal: str | None = None) -> Commit | None:
    """Returns the commit of this name, whose manifest has this number; None where it is no such name."""
    found = parse_commit(name)
    return None if found is None else Commit(*found, sequence, seal)


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def commit_of_file(policy: str, key: str) -> CommitName | None:
    """Of which commit a run put a part or a buckets file there; None where none did."""
    match = _FILE.fullmatch(key.removeprefix(f"{policy}/"))
    return parse_commit(match[1]) if match else None


#: Of a manifest's number in its key: more digits than there will be commits.
_DIGITS = 10
_MANIFEST = re.compile(rf"(?P<sequence>[0-9]{{{_DIGITS}}})_(?P<commit>.+)\.json")
_LINK = re.compile(rf"(?P<commit>{_COMMIT.pattern})\.(?P<seal>[0-9a-f]{{16}})\.json")


class DamagedError(HaltedError):
    """The archive is not what its manifests say. Nothing was deleted."""

    def __init__(
        self, code: str, place: str, what: str, mend: str = "Restore the file from a backup of the store"
    ) -> None:
        super().__init__(f"{place}: {what}. Nothing was deleted. {mend}")
        self.code = code  # that of a finding
        self.place = place  # url of the file, or what names the document


_UNSEALED = "0" * 64
_SEALED = re.compile(
    rb'\n "sha256": "(?P<seal>[0-9a-f]{64})"'
    rb',\n "signature": (?P<signature>null|"[0-9a-f]{8}:[0-9a-f]{64}")\n}\Z'
)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredFile(_Model):
    key: str
    bytes: int
    sha256: str


class Part(StoredFile):
    dt: date
    rows: int
    first: datetime  # times of the first and last reading
    last: datetime


class Link(_Model):
    """A manifest, by its number, its name and its seal."""

    sequence: int = Field(ge=1, lt=10**_DIGITS)
    commit: str = Field(pattern=f"^{_COMMIT.pattern}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class LastReceipt(_Model):
    """A receipt, by its number and its seal."""

    sequence: int
    sha256: str


class Origin(_Model):
    """Buckets of a commit that others have held before: so many, archived first in that commit.

    Which of two versions of a bucket is the later one follows from where each was archived first."""

    sequence: int
    fence: int
    created: datetime
    buckets: int


#: Of the archive's format.
SCHEMA_VERSION = 4


class Manifest(_Model):
    """Everything that is needed to read a commit without the policy that made it."""

    schema_version: int = SCHEMA_VERSION
    policy: str
    commit: str
    fence: int
    database: str
    collection: str
    layout: dict[str, Any]  # the policy's keys that say how readings lie in its buckets
    series_types: dict[str, str]  # series field -> type of its column
    timeseries: dict[str, str] | None = None  # of a native time-series collection: what it is made with
    buckets: int
    overflow_documents: int
    readings: int
    first: datetime  # what the commit covers: the first and last reading; where it holds none, the
    last: datetime  # last time of its buckets
    documents_bytes: int  # of BSON
    documents_sha256: str  # over the raw BSON: buckets in their order, then overflow
    parts: tuple[Part, ...]
    buckets_file: StoredFile
    created: datetime
    replaces: tuple[str, ...] = ()  # commits that this one took over, less the buckets that had changed
    origins: tuple[Origin, ...] = ()  # of those buckets, in their order; none where it replaces nothing
    sequence: int  # one more than the largest of those before
    previous: tuple[Link, ...]  # the heads of the chain when it was made
    receipt: LastReceipt | None  # the last one then
    sha256: str = _UNSEALED  # of this file, with zeros in place of these digits, and null as signature
    signature: str | None = None  # of `sha256`

    @property
    def name(self) -> Commit:
        first, last = self.first.date().isoformat(), self.last.date().isoformat()
        return Commit(self.commit, first, last, self.fence, self.sequence, self.sha256)

    @property
    def link(self) -> Link:
        return Link(sequence=self.sequence, commit=self.commit, sha256=self.sha256)

    @property
    def all_origins(self) -> tuple[Origin, ...]:
        """Returns where its buckets were archived first, in their order: here, for most commits."""
        here = Origin(sequence=self.sequence, fence=self.fence, created=self.created, buckets=self.buckets)
        return self.origins or (here,)

    @property
    def oldest(self) -> Origin:
        """Returns the first of these."""
        return min(self.all_origins, key=lambda it: (it.sequence, it.fence))

    @property
    def newest(self) -> Origin:
        """Returns the last of these."""
        return max(self.all_origins, key=lambda it: it.created)

    @property
    def kin(self) -> str:
        """Returns what is equal for commits that can be merged: they came from one collection, by policies
        that read their buckets alike, and have the same columns."""
        told = [self.database, self.collection, self.layout, self.series_types, self.timeseries]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def days(self) -> list[int]:
        """Returns the UTC days of its readings, since 1970; and those that it covers first and last."""
        dates = {self.first.date(), self.last.date(), *(it.dt for it in self.parts)}
        return sorted(it.toordinal() - _EPOCH for it in dates)

    @property
    def archived_policy(self) -> Policy:
        """As far as decoding needs it: the policy as it was when the buckets were archived."""
        return Policy(name=self.policy, collection=self.collection, **self.layout)

    @property
    def files(self) -> tuple[StoredFile, ...]:
        return (*self.parts, self.buckets_file)

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files)


def part_key(policy: str, dt: str, commit: str) -> str:
    return f"{policy}/data/dt={dt}/{commit}.parquet"


def buckets_key(policy: str, commit: str) -> str:
    return f"{policy}/meta/buckets/{commit}.parquet"


def manifest_key(policy: str, sequence: int, commit: str) -> str:
    return f"{policy}/meta/manifests/{sequence:0{_DIGITS}d}_{commit}.json"


def parse_manifest_key(policy: str, key: str) -> Commit | None:
    """Returns the commit that a manifest's key names; None where no run would have given it."""
    match = _MANIFEST.fullmatch(key.removeprefix(f"{policy}/meta/manifests/"))
    return commit_at(match["commit"], int(match["sequence"])) if match else None


def superseded_key(policy: str, commit: str) -> str:
    return f"{policy}/meta/superseded/{commit}.bson"


def link_key(policy: str, commit: str, seal: str) -> str:
    """Where the manifest of a dropped commit stays. A run may make and drop one commit twice, and only the
    seals differ."""
    return f"{policy}/meta/superseded/{commit}.{seal[:16]}.json"


def sealed(manifest: Manifest) -> Manifest:
    """One flipped bit in a manifest could hide a commit, or have it deleted too early."""
    data = manifest.model_copy(update={"sha256": _UNSEALED, "signature": None}).model_dump_json(indent=1)
    return manifest.model_copy(update={"sha256": hashlib.sha256(data.encode()).hexdigest()})


def encoded(manifest: Manifest) -> bytes:
    """The manifest's file."""
    return manifest.model_dump_json(indent=1).encode()


def signed(data: bytes, signature: str | None) -> bytes:
    """A manifest's file with another signature, which the seal does not cover."""
    found = _SEALED.search(data)
    assert found is not None
    return data[: found.start("signature")] + json.dumps(signature).encode() + b"\n}"


def owner_key(policy: str) -> str:
    return f"{policy}/meta/owner.json"


def commits(store: ObjectStore, policy: str, from_sequence: int = 0) -> Iterator[Commit]:
    """Returns the commits with this number or a later one, by their numbers."""
    prefix = f"{policy}/meta/manifests/"
    after = f"{prefix}{from_sequence:0{_DIGITS}d}" if from_sequence else ""
    for found in store.list(prefix, after):
        commit = parse_manifest_key(policy, found.key)
        if commit is not None:
            yield commit


def links(store: ObjectStore, policy: str, commit: str = "") -> Iterator[tuple[str, str]]:
    """The dropped commits whose manifests are left: the names, and how their seals begin. `commit`: that one
    alone."""
    prefix = f"{policy}/meta/superseded/"
    for found in store.list(f"{prefix}{commit}"):
        if match := _LINK.fullmatch(found.key.removeprefix(prefix)):
            yield match["commit"], match["seal"]


def read_manifest(store: ObjectStore, policy: str, commit: Commit) -> Manifest:
    """Raises NotFound, and DamagedError where it is no manifest, or not the one that was written."""
    key = manifest_key(policy, commit.sequence, commit.name)
    manifest = _read(store, policy, commit.name, key)
    if manifest.sequence != commit.sequence:
        fault = f"it is manifest number {manifest.sequence} of the chain, and its name says another number"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault)
    return manifest


def read_link(store: ObjectStore, policy: str, commit: str, seal: str) -> Manifest:
    """Of a dropped commit; raises as `read_manifest`."""
    return _read(store, policy, commit, link_key(policy, commit, seal))


def _read(store: ObjectStore, policy: str, commit: str, key: str) -> Manifest:
    try:
        data = store.get_bytes(key)
    except Corrupt as error:
        raise DamagedError("part-differs", f"{store.url}/{key}", error.reason) from None
    if (version := _other_version(data)) is not None:
        fault = f"it is of version {version} of the format, and this release reads {SCHEMA_VERSION}"
        mend = "Use the release that wrote it"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault, mend)
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        fault = f"the manifest can't be read: {where}: {first['msg']}"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault) from None
    if _seal_of(data) != manifest.sha256:
        fault = "the manifest is not as it was written: its bytes don't have its own SHA-256"
    elif (manifest.policy, manifest.commit) != (policy, commit):
        fault = f"it is the manifest of commit {manifest.commit} of policy {manifest.policy}"
    elif (foreign := _foreign(manifest)) is not None:
        fault = f"it names {foreign!r}, which is no file of its commit"
    elif not _is_layout(manifest):
        fault = "its layout is none that a policy could have"
    else:
        return manifest
    raise DamagedError("part-differs", f"{store.url}/{key}", fault)


def _other_version(data: bytes) -> int | None:
    """Returns the version of a manifest that is whole, where it is not the one that this release reads."""
    try:
        said = json.loads(data)
        version, seal = int(said["schema_version"]), said["sha256"]
    except (ValueError, LookupError, TypeError):
        return None
    return version if version != SCHEMA_VERSION and seal == _seal_of(data) else None


def _foreign(manifest: Manifest) -> str | None:
    """A key that no run would have given a file of this commit. What a manifest names is read, and deleted
    with it: whoever can write one must not choose what."""
    policy, commit = manifest.policy, manifest.commit
    ours = [part_key(policy, part.dt.isoformat(), commit) for part in manifest.parts]
    ours.append(buckets_key(policy, commit))
    return next((it.key for it, key in zip(manifest.files, ours, strict=True) if it.key != key), None)


def _is_layout(manifest: Manifest) -> bool:
    try:
        return manifest.layout.keys() <= LAYOUT_KEYS and manifest.archived_policy is not None
    except ValidationError:
        return False


def _seal_of(data: bytes) -> str | None:
    """What its own bytes say; None where they don't end as a manifest's do."""
    found = _SEALED.search(data)
    if found is None:
        return None
    unsealed = signed(data[: found.start("seal")] + _UNSEALED.encode() + data[found.end("seal") :], None)
    return hashlib.sha256(unsealed).hexdigest()
