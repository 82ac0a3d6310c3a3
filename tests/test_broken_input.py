"""Whatever a policy file, a manifest, a receipt or an argument says: it is read, or told what is wrong."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketwise.archivers.format.manifest import (
    UNSEALED,
    DamagedError,
    Manifest,
    read_manifest,
    seal_of,
)
from bucketwise.archivers.format.names import commit_at, manifest_key
from bucketwise.archivers.markers import OwnerFile, marker_of
from bucketwise.archivers.records.heads import heads_of
from bucketwise.archivers.records.receipts import commit_of, live_of, shaped
from bucketwise.archivers.stores import open_store
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.config.errors import HaltedError, UsageError
from bucketwise.config.load import settings_in
from bucketwise.config.problems import ConfigError
from bucketwise.config.schema import policy_file_schema
from bucketwise.config.tables import Store
from bucketwise.jobs.core.clock import parse_instant
from bucketwise.jobs.core.job import parse_series
from bucketwise.jobs.core.ranges import parse_range
from bucketwise.jobs.explain.verb import parse_id
from tests.breaking import broken, documents, toml
from tests.examples import examples

Document = dict[str, Any]
pytestmark = pytest.mark.proof
#: Ten thousand in `make proof`, five times as many in `make soak`.
MANY = settings(max_examples=examples(2000))
SCHEMA = policy_file_schema()
POLICY_FILES = documents(SCHEMA, SCHEMA)


@MANY
@given(st.one_of(POLICY_FILES, broken(POLICY_FILES)))
def test_a_policy_file(document: Any) -> None:
    text = toml(document, is_top=True) if isinstance(document, dict) else toml(document)
    with suppress(ConfigError):
        settings_in(text, Path("bucketwise.toml"), {"A": "1", "MONGODB_URI": "mongodb://a/?replicaSet=b"})


NAME = "2018-06-30_2018-06-30_f000003_00112233445566aa"
AT = datetime(2018, 6, 30, 12, tzinfo=UTC).isoformat()
DIGEST = "ab" * 32
MANIFEST = {
    "schema_version": Manifest.model_fields["schema_version"].default,
    "policy": "p", "commit": NAME, "fence": 3, "database": "market", "collection": "ticks",
    "layout": {"model": "reading", "time_field": "d", "series_fields": ["s"], "value_fields": ["v"]},
    "series_types": {"s": "string"}, "timeseries": None, "first": AT, "last": AT,
    "parts": [{"key": f"p/data/dt=2018-06-30/{NAME}.parquet", "bytes": 9, "sha256": DIGEST,
               "dt": "2018-06-30", "rows": 2, "first": AT, "last": AT}],
    "sections": [{"buckets": 2, "overflow_documents": 0, "readings": 2, "first": AT, "last": AT,
                  "documents_bytes": 100, "documents_sha256": DIGEST, "parts": 1,
                  "buckets_file": {"key": f"p/meta/buckets/{NAME}.parquet", "bytes": 9, "sha256": DIGEST}}],
    "created": AT, "replaces": [], "versions": None, "sequence": 1,
    "origins": [{"sequence": 1, "fence": 3, "created": AT, "buckets": 2}],
    "previous": [{"sequence": 1, "commit": NAME, "sha256": DIGEST}],
    "receipt": {"sequence": 1, "sha256": DIGEST}, "sha256": UNSEALED, "signature": None,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(Store(url=tmp_path.as_uri()))


def _sealed(document: Any) -> bytes:
    """A manifest that says what it says, with a seal that fits where it has one."""
    data = json.dumps(document, indent=1, default=str).encode()
    seal = seal_of(data)
    return data if seal is None else data.replace(UNSEALED.encode(), seal.encode(), 1)


def test_the_manifest_is_sound_before_it_is_broken(store: ObjectStore) -> None:
    commit = commit_at(NAME, 1)
    assert commit is not None
    store.put_bytes(manifest_key("p", 1, NAME), _sealed(MANIFEST))
    assert read_manifest(store, "p", commit).archived_policy.series_fields == ("s",)


@MANY
@given(broken(st.just(MANIFEST)))
def test_a_manifest(store: ObjectStore, document: Any) -> None:
    commit = commit_at(NAME, 1)
    assert commit is not None
    store.put_bytes(manifest_key("p", 1, NAME), _sealed(document))
    with suppress(DamagedError):
        found = read_manifest(store, "p", commit)
        assert found.link and found.oldest and found.newest and found.edges and found.archived_policy


@MANY
@given(st.binary(max_size=60) | broken(st.just(MANIFEST)).map(_sealed).flatmap(lambda it: cut(it)))
def test_bytes_of_a_manifest(store: ObjectStore, data: bytes) -> None:
    commit = commit_at(NAME, 1)
    assert commit is not None
    store.put_bytes(manifest_key("p", 1, NAME), data)
    with suppress(HaltedError):  # some may be of an encrypted archive, without its keyring
        read_manifest(store, "p", commit)


def cut(data: bytes) -> st.SearchStrategy[bytes]:
    return st.integers(0, len(data)).map(lambda end: data[:end])


DAY = datetime(2018, 6, 30, tzinfo=UTC)
RECEIPT = {
    "_id": {"policy": "p", "name": NAME}, "kind": "offline", "state": "open", "sequence": 1, "seal": DIGEST,
    "live": zlib.compress(b"\x80"), "days": [17712], "first": DAY, "last": DAY, "copied": DAY,
    "first_day": 17712, "kin": "a", "buckets": 2, "readings": 2, "bytes": 9, "documents_bytes": 9,
}  # fmt: skip
HEADS = {
    "_id": {"policy": "p", "name": "heads"}, "kind": "heads", "sequence": 1, "lost": [], "damaged": [],
    "commits": [{"sequence": 1, "commit": NAME, "sha256": DIGEST}],
    "checkpoint": {"sequence": 1, "sha256": DIGEST, "commits": 1},
}  # fmt: skip


@MANY
@given(broken(st.sampled_from([RECEIPT, HEADS])))
def test_a_receipt(document: Any) -> None:
    """MongoDB has found it by its `_id`."""
    if not isinstance(document, dict):
        return
    name = NAME if "seal" in document else "heads"
    record = {**document, "_id": {"policy": "p", "name": name}}
    with suppress(DamagedError):
        shaped(record)
        if record.get("kind") == "offline":
            commit_of(record)
            live_of(record, 2)
        else:
            heads_of(record)


DEPLOYMENT = {"database": "market", "set": "rs", "hosts": ["h:1"], "id": None, "collections": {"a": "b"}}
OWNER = {
    "owner": "a", "database": "market", "user": "u", "host": "h", "at": AT,
    "deployment": DEPLOYMENT,
}  # fmt: skip


@MANY
@given(broken(st.sampled_from([OWNER, {"bucketwise": "store", "version": 1, "id": "ab"}])))
def test_files_that_say_whose_an_archive_is(document: Any) -> None:
    data = json.dumps(document, default=str).encode()
    for read in (OwnerFile.of, marker_of):
        with suppress(HaltedError):
            read(data, "here")


ARGUMENTS = st.sampled_from(
    [
        *(4711, "abc", {"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}, {"$date": AT}, {"a": [1, {"$numberLong": "7"}]}),
        {"$binary": {"base64": "AAAA", "subType": "03"}},
        {"$timestamp": {"t": 1, "i": 1}},
    ]
)


@MANY
@given(broken(ARGUMENTS).map(lambda it: json.dumps(it, default=str)) | st.text(max_size=20))
def test_an_argument(text: str) -> None:
    with suppress(UsageError):
        bson.encode({"_id": parse_id(text)})
    for read in (
        lambda: parse_instant(text, "--at"),
        lambda: parse_series([text]),
        lambda: parse_range(text, None),
        lambda: parse_range(None, text),
    ):
        with suppress(UsageError):
            read()
