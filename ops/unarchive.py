#!/usr/bin/env python3
"""Reads an offline archive of bucketwise without bucketwise: lists commits, checks them, writes documents.

    unarchive.py list|check|write URL POLICY [--since INSTANT] [--until INSTANT] [--secret-variable NAME]
    check: [--key-variable NAME]    write: --into FOLDER

URL is a directory, file:///… or s3://bucket/prefix?region=…&endpoint_override=…&scheme=http. `write` makes
files of BSON, one a collection, for `mongorestore` and `bsondump`. `check` compares every digest, the
documents with theirs, the chain of manifests and, with a key, the signatures. An encrypted archive needs its
secret, and cryptography beside pyarrow and pymongo (for `bson`). It follows docs/archive-format.md,
docs/archive-records.md and docs/encryption.md, and only reads.
Exit codes: 0 all is well; 1 something is wrong, and each thing is named; 2 bad usage.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import hmac
import json
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson import SON, CodecOptions
from pyarrow import fs
from pyarrow.parquet.encryption import CryptoFactory, KmsClient, KmsConnectionConfig

VERSION = 6
#: What a placeholder holds, by its source: how it is packed; by what it is multiplied, and then divided.
PACKED = {1: "<q", 2: "<i", 3: "<q", 4: "<d", 5: "<d", 6: "<i", 7: "<q", 8: "<q", 9: "<d", 10: "<q", 11: "<q"}
SCALED = {2: (1, 1000), 3: (1, 1000), 4: (1, 1000), 10: (1000, 1), 11: (1_000_000, 1)}
Json = dict[str, Any]
Unit = tuple[bytes, list[bytes], list[int]]  # a bucket, its overflow, times of its readings in ms since 1970


class BadArchive(Exception):
    """Something is not as the format says. The text names the object."""


@dataclass
class Archive:
    """The objects of one policy. Reads them; remembers what is wrong instead of stopping at the first."""

    files: fs.FileSystem
    root: str
    policy: str
    problems: list[str] = field(default_factory=list)
    data_keys: dict[bytes, bytes] = field(default_factory=dict)  # of an encrypted one, by their ids

    def read(self, key: str) -> bytes:
        """Returns an object, by its key below the URL. Raises BadArchive if it is missing."""
        try:
            with self.files.open_input_stream(f"{self.root}/{key}", compression=None) as stream:
                data = bytes(stream.read())
        except (FileNotFoundError, IsADirectoryError):
            raise BadArchive(f"{key} is missing") from None
        return self.opened(data[4:], key, key) if data[:4] == b"BWE1" else data

    def opened(self, sealed: bytes, name: str, key: str) -> bytes:
        """Returns what an object has sealed as `name`. Raises BadArchive if it was not, or has no key."""
        if sealed[:4] not in self.data_keys:
            raise BadArchive(f"{key} is encrypted under a data key that the keyring does not hold")
        return decrypted(self.data_keys[sealed[:4]], sealed[4:], name, key)

    def unlock(self, secret: str) -> None:
        """Unwraps the data keys of the keyring. Raises BadArchive if the secret is not theirs."""
        extracted = hmac.digest(bytes(32), secret.encode(), "sha256")
        key = hmac.digest(extracted, b"bucketwise encryption key\1", "sha256")
        name = hmac.digest(secret.encode(), b"encryption key id", "sha256").hex()[:8]
        ring = f"{self.policy}/meta/keyring.json"
        try:
            for it in self.load(ring)["keys"]:
                if name not in it["wrapped"]:
                    needed = ", ".join(it["wrapped"])
                    raise BadArchive(f"{ring} needs the secret of key {needed}: name its --secret-variable")
                wrapped = base64.b64decode(it["wrapped"][name])
                self.data_keys[bytes.fromhex(it["id"])] = decrypted(key, wrapped, "data key", ring)
        except (ValueError, LookupError, TypeError):
            raise BadArchive(f"{ring} is no keyring") from None

    def table(self, named: Json) -> pa.Table:
        """Returns the rows of a Parquet file that a manifest names. Raises BadArchive if it is another."""
        data, key, opened = self.read(named["key"]), named["key"], self.opened
        if len(data) != named["bytes"] or hashlib.sha256(data).hexdigest() != named["sha256"]:
            raise BadArchive(f"{key} is not what its manifest says")

        class FileKey(KmsClient):  # type: ignore[misc]
            def unwrap_key(self, wrapped: str, _name: str) -> bytes:
                return opened(base64.b64decode(wrapped), f"key of {key}", key)

        factory = CryptoFactory(lambda _: FileKey())
        how = factory.file_decryption_properties(KmsConnectionConfig()) if data[:4] == b"PARE" else None
        return pq.read_table(pa.BufferReader(data), decryption_properties=how)

    def names(self, folder: str) -> list[str]:
        """Returns the keys below a folder of the policy, sorted."""
        place = f"{self.root}/{self.policy}/{folder}"
        found = self.files.get_file_info(fs.FileSelector(place, allow_not_found=True, recursive=True))
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


def open_archive(url: str, policy: str, secret: str | None = None) -> Archive:
    """Returns the archive of a policy at a URL or in a directory. Raises BadArchive if there is none."""
    files, root = fs.FileSystem.from_uri(url if "://" in url else Path(url).resolve().as_uri())
    archive = Archive(files, root.rstrip("/"), policy)
    if not (names := archive.names("meta")):
        raise BadArchive(f"{url} has no archive of {policy}")
    if f"{policy}/meta/keyring.json" in names:
        archive.unlock(secret or "")
    return archive


def decrypted(secret: bytes, sealed: bytes, name: str, key: str) -> bytes:
    """Returns what was sealed by AES-256-GCM. Raises BadArchive if it was changed, or is another's."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(secret).decrypt(sealed[:12], sealed[12:], name.encode())
    except (InvalidTag, ValueError):
        raise BadArchive(f"{key} can't be decrypted: it was changed, or is another object") from None


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
    found: dict[tuple[bool, int, int], tuple[bytes, list[int]]] = {}
    for group in archive.table(section["buckets_file"]).to_pylist():
        for index, (unit, order) in enumerate(zip(group["units"], group["order"], strict=True)):
            found[group["overflow"], unit, order] = filled(group, index, times, values)
    found = dict(sorted(found.items()))
    own, more = ([unit for is_more, unit, _ in found if is_more == asked] for asked in (False, True))
    if own != list(range(section["buckets"])) or not {*more} <= {*own}:
        raise BadArchive(f"{key} has other buckets than the {section['buckets']} of its section")
    content = [document for document, _ in found.values()] + [struct.pack("<i", unit) for unit in more]
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    if digest != section["documents_sha256"] or len(more) != section["overflow_documents"]:
        raise BadArchive(f"{key} and its parts do not give the documents that were archived")
    for _, places in groupby(sorted(found, key=lambda it: it[1]), key=lambda it: it[1]):
        (document, at), *overflow = (found[place] for place in places)
        yield document, [it for it, _ in overflow], at + [time for _, its in overflow for time in its]


def rows(archive: Archive, layout: Json, parts: list[Json]) -> tuple[list[int], list[list[Any]]]:
    """Returns the times of all rows of a section, as in Unit, and the values of each value field."""
    said, times = layout.get("values", {}), list[int]()
    names = [said.get(it, {}).get("as") or it.rpartition("*.")[2] for it in layout["value_fields"]]
    values: list[list[Any]] = [[] for _ in names]
    for part in parts:
        table = archive.table(part)
        if table.num_rows != part["rows"]:
            raise BadArchive(f"{part['key']} has {table.num_rows} rows, and its manifest says {part['rows']}")
        times += [it // 1000 for it in table["time"].cast(pa.int64()).to_pylist()]
        for name, column in zip(names, values, strict=True):
            column += table[name.replace(".", "_")].to_pylist()
    return times, values


def filled(group: Json, index: int, times: list[int], values: list[list[Any]]) -> tuple[bytes, list[int]]:
    """Returns a document of a group, and the times of its readings."""
    count, k = len(group["units"]), group["readings"]
    has = [it >> 7 - index % 8 & 1 for it in group["held"][index // 8 :: -(-count // 8)]] or [1] * k
    at = group["rows"][index * k : (index + 1) * k]
    if len(group["rows"]) == count and (k != 1 or group["held"]):
        at = [group["rows"][index] + max(sum(has[: reading + 1]), 1) - 1 for reading in range(k)]
    document, taken = bytearray(group["skeleton"]), 0
    places = zip(*(group[it] for it in ("hole", "width", "source", "reading", "field")), strict=True)
    for hole, width, source, reading, number in places:
        if source == 0:
            content = group["residue"][taken * count + index : (taken + width) * count : count]
            taken += width
        elif at[reading] >= len(times):  # an absent reading of a document without any
            content = bytes(width)
        else:
            content = packed(source, (values[number] if source in (5, 6, 7) else times)[at[reading]])
        document[hole : hole + width] = content
    if flags := group["flag"]:
        there = [1, *(it >> 7 - index % 8 & 1 for it in group["present"][index // 8 :: -(-count // 8)])]
        document = bytearray(it for it, flag in zip(document, flags, strict=True) if there[flag])
    return bytes(document), [times[row] for row, it in zip(at, has, strict=True) if it and row < len(times)]


def packed(source: int, number: Any) -> bytes:
    """Returns the bytes of a placeholder from a value or, for other sources, from a time as in Unit."""
    form, (times, share) = PACKED[source], SCALED.get(source, (1, 1))
    try:
        return struct.pack(form, number / share if form == "<d" else int(number) * times // share)
    except (struct.error, OverflowError, TypeError, ValueError):  # absent, or too large: without meaning
        return bytes(struct.calcsize(form))


def is_signed(said: Json, key: str) -> bool:
    """Whether a seal has a signature under this key."""
    digits = hmac.new(key.encode(), str(said["sha256"]).encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(str(said.get("signature")).partition(":")[2], digits)


def sealed(archive: Archive, name: str, key: str | None) -> Json:
    """Returns a JSON object. Raises BadArchive unless it has its own seal, and with a key its signature."""
    said, text = archive.load(name), archive.read(name)
    start = text.rfind(b'"signature": ')
    before = (text[:start] + b'"signature": null\n}').replace(str(said.get("sha256")).encode(), b"0" * 64)
    if start < 0 or hashlib.sha256(before).hexdigest() != said.get("sha256"):
        raise BadArchive(f"{name} was changed: it has not its own seal")
    if key is not None and not is_signed(said, key):
        raise BadArchive(f"{name} is not signed with this key")
    return said


def check_seals(archive: Archive, keys: list[str], key: str | None) -> dict[str, Json]:
    """Notes objects without their seal or signature. Returns those that have it, by the key."""
    sound = {}
    for name in keys:
        try:
            sound[name] = sealed(archive, name, key)
        except BadArchive as error:
            archive.problems.append(str(error))
    return sound


def check_chain(archive: Archive, key: str | None) -> dict[str, Json]:
    """Notes what is broken between manifests. Returns those that are sound, by the key."""
    note = archive.problems.append
    manifests = check_seals(archive, archive.names("meta/manifests"), key)
    dropped = [it for it in archive.names("meta/superseded") if it.endswith(".json")]
    links = {**manifests, **check_seals(archive, dropped, key)}
    seals = {it["sha256"] for it in links.values()}
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
        except (BadArchive, OSError, EOFError, ValueError, bson.errors.BSONError) as error:
            note(f"{name} can't be read: {error}")
            continue
        seals = [receipt.pop("sha256") for receipt in receipts]
        for receipt, seal, previous in zip(receipts, seals, [None, *seals], strict=False):
            signature = receipt.pop("signature", None)
            is_sound = hashlib.sha256(bson.encode(receipt, codec_options=options)).hexdigest() == seal
            if not is_sound or (previous is not None and receipt["previous"] != previous):
                note(f"{name}: receipt {receipt['sequence']} was changed, or one is missing before it")
            elif key is not None and not is_signed({"sha256": seal, "signature": signature}, key):
                note(f"{name}: receipt {receipt['sequence']} is not signed with this key")
        count += len(receipts)
        span = (int(first), int(rest.partition("_")[0]), rest.partition("_")[2][:16])
        if not receipts or span != (receipts[0]["sequence"], receipts[-1]["sequence"], seals[-1][:16]):
            note(f"{name} holds other receipts than its name says")
    return count


def chosen(archive: Archive, asked: argparse.Namespace) -> list[Json]:
    """Returns the manifests of the range that count, by the first reading: no other one replaces them."""
    manifests = [archive.load(key) for key in archive.names("meta/manifests")]
    replaced = {name for it in manifests for name in it["replaces"]}
    kept = (it for it in manifests if it["commit"] not in replaced)
    found = [it for it in kept if instant(it["first"]) < asked.until and instant(it["last"]) >= asked.since]
    return sorted(found, key=lambda it: (it["first"], it["sequence"]))


def show(archive: Archive, asked: argparse.Namespace) -> None:
    """Prints the commits, one a line."""
    for it in chosen(archive, asked):
        buckets, readings = (sum(part[what] for part in it["sections"]) for what in ("buckets", "readings"))
        print(f"{it['commit']}  {it['first']} – {it['last']}  {buckets} buckets  {readings} readings")


def check(archive: Archive, asked: argparse.Namespace) -> None:
    """Compares all that the archive holds with its digests; notes what differs."""
    manifests = check_chain(archive, asked.key)
    receipts = check_receipts(archive, asked.key)
    for name in archive.names("meta/versions"):
        if hashlib.sha256(archive.read(name)).hexdigest() != name.split(".")[-2]:
            archive.problems.append(f"{name} was changed: its name has another SHA-256")
    commits, documents, readings = chosen(archive, asked), 0, 0
    for manifest in commits:
        for section, parts in sections(manifest):
            try:
                found = units(archive, manifest, section, parts)
                documents += sum(1 + len(overflow) for _, overflow, _ in found)
                readings += section["readings"]
            except (BadArchive, pa.ArrowException) as error:
                archive.problems.append(f"{manifest['commit']}: {error}")
    named = {it["key"] for manifest in manifests.values() for it in manifest["parts"]}
    named |= {it[f]["key"] for one in manifests.values() for it in one["sections"] for f in it if "file" in f}
    for key in sorted({*archive.names("data"), *archive.names("meta/buckets")} - named):
        print(f"note: {key} is of no commit: a run is under way, or was interrupted")
    print(f"{len(commits)} commits, {documents} documents, {readings} readings, {receipts} moved receipts")


def write(archive: Archive, asked: argparse.Namespace) -> None:
    """Writes the documents that have a reading in the range into a new folder, a file a collection."""
    since, until = (round(it.timestamp() * 1000) for it in (asked.since, asked.until))
    folder = asked.into.with_name(asked.into.name + ".partial")  # renamed once all is in it
    folder.mkdir(parents=True)
    counts: Counter[str] = Counter()
    for manifest in chosen(archive, asked):
        names = (manifest["collection"], (manifest["layout"].get("overflow") or {}).get("collection"))
        for section, parts in sections(manifest):
            for bucket, overflow, times in units(archive, manifest, section, parts):
                if times and not any(since <= it < until for it in times):
                    continue
                for name, documents in zip(names, ([bucket], overflow), strict=True):
                    if documents:
                        with (folder / f"{name.replace('/', '%2F')}.bson").open("ab") as file:
                            file.writelines(documents)
                        counts[name] += len(documents)
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
    parser.add_argument("--secret-variable", help="the environment variable with store.encryption_key")
    asked = parser.parse_args(arguments)
    asked.key, secret = (os.environ.get(it or "") for it in (asked.key_variable, asked.secret_variable))
    if asked.command == "write" and (asked.into is None or asked.into.exists()):
        parser.error("write needs --into FOLDER, which is not there yet")
    for name, found in ((asked.key_variable, asked.key), (asked.secret_variable, secret)):
        if name and not found:
            parser.error(f"the environment has no {name}")
    try:
        archive = open_archive(asked.url, asked.policy, secret)
        {"list": show, "check": check, "write": write}[asked.command](archive, asked)
    except (BadArchive, OSError, pa.ArrowException, ImportError) as error:
        print(f"unarchive: {error}", file=sys.stderr)
        return 1
    print("".join(f"unarchive: {it}\n" for it in archive.problems), end="", file=sys.stderr)
    return 1 if archive.problems else 0


if __name__ == "__main__":
    sys.exit(main())
