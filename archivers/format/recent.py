"""Caches of what was read last from an archive."""

from __future__ import annotations

from archivers.format.manifest import Part, Section
from buckets.bson.raw import Batch

#: Bytes of documents that are cached, besides those of the last section.
_KEPT = 8_000_000
#: Bytes of parts that are cached.
_MOST_PARTS = 16 << 20


class Recent:
    """Caches the last section of a commit that was read, and small ones before it: callers go by days, and
    commits span some. Also caches the files of parts of which rows were read, since several commits may
    overlap in time."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}  # by their SHA-256
        self._batches: dict[str, Batch] = {}  # the one that was asked for last comes last

    def get(self, section: Section) -> Batch | None:
        """Returns the buckets of a section; None where they are not held."""
        key = _key(section)
        if (found := self._batches.pop(key, None)) is not None:
            self._batches[key] = found
        return found

    def put(self, section: Section, batch: Batch) -> None:
        """Holds the buckets of a section, and drops the oldest others beyond the limit."""
        self._batches.pop(_key(section), None)
        self._batches[_key(section)] = batch
        others = sum(it.size for it in self._batches.values()) - batch.size
        for key in list(self._batches)[:-1]:
            if others <= _KEPT:
                break
            others -= self._batches.pop(key).size

    def part(self, part: Part) -> bytes | None:
        """Returns the bytes of a part; None where they are not held."""
        return self._parts.get(part.sha256)

    def put_part(self, part: Part, data: bytes) -> None:
        """Holds the bytes of a part, and drops the oldest others beyond the limit."""
        while self._parts and sum(map(len, self._parts.values())) + part.bytes > _MOST_PARTS:
            self._parts.pop(next(iter(self._parts)))
        self._parts[part.sha256] = data


def _key(section: Section) -> str:
    """Returns the key of the buckets file, which names the commit and the section."""
    return f"{section.buckets_file.key} {section.documents_sha256}"
