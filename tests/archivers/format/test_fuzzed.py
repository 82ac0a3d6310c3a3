"""Files of a store may be from anyone: what was made up, with the digest that a manifest says, is damage.
No other error comes of it, no hang, and no memory that the archive does not need."""

from __future__ import annotations

import hashlib
import io
import resource
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketwise.archivers.format.manifest import DamagedError, Manifest, StoredFile, read_manifest
from bucketwise.archivers.format.names import commits
from bucketwise.archivers.format.writing import decoding
from tests.archivers.builders import deletable
from tests.archivers.harness import Cycle, whole
from tests.archivers.states import States, all_archived

BY_NAME = {case.name: case for case in deletable()}
LISTS = ("units", "order", "rows", "hole", "width", "source", "reading", "field", "flag")
BYTES = ("skeleton", "residue", "present")
#: A test's archive has some hundred kilobytes.
MOST = 200_000_000
NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 7, 8, 59, 60, 61, 255, 256, 4000, 70_000, 2**31 - 1])


@pytest.fixture(params=["slots-overflow", "samples-epoch", "reading"])
def archived(request: pytest.FixtureRequest, prepared: States) -> Cycle:
    return prepared(BY_NAME[request.param], all_archived)


def manifest_of(cycle: Cycle) -> Manifest:
    name = cycle.policy.identity
    return read_manifest(cycle.store, name, next(iter(commits(cycle.store, name))))


def planted(cycle: Cycle, manifest: Manifest, file: StoredFile, data: bytes) -> Manifest:
    """Puts other bytes in the place of a file, and gives the manifest that names them."""
    (cycle.root / file.key).write_bytes(data)
    digest = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    known = manifest.model_dump()
    for held in (*known["parts"], *(it["buckets_file"] for it in known["sections"])):
        if held["key"] == file.key:
            held.update(digest)
    return Manifest.model_validate(known)


def read(cycle: Cycle, manifest: Manifest) -> bytes | None:
    """Returns the digest of the documents; None where damage is told."""
    archive = cycle.as_stored()  # nothing of it was read yet
    before = most_memory()
    try:
        return whole(archive, manifest).digest.encode()
    except DamagedError:
        return None
    finally:
        assert most_memory() - before < MOST


def most_memory() -> int:
    """Returns the most bytes that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def changed_list(data: st.DataObject, values: list[int]) -> list[int]:
    how = data.draw(st.sampled_from(["one", "all", "shorter", "longer", "empty"]))
    number = data.draw(NUMBERS)
    if how == "empty":
        return []
    if how == "longer":
        return [*values, number]
    if how == "shorter":
        return values[: data.draw(st.integers(0, max(0, len(values) - 1)))]
    if how == "all" or not values:
        return [number] * len(values)
    at = data.draw(st.integers(0, len(values) - 1))
    return [*values[:at], number, *values[at + 1 :]]


def changed_bytes(data: st.DataObject, content: bytes) -> bytes:
    how = data.draw(st.sampled_from(["flip", "shorter", "longer", "empty"]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    if how == "flip" and content:
        return content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    return {"shorter": content[:at], "empty": b""}.get(how, content + b"\0" * data.draw(st.integers(1, 4000)))


def rewritten(table: pa.Table, column: str, row: int, value: Any) -> bytes:
    values = table[column].to_pylist()
    values[row] = value
    kind = table.schema.field(column).type
    at = table.column_names.index(column)
    sink = io.BytesIO()
    pq.write_table(table.set_column(at, column, pa.array(values, type=kind)), sink, write_page_checksum=True)
    return sink.getvalue()


@pytest.mark.in_turn(1)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_buckets_file_that_was_made_up(archived: Cycle, data: st.DataObject) -> None:
    manifest = manifest_of(archived)
    file = manifest.sections[0].buckets_file
    before = (archived.root / file.key).read_bytes()
    table = pq.read_table(io.BytesIO(before))
    row = data.draw(st.integers(0, table.num_rows - 1))
    column = data.draw(st.sampled_from([*LISTS, *BYTES, "readings", "overflow"]))
    value = table[column][row].as_py()
    if column in LISTS:
        value = changed_list(data, value)
    elif column in BYTES:
        value = changed_bytes(data, value)
    elif column == "readings":
        value = data.draw(NUMBERS)
    else:
        value = not value
    try:
        found = read(archived, planted(archived, manifest, file, rewritten(table, column, row, value)))
    finally:
        (archived.root / file.key).write_bytes(before)
    assert found in (None, manifest.documents_sha256.encode())


@pytest.mark.in_turn(1)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_of_a_file_that_were_changed_on_purpose(archived: Cycle, data: st.DataObject) -> None:
    manifest = manifest_of(archived)
    section = manifest.sections[0]
    file = data.draw(st.sampled_from([section.buckets_file, *manifest.parts_of(0)]))
    before = (archived.root / file.key).read_bytes()
    try:
        found = read(archived, planted(archived, manifest, file, changed_bytes(data, before)))
    finally:
        (archived.root / file.key).write_bytes(before)
    assert found in (None, manifest.documents_sha256.encode())


@pytest.mark.in_turn(1)
def test_a_column_whose_name_is_no_text(archived: Cycle) -> None:
    manifest = manifest_of(archived)
    file = manifest.parts_of(0)[0]
    before = (archived.root / file.key).read_bytes()
    changed = before.replace(b"time", b"\xf4ime")
    assert changed != before
    try:
        assert read(archived, planted(archived, manifest, file, changed)) is None
    finally:
        (archived.root / file.key).write_bytes(before)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("share", [0, 1 / 2])
def test_a_part_with_fewer_rows(archived: Cycle, share: float) -> None:
    manifest = manifest_of(archived)
    file = manifest.parts_of(0)[0]
    before = (archived.root / file.key).read_bytes()
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(before)).slice(0, int(file.rows * share)), sink)
    try:
        assert read(archived, planted(archived, manifest, file, sink.getvalue())) is None
    finally:
        (archived.root / file.key).write_bytes(before)


def test_a_file_that_asks_for_more_memory_than_any_machine_has_is_damaged(prepared: States) -> None:
    cycle = prepared(BY_NAME["reading"], all_archived)
    part = manifest_of(cycle).parts[0]
    with pytest.raises(DamagedError, match="malloc of size"), decoding(cycle.store, part):
        pa.allocate_buffer(1 << 50)
