"""Manifests: what a commit of the offline archive holds. A commit exists once its manifest does.

A commit is some buckets, archived together: one part a UTC day of their readings, one buckets file, one
manifest. A large one has several sections of these, each of a size that fits into the memory of a run.

Each manifest names the seals of those that were the heads when it was made, so that they form a chain: none
can be changed, taken out or put back to what it was without the heads telling. A manifest stays when its
commit is dropped, as a link.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from bucketwise.archivers.format.names import (
    COMMIT,
    DIGITS,
    EPOCH,
    Commit,
    buckets_key,
    commit_at,
    link_key,
    manifest_key,
    parse_commit,
    part_key,
    states_key,
)
from bucketwise.archivers.format.series import HeldSeries
from bucketwise.archivers.stores.base import Corrupt, ObjectStore
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.buckets.fields.times import DAY_MS, as_ms
from bucketwise.config.errors import HaltedError
from bucketwise.config.models import LAYOUT_KEYS, layout_of, recorded_policy
from bucketwise.config.policies import Policy

UNSEALED = "0" * 64
_SEALED = re.compile(
    rb'\n "sha256": "(?P<seal>[0-9a-f]{64})"'
    rb',\n "signature": (?P<signature>null|"[0-9a-f]{8}:[0-9a-f]{64}")\n}\Z'
)
Model = TypeVar("Model", bound=BaseModel)


def sealed(model: Model) -> Model:
    """Returns a model with its seal: one flipped bit could hide a commit, or have it deleted too early."""
    unsealed = model.model_copy(update={"sha256": UNSEALED, "signature": None})
    return model.model_copy(update={"sha256": hashlib.sha256(encoded(unsealed)).hexdigest()})


def encoded(model: BaseModel) -> bytes:
    """Returns the bytes of a model's file."""
    return model.model_dump_json(indent=1).encode()


def signed(data: bytes, signature: str | None) -> bytes:
    """Returns the bytes of a file with another signature, which the seal does not cover."""
    found = _SEALED.search(data)
    assert found is not None
    return data[: found.start("signature")] + json.dumps(signature).encode() + b"\n}"


def seal_of(data: bytes) -> str | None:
    """Returns the seal that a file's own bytes have; None where they don't end as such a file does."""
    found = _SEALED.search(data)
    if found is None:
        return None
    unsealed = signed(data[: found.start("seal")] + UNSEALED.encode() + data[found.end("seal") :], None)
    return hashlib.sha256(unsealed).hexdigest()


class DamagedError(HaltedError):
    """The archive is not what its manifests say. Nothing was deleted."""

    def __init__(
        self, code: str, place: str, what: str, remedy: str = "Restore the file from a backup of the store"
    ) -> None:
        super().__init__(f"{place}: {what}. Nothing was deleted. {remedy}")
        self.code, self.what = code, what  # the code of a finding
        self.place = place  # url of the file, or what names the document


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredFile(_Model):
    """A file of a commit: its key in the store, its size, and the SHA-256 of its bytes."""

    key: str
    bytes: int
    sha256: str


class Part(StoredFile):
    """A part: the readings of one UTC day, and how many rows they take."""

    dt: date
    rows: int
    first: datetime  # times of the first and last reading
    last: datetime

    def touches(self, start_ms: int, end_ms: int) -> bool:
        """Returns whether [start, end) may hold one of its readings."""
        return as_ms(self.first) < end_ms and as_ms(self.last) >= start_ms


class Section(_Model):
    """Buckets of a commit that are packed together: their documents follow from parts and buckets file."""

    buckets: int
    overflow_documents: int
    readings: int
    first: datetime  # of its readings; of a bucket that holds none, its own last time
    last: datetime
    series: HeldSeries | None = None  # which its readings are of; None: of any
    documents_bytes: int  # of BSON
    documents_sha256: str  # over the raw BSON: buckets in their order, then overflow
    parts: int = Field(ge=0)  # how many of the commit's
    buckets_file: StoredFile
    states_file: StoredFile | None = None  # of those whose parts move to a cold class
    empty_days: tuple[date, ...] = ()  # UTC days of which it has no part, but buckets that hold no reading

    @model_serializer(mode="wrap")
    def _told(self, told: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Returns a section as manifests have it: what was added to them later is there where it is used."""
        return {key: it for key, it in told(self).items() if it or key not in ("states_file", "empty_days")}

    def touches(self, start_ms: int, end_ms: int) -> bool:
        """Returns whether [start, end) may hold a reading of it, or the last time of a bucket without."""
        return as_ms(self.first) < end_ms and as_ms(self.last) >= start_ms


class Link(_Model):
    """A manifest, by its number, its name and its seal."""

    sequence: int = Field(ge=1, lt=10**DIGITS)
    commit: str = Field(pattern=f"^{COMMIT.pattern}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class LastReceipt(_Model):
    """A receipt, by its number and its seal."""

    sequence: int
    sha256: str


class Origin(_Model):
    """Buckets of a commit that other commits held before: their number, and where they were archived first.

    Which of two versions of a bucket is the later one follows from where each was archived first."""

    sequence: int
    fence: int
    created: datetime
    buckets: int


#: The version of the archive's format.
SCHEMA_VERSION = 6


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
    timeseries: dict[str, str] | None = None  # options of a native time-series collection
    first: datetime  # what its sections cover
    last: datetime
    parts: tuple[Part, ...]  # section by section
    sections: tuple[Section, ...] = Field(min_length=1)  # of its buckets, in their order
    created: datetime
    replaces: tuple[str, ...] = ()  # commits that this one took over, less the buckets that had changed
    origins: tuple[Origin, ...] = ()  # of those buckets, in their order; none where it replaces nothing
    versions: tuple[str, ...] | None = None  # SHA-256 of what was kept of these commits; None: not told
    sequence: int  # one more than the largest of those before
    previous: tuple[Link, ...]  # the heads of the chain when it was made
    receipt: LastReceipt | None  # the last one then
    sha256: str = UNSEALED  # of this file, with zeros in place of these digits, and null as signature
    signature: str | None = None  # of `sha256`

    @model_validator(mode="after")
    def _has_all_parts(self) -> Self:
        if sum(it.parts for it in self.sections) != len(self.parts):
            raise ValueError("its sections don't have as many parts as there are")
        return self

    @property
    def name(self) -> Commit:
        """Returns the commit as a key of a manifest names it."""
        found = commit_at(self.commit, self.sequence, self.sha256)
        assert found is not None  # it was checked when the manifest was read
        return found

    @property
    def link(self) -> Link:
        """Returns the link by which later manifests name this one."""
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
    def merge_key(self) -> str:
        """Returns a key that is equal for commits that can be merged: they came from one collection, by
        policies that read their buckets alike, and have the same columns."""
        facts = [self.database, self.collection, self.layout, self.series_types, self.timeseries]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def edges(self) -> list[int]:
        """Returns the positions where sections begin, and that after the end of the last one."""
        return list(itertools.accumulate((it.buckets for it in self.sections), initial=0))

    @property
    def buckets(self) -> int:
        """Returns how many buckets it holds."""
        return sum(it.buckets for it in self.sections)

    @property
    def readings(self) -> int:
        """Returns how many readings its parts hold."""
        return sum(it.readings for it in self.sections)

    @property
    def documents_bytes(self) -> int:
        """Returns the size of its documents in bytes, as BSON."""
        return sum(it.documents_bytes for it in self.sections)

    @property
    def documents_sha256(self) -> str:
        """Returns the SHA-256 of its documents; of several sections, that of theirs one after the other."""
        digests = [it.documents_sha256 for it in self.sections]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def parts_of(self, section: int) -> tuple[Part, ...]:
        """Returns the parts of the section with this number, from 0."""
        start = sum(it.parts for it in self.sections[:section])
        return self.parts[start : start + self.sections[section].parts]

    @property
    def days(self) -> list[int]:
        """Returns the UTC days of its readings, and of buckets that hold none, since 1970; and those that it
        covers first and last."""
        empty = (day for it in self.sections for day in it.empty_days)
        dates = {self.first.date(), self.last.date(), *(it.dt for it in self.parts), *empty}
        return sorted(it.toordinal() - EPOCH for it in dates)

    def is_of_days(self, start_ms: int, end_ms: int) -> bool:
        """Returns whether one of its `days` touches [start, end)."""
        return any(start_ms // DAY_MS <= day <= (end_ms - 1) // DAY_MS for day in self.days)

    @property
    def archived_policy(self) -> Policy:
        """Returns the policy as it was when the buckets were archived, as far as decoding needs it."""
        return recorded_policy({"name": self.policy, "collection": self.collection, **self.layout})

    def may_hold(self, policy: Policy, *selectors: Selector) -> bool:
        """Returns whether it may hold a series that one of these selectors of the policy names."""
        return any(self.sections_with(policy, selectors))

    def sections_with(self, policy: Policy, selectors: Sequence[Selector]) -> list[bool]:
        """Returns for each section whether it may hold a series that one of these selectors names."""
        ours = layout_of(policy)
        is_alike = all(ours.get(key) == self.layout.get(key) for key in _OF_SERIES)  # as it was read then
        held = (it.series for it in self.sections)
        return [not is_alike or it is None or any(map(it.may_hold, selectors)) for it in held]

    def sections_of(self, policy: Policy, start_ms: int, end_ms: int, *selectors: Selector) -> list[bool]:
        """Returns for each section whether it may hold something of [start, end), and, if there are
        selectors, a series that one of them names."""
        by_series = self.sections_with(policy, selectors) if selectors else [True] * len(self.sections)
        return [a and it.touches(start_ms, end_ms) for a, it in zip(by_series, self.sections, strict=True)]

    def has_rows_of(self, policy: Policy) -> bool:
        """Returns whether the rows of its parts are what a policy reads in its buckets."""
        is_exact = all(it.series is not None and it.series.is_exact for it in self.sections)
        return is_exact and layout_of(policy) == layout_of(self.archived_policy)

    def files_of(self, section: int) -> tuple[StoredFile, ...]:
        """Returns the files of the section with this number: its parts, its buckets file, and its states file
        if it has one."""
        beside = self.sections[section].buckets_file, self.sections[section].states_file
        return (*self.parts_of(section), *(it for it in beside if it is not None))

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Returns the files of all sections."""
        return tuple(it for number in range(len(self.sections)) for it in self.files_of(number))

    @property
    def size(self) -> int:
        """Returns the size of these files in bytes."""
        return sum(file.bytes for file in self.files)


#: The keys of a layout on which the series of a bucket depend.
_OF_SERIES = ("model", "series_fields", "samples_field", "overflow")


def read_manifest(store: ObjectStore, policy: str, commit: Commit, *, may_be_gone: bool = False) -> Manifest:
    """Returns the manifest of a commit. Raises NotFound, and DamagedError where it is no manifest, or not the
    one that was written. `may_be_gone`: the commit may have been dropped, so that no copy is asked for it."""
    key = manifest_key(policy, commit.sequence, commit.name)
    is_sound = partial(has_seal, seal=commit.seal)
    manifest = _read(store, policy, commit.name, key, is_sound, may_be_gone=may_be_gone)
    if manifest.sequence != commit.sequence:
        fault = f"it is manifest number {manifest.sequence} of the chain, and its name says another number"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault)
    return manifest


def read_link(store: ObjectStore, policy: str, commit: str, seal: str) -> Manifest:
    """Returns the manifest of a dropped commit. Raises as `read_manifest` does."""
    return _read(store, policy, commit, link_key(policy, commit, seal), has_seal)


def has_seal(data: bytes, seal: str | None = None) -> bool:
    """Returns whether a file is as it was sealed. `seal`: the one that it has to have, where it is known."""
    said = _SEALED.search(data)
    return (
        said is not None and seal_of(data) == said["seal"].decode() and seal in (None, said["seal"].decode())
    )


def _read(
    store: ObjectStore,
    policy: str,
    commit: str,
    key: str,
    is_sound: Callable[[bytes], bool],
    *,
    may_be_gone: bool = False,
) -> Manifest:
    try:
        data = store.get_bytes(key) if may_be_gone else b""
        if not is_sound(data):
            data = store.get_sound(key, is_sound)
    except Corrupt as error:
        raise DamagedError("part-differs", f"{store.url}/{key}", error.reason) from None
    if (version := _other_version(data)) is not None:
        fault = f"it is of version {version} of the format, and this release reads {SCHEMA_VERSION}"
        remedy = "Use the release that wrote it"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault, remedy)
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        fault = f"the manifest can't be read: {where}: {first['msg']}"
        raise DamagedError("part-differs", f"{store.url}/{key}", fault) from None
    if seal_of(data) != manifest.sha256:
        fault = "the manifest was changed: its bytes don't match its own SHA-256"
    elif (manifest.policy, manifest.commit) != (policy, commit):
        fault = f"it is the manifest of commit {manifest.commit} of policy {manifest.policy}"
    elif parse_commit(commit) is None:
        fault = "a day in the name of its commit is not valid"
    elif (foreign := _foreign(manifest)) is not None:
        fault = f"it names {foreign!r}, which is no file of its commit"
    elif not _is_layout(manifest):
        fault = "its layout is not one that a policy could have"
    else:
        return manifest
    raise DamagedError("part-differs", f"{store.url}/{key}", fault)


def _other_version(data: bytes) -> int | None:
    """Returns the version of an undamaged manifest, if it is not the one that this release reads."""
    try:
        said = json.loads(data)
        version, seal = int(said["schema_version"]), said["sha256"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return version if version != SCHEMA_VERSION and seal == seal_of(data) else None


def _foreign(manifest: Manifest) -> str | None:
    """Returns a key in it that no run would have given a file of this commit; None where there is none. What
    a manifest names is read, and deleted with it: whoever can write a manifest must not choose what."""
    policy, commit, ours = manifest.policy, manifest.commit, list[str]()
    for number, section in enumerate(manifest.sections):
        days = (part.dt.isoformat() for part in manifest.parts_of(number))
        ours += [*(part_key(policy, dt, commit, number) for dt in days), buckets_key(policy, commit, number)]
        ours += [states_key(policy, commit, number)] if section.states_file else []
    return next((it.key for it, key in zip(manifest.files, ours, strict=True) if it.key != key), None)


def _is_layout(manifest: Manifest) -> bool:
    try:
        return manifest.layout.keys() <= LAYOUT_KEYS and manifest.archived_policy is not None
    except ValidationError:
        return False


#: The number of the commit in the chain, and its fence.
First = tuple[int, int]


def origin_at(manifest: Manifest, position: int) -> First:
    """Returns where the bucket at a position of a commit was archived first."""
    return next(first for first, _, end in origin_spans(manifest) if position < end)


def origins_in(manifest: Manifest, start: int, end: int) -> set[First]:
    """Returns where the buckets at the positions [start, end) of a commit were archived first."""
    return {first for first, low, high in origin_spans(manifest) if low < end and high > start}


def origin_spans(manifest: Manifest) -> Iterator[tuple[First, int, int]]:
    """Yields where buckets of a commit were archived first, and their positions: the first, and the end."""
    edges = itertools.accumulate((it.buckets for it in manifest.all_origins), initial=0)
    for origin, (start, end) in zip(manifest.all_origins, itertools.pairwise(edges), strict=True):
        yield (origin.sequence, origin.fence), start, end
