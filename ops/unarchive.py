#!/usr/bin/env python3
"""Reads an offline archive of bucketwise without bucketwise: lists commits, checks them, writes documents.

    unarchive.py list  URL POLICY [--since INSTANT] [--until INSTANT]
    unarchive.py check URL POLICY [--since INSTANT] [--until INSTANT] [--key-variable NAME]
    unarchive.py write URL POLICY --into FOLDER [--since INSTANT] [--until INSTANT]

URL is a directory, file:///… or s3://bucket/prefix?region=…&endpoint_override=…&scheme=http. `write` makes
files of BSON, one a collection, for `mongorestore` and `bsondump`. `check` compares every digest, the
documents with theirs, the chain of manifests and, with a key, the signatures.

It follows docs/archive-format.md and docs/archive-records.md, and needs pyarrow and pymongo (for `bson`)
alone. It only reads.
Exit codes: 0 all is well; 1 something is wrong, and each thing is named; 2 bad usage.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import hmac
import json
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson.codec_options import CodecOptions
from bson.son import SON
from pyarrow import fs

VERSION = 6
#: What a placeholder holds, by its source: how it is packed, and what of the row it is.
PACKED = {1: "<q", 2: "<i", 3: "<q", 4: "<d", 5: "<d", 6: "<i", 7: "<q", 8: "<q", 9: "<d", 10: "<q", 11: "<q"}
Json = dict[str, Any]
Values = list[list[float | None]]


class BadArchive(Exception):
    """Something is not as the format says. The text names the object."""


class Unit(NamedTuple):
    """A bucket with its overflow, as BSON, and the times of its readings in milliseconds since 1970."""

    bucket: bytes
    overflow: list[bytes]
    times: list[int]


@dataclass
class Archive:
    """The objects of one policy. Reads them; remembers what is wrong instead of stopping at the first."""

    files: fs.FileSystem
    root: str
    policy: str
    problems: list[str] = field(default_factory=list)

    def read(self, key: str) -> bytes:
        """Returns an object, by its key below the URL. Raises BadArchive if it is missing."""
        try:
            with self.files.open_input_stream(f"{self.root}/{key}", compression=None) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, IsADirectoryError):
            raise BadArchive(f"{key} is missing") from None

    def read_whole(self, named: Json) -> bytes:
        """Returns an object that a manifest names. Raises BadArchive unless it is as the manifest says."""
        data = self.read(named["key"])
        if len(data) != named["bytes"] or hashlib.sha256(data).hexdigest() != named["sha256"]:
            raise BadArchive(f"{named['key']} is not what its manifest says")
        return data

    def names(self, folder: str) -> list[str]:
        """Returns the keys below a folder of the policy, sorted."""
        place = f"{self.root}/{self.policy}/{folder}"
        selector = fs.FileSelector(place, allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        return sorted(it.path[len(self.root) + 1 :] for it in found if it.type == fs.FileType.File)

    def load(self, key: str) -> Json:
        """Returns a JSON object of the archive. Raises BadArchive if it is none, or of another version."""
        try:
            loaded = json.loads(self.read(key))
        except ValueError as error:
            raise BadArchive(f"{key} is not JSON: {error}") from None
        if not isinstance(loaded, dict) or loaded.get("schema_version", VERSION) != VERSION:
            raise BadArchive(f"{key} is of another version than {VERSION}")
        return loaded


def open_archive(url: str, policy: str) -> Archive:
    """Returns the archive of a policy at a URL or in a directory. Raises BadArchive if there is none."""
    files, root = fs.FileSystem.from_uri(url if "://" in url else Path(url).resolve().as_uri())
    archive = Archive(files, root.rstrip("/"), policy)
    if not archive.names("meta"):
        raise BadArchive(f"{url} has no archive of {policy}")
    return archive


def overlaps(part: Json, since: datetime, until: datetime) -> bool:
    """Whether a commit or a section may hold a reading from `since` up to, but without, `until`."""
    return instant(part["first"]) < until and instant(part["last"]) >= since


def instant(text: str) -> datetime:
    """Returns the instant of an ISO 8601 text; without an offset, it is in UTC."""
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def sections(manifest: Json) -> Iterator[tuple[Json, list[Json]]]:
    """Yields each section of a commit with its parts."""
    parts = iter(manifest["parts"])
    for section in manifest["sections"]:
        yield section, [next(parts) for _ in range(section["parts"])]


def units(archive: Archive, manifest: Json, section: Json, parts: list[Json]) -> Iterator[Unit]:
    """Yields the buckets of a section in their order. Raises BadArchive if one is not as it was."""
    times, values = rows(archive, manifest["layout"], parts)
    if len(times) != section["readings"]:
        raise BadArchive(f"{manifest['commit']}: {len(times)} rows, but {section['readings']} readings")
    key = section["buckets_file"]["key"]
    groups = pq.read_table(pa.BufferReader(archive.read_whole(section["buckets_file"]))).to_pylist()
    buckets: dict[int, tuple[bytes, list[int]]] = {}
    overflow: dict[int, list[tuple[int, bytes, list[int]]]] = {}
    for group in groups:
        for index, unit in enumerate(group["units"]):
            document, at = filled(group, index, times, values)
            if group["overflow"]:
                overflow.setdefault(unit, []).append((group["order"][index], document, at))
            else:
                buckets[unit] = (document, at)
    if sorted(buckets) != list(range(section["buckets"])):
        raise BadArchive(f"{key} has other buckets than the {section['buckets']} of its section")
    found = [(unit, it) for unit in sorted(overflow) for it in sorted(overflow[unit])]
    digest = hashlib.sha256()
    for unit in sorted(buckets):
        digest.update(buckets[unit][0])
    for _, (_, document, _) in found:
        digest.update(document)
    digest.update(b"".join(struct.pack("<i", unit) for unit, _ in found))
    if digest.hexdigest() != section["documents_sha256"] or len(found) != section["overflow_documents"]:
        raise BadArchive(f"{key} and its parts do not give the documents that were archived")
    for unit in sorted(buckets):
        document, at = buckets[unit]
        more = sorted(overflow.get(unit, []))
        yield Unit(document, [it[1] for it in more], at + [time for it in more for time in it[2]])


def rows(archive: Archive, layout: Json, parts: list[Json]) -> tuple[list[int], Values]:
    """Returns the times of all rows of a section, as in Unit, and the values of each value field."""
    names = [path.rpartition("*.")[2].replace(".", "_") for path in layout["value_fields"]]
    times: list[int] = []
    values: Values = [[] for _ in names]
    for part in parts:
        table = pq.read_table(pa.BufferReader(archive.read_whole(part)))
        if table.num_rows != part["rows"]:
            raise BadArchive(f"{part['key']} has {table.num_rows} rows, and its manifest says {part['rows']}")
        times += [it // 1000 for it in table["time"].cast(pa.int64()).to_pylist()]
        for name, column in zip(names, values, strict=True):
            column += table[name].to_pylist()
    return times, values


def filled(group: Json, index: int, times: list[int], values: Values) -> tuple[bytes, list[int]]:
    """Returns a document of a group, and the times of its readings."""
    count, k = len(group["units"]), group["readings"]
    at = group["rows"][index * k : (index + 1) * k]
    if len(group["rows"]) == count and k != 1:
        at = [group["rows"][index] + reading for reading in range(k)]
    document, taken = bytearray(group["skeleton"]), 0
    places = zip(*(group[it] for it in ("hole", "width", "source", "reading", "field")), strict=True)
    for hole, width, source, reading, number in places:
        if source == 0:
            content = group["residue"][taken * count + index : (taken + width) * count : count]
            taken += width
        elif at[reading] >= len(times):  # an absent reading of a document without any
            content = bytes(width)
        else:
            row = at[reading]
            content = packed(source, values[number][row] if source in (5, 6, 7) else times[row])
        document[hole : hole + width] = content
    bits, flags = group["present"], group["flag"]
    if flags:
        each = -(-count // 8)
        start = index // 8
        there = [bool(bits[flag * each + start] >> (7 - index % 8) & 1) for flag in range(max(flags))]
        pairs = zip(document, flags, strict=True)
        document = bytearray(byte for byte, flag in pairs if flag == 0 or there[flag - 1])
    return bytes(document), [times[row] for row in at if row < len(times)]


def packed(source: int, number: float | None) -> bytes:
    """Returns the bytes of a placeholder from a value or, for other sources, from a time as in Unit."""
    form = PACKED[source]
    if number is None or (form != "<d" and number != number):  # what is absent; its bytes have no meaning
        return bytes(struct.calcsize(form))
    if source in (2, 3):
        number = number // 1000
    elif source == 4:
        number = number / 1000.0
    elif source in (10, 11):
        number = number * (1000 if source == 10 else 1_000_000)
    try:
        return struct.pack(form, number if form == "<d" else int(number))
    except (struct.error, OverflowError):
        return bytes(struct.calcsize(form))  # too large for it, so absent as well


def is_sealed(text: bytes, said: Json) -> bool:
    """Whether a JSON object has its own seal."""
    start = text.rfind(b'"signature": ')
    before = text[:start] + b'"signature": null\n}'
    before = before.replace(str(said.get("sha256")).encode(), b"0" * 64)
    return start >= 0 and hashlib.sha256(before).hexdigest() == said.get("sha256")


def is_signed(said: Json, key: str) -> bool:
    """Whether a seal has a signature under this key."""
    digits = hmac.new(key.encode(), str(said["sha256"]).encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(str(said.get("signature")).partition(":")[2], digits)


def check_seals(archive: Archive, keys: list[str], key: str | None) -> dict[str, Json]:
    """Notes objects without their seal or signature. Returns those that have it, by the key."""
    note = archive.problems.append
    sound = {}
    for name in keys:
        try:
            said = archive.load(name)
        except BadArchive as error:
            note(str(error))
            continue
        if not is_sealed(archive.read(name), said):
            note(f"{name} was changed: it has not its own seal")
        elif key is not None and not is_signed(said, key):
            note(f"{name} is not signed with this key")
        else:
            sound[name] = said
    return sound


def check_chain(archive: Archive, key: str | None) -> dict[str, Json]:
    """Notes what is broken between manifests. Returns those that are sound, by the key."""
    note = archive.problems.append
    manifests = check_seals(archive, archive.names("meta/manifests"), key)
    dropped = [it for it in archive.names("meta/superseded") if it.endswith(".json")]
    links = {**manifests, **check_seals(archive, dropped, key)}
    seals = {it["sha256"]: name for name, it in links.items()}
    checkpoints = check_seals(archive, archive.names("meta/checkpoints"), key)
    last = max(checkpoints.values(), key=lambda it: int(it["sequence"]), default=None)
    for name, manifest in manifests.items():
        number, _, commit = name.rpartition("/")[2].removesuffix(".json").partition("_")
        if (int(number), commit) != (manifest["sequence"], manifest["commit"]):
            note(f"{name} is the manifest of {manifest['commit']}, number {manifest['sequence']}")
    for name, manifest in links.items():
        for before in manifest["previous"]:
            told = last is not None and before["sequence"] <= last["sequence"]
            if before["sha256"] not in seals and not told:
                note(f"{name} follows {before['commit']}, whose manifest is missing or another")
    for listed in last["commits"] if last else ():
        if listed["sha256"] not in seals:
            note(f"the checkpoint lists {listed['commit']}, whose manifest is missing or another")
    check_seals(archive, archive.names("meta/holds"), key)
    return manifests


def check_receipts(archive: Archive, key: str | None) -> int:
    """Notes receipts in the store that are damaged or missing. Returns how many there are."""
    note = archive.problems.append
    count, options = 0, CodecOptions(document_class=SON, tz_aware=True)
    for name in archive.names("meta/receipts"):
        first, _, rest = name.rpartition("/")[2].partition("-")
        try:
            receipts = bson.decode_all(gzip.decompress(archive.read(name)), options)
        except (OSError, EOFError, ValueError, bson.errors.BSONError) as error:
            note(f"{name} can't be read: {error}")
            continue
        previous = None
        for receipt in receipts:
            seal = receipt.pop("sha256")
            signature = receipt.pop("signature", None)
            sealed = hashlib.sha256(bson.encode(receipt, codec_options=options)).hexdigest() == seal
            if not sealed or (previous is not None and receipt["previous"] != previous):
                note(f"{name}: receipt {receipt['sequence']} was changed, or one is missing before it")
            elif key is not None and not is_signed({"sha256": seal, "signature": signature}, key):
                note(f"{name}: receipt {receipt['sequence']} is not signed with this key")
            previous = seal
        count += len(receipts)
        span = (int(first), int(rest.partition("_")[0]), rest.partition("_")[2][:16])
        if not receipts or span != (receipts[0]["sequence"], receipts[-1]["sequence"], str(previous)[:16]):
            note(f"{name} holds other receipts than its name says")
    return count


def chosen(archive: Archive, asked: argparse.Namespace) -> list[Json]:
    """Returns the manifests of the range that count, by the first reading: no other one replaces them."""
    manifests = [archive.load(key) for key in archive.names("meta/manifests")]
    replaced = {name for it in manifests for name in it["replaces"]}
    found = [
        it for it in manifests if it["commit"] not in replaced and overlaps(it, asked.since, asked.until)
    ]
    return sorted(found, key=lambda it: (it["first"], it["sequence"]))


def show(archive: Archive, asked: argparse.Namespace) -> None:
    """Prints the commits, one a line."""
    for it in chosen(archive, asked):
        buckets, readings = (sum(part[what] for part in it["sections"]) for what in ("buckets", "readings"))
        print(f"{it['commit']}  {it['first']} – {it['last']}  {buckets} buckets  {readings} readings")


def check(archive: Archive, asked: argparse.Namespace) -> None:
    """Compares all that the archive holds with its digests; notes what differs."""
    note = archive.problems.append
    manifests = check_chain(archive, asked.key)
    receipts = check_receipts(archive, asked.key)
    for name in archive.names("meta/versions"):
        if hashlib.sha256(archive.read(name)).hexdigest() != name.split(".")[-2]:
            note(f"{name} was changed: its name has another SHA-256")
    commits, documents, readings = chosen(archive, asked), 0, 0
    for manifest in commits:
        for section, parts in sections(manifest):
            try:
                documents += sum(1 + len(it.overflow) for it in units(archive, manifest, section, parts))
                readings += section["readings"]
            except (BadArchive, pa.ArrowException) as error:
                note(f"{manifest['commit']}: {error}")
    named = {it["key"] for manifest in manifests.values() for it in manifest["parts"]}
    named |= {it["buckets_file"]["key"] for manifest in manifests.values() for it in manifest["sections"]}
    for key in sorted({*archive.names("data"), *archive.names("meta/buckets")} - named):
        print(f"note: {key} is of no commit: a run is under way, or was interrupted")
    print(f"{len(commits)} commits, {documents} documents, {readings} readings, {receipts} moved receipts")


def write(archive: Archive, asked: argparse.Namespace) -> None:
    """Writes the documents that have a reading in the range into a new folder, a file a collection."""
    since, until = (round(it.timestamp() * 1000) for it in (asked.since, asked.until))
    folder = asked.into.with_name(asked.into.name + ".partial")  # renamed once all is in it
    folder.mkdir(parents=True)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for manifest in chosen(archive, asked):
            names = (manifest["collection"], (manifest["layout"].get("overflow") or {}).get("collection"))
            for section, parts in sections(manifest):
                for unit in units(archive, manifest, section, parts):
                    if unit.times and not any(since <= it < until for it in unit.times):
                        continue
                    for name, documents in zip(names, ([unit.bucket], unit.overflow), strict=True):
                        if documents and name not in files:
                            path = folder / f"{name.replace('/', '%2F')}.bson"
                            files[name] = stack.enter_context(path.open("xb"))
                        for document in documents:
                            files[name].write(document)
                            counts[name] += 1
    folder.rename(asked.into)
    print("".join(f"{name}: {count} documents\n" for name, count in counts.items()), end="")


def main(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("command", choices=["list", "check", "write"])
    parser.add_argument("url")
    parser.add_argument("policy")
    parser.add_argument("--since", type=instant, default=datetime.min.replace(tzinfo=UTC))
    parser.add_argument("--until", type=instant, default=datetime.max.replace(tzinfo=UTC))
    parser.add_argument("--into", type=Path, help="of write: a folder that is not there yet")
    parser.add_argument("--key-variable", help="of check: the environment variable with store.signing_key")
    asked = parser.parse_args(arguments)
    asked.key = os.environ.get(asked.key_variable or "")
    if asked.command == "write" and (asked.into is None or asked.into.exists()):
        parser.error("write needs --into FOLDER, which is not there yet")
    if asked.key_variable and not asked.key:
        parser.error(f"the environment has no {asked.key_variable}")
    try:
        archive = open_archive(asked.url, asked.policy)
        {"list": show, "check": check, "write": write}[asked.command](archive, asked)
    except (BadArchive, OSError, pa.ArrowException) as error:
        print(f"unarchive: {error}", file=sys.stderr)
        return 1
    print("".join(f"unarchive: {it}\n" for it in archive.problems), end="", file=sys.stderr)
    return 1 if archive.problems else 0


if __name__ == "__main__":
    sys.exit(main())
