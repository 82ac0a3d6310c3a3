"""What is there, seen from outside: documents by bson and plain loops, archives by manifests and pyarrow."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.buckets import oracle
from tests.soak.register import Reading
from tests.soak.sources import DAY, HOUR, Source, milliseconds

Document = dict[str, Any]
SETTLE = timedelta(minutes=10)


@dataclass
class Files:
    """The offline archives: files on a disk. A part never changes, so that each is read once."""

    root: Path
    _parts: dict[str, list[Reading]] = field(default_factory=dict)
    _manifests: dict[str, dict[Path, Document]] = field(default_factory=dict)

    def readings(self, source: Source) -> Iterator[Reading]:
        """Yields what a reader of the manifests sees."""
        found = self._all_manifests(source.name)
        replaced = {name for manifest in found for name in manifest.get("replaces", [])}
        for manifest in found:
            if manifest["commit"] not in replaced:
                for part in manifest["parts"]:
                    if (self.root / part["key"]).exists():  # an archive may have ended
                        yield from self._read(source, part["key"])

    def lying(self, source: Source) -> Iterator[Reading]:
        """Yields what a reader of all files sees."""
        for path in self.root.glob(f"{source.name}/data/**/*.parquet"):
            yield from self._read(source, str(path.relative_to(self.root)))

    def _all_manifests(self, policy: str) -> list[Document]:
        known = self._manifests.get(policy, {})
        paths = self.root.glob(f"{policy}/meta/manifests/**/*.json")
        found = {it: known.get(it) or json.loads(it.read_bytes()) for it in paths}
        self._manifests[policy] = found
        return list(found.values())

    def _read(self, source: Source, key: str) -> list[Reading]:
        if key not in self._parts:
            columns = [source.series_field.replace(".", "_"), "time", source.value_field]
            table = pq.read_table(self.root / key, columns=columns, partitioning=None)
            times = table.column("time").cast(pa.int64()).to_pylist()
            series, values = table.column(columns[0]).to_pylist(), table.column(columns[2]).to_pylist()
            unit = table.schema.field("time").type.unit
            scale = {"ms": 1, "us": 1000}[unit]
            self._parts[key] = [
                Reading(one, time // scale, value)
                for one, time, value in zip(series, times, values, strict=True)
            ]
        return self._parts[key]


@dataclass(frozen=True)
class Seen:
    """The readings of a policy, wherever they lie."""

    live: dict[float, Reading]
    archived: Counter[Reading]

    @classmethod
    def of(cls, source: Source, files: Files) -> Seen:
        live = {it.value: it for it in source.live()}
        archived = source.online() if source.is_online else files.readings(source)
        return cls(live, Counter(archived))

    @cached_property
    def all(self) -> dict[float, Reading]:
        return {it.value: it for it in self.archived} | self.live


class Broken(AssertionError):
    """A promise is broken."""


def check_readings(source: Source, seen: Seen, now: datetime, kept: set[float]) -> None:
    """Nothing is lost, double, erased and there, or was never written. `kept`: the values under a hold."""
    register, there = source.register, seen.all
    past = milliseconds(now - source.end) if source.end else None
    due = {
        value for value, it in register.standing.items() if past is None or it.time >= past or value in kept
    }
    _none(source, "lost", (register.standing[it] for it in due - there.keys()))
    _none(source, "double in the archive", (it for it, number in seen.archived.items() if number > 1))
    _none(source, "there though erased", (there[it] for it in there.keys() & register.erased))
    known = register.standing.keys() | register.loose.keys()
    _none(source, "never written", (there[it] for it in there.keys() - known))
    written = {**register.standing, **register.loose}
    _none(source, "changed", (it for value, it in there.items() if written[value] != it))
    if past is not None:
        stale = milliseconds(now - source.end - 90 * DAY) if source.end else 0
        left = (it for value, it in there.items() if it.time < stale and value not in kept)
        _none(source, "there though past its time", left)


def check_files(source: Source, files: Files) -> None:
    """No file holds what was erased, whatever it belongs to."""
    _none(
        source,
        "in a file though erased",
        (it for it in files.lying(source) if it.value in source.register.erased),
    )


def _none(source: Source, what: str, readings: Iterable[Reading]) -> None:
    found = sorted(readings, key=lambda it: it.time)
    if found:
        raise Broken(f"{source.name}: {len(found)} readings {what}: {found[:5]}")


def check_summaries(source: Source, seen: Seen, now: datetime, held: Sequence[tuple[int, int]] = ()) -> int:
    """Count, sum, least and greatest of each hour and day are those of all that is there. Returns how many
    were compared. Those under a hold may tell of what was deleted or has moved."""
    compared = 0
    first = (now - min(source.end or 190 * DAY, 190 * DAY) + DAY).replace(hour=0, minute=0)
    for level, length in (("hourly", HOUR), ("daily", DAY)):
        size = length // timedelta(milliseconds=1)
        since, until = milliseconds(first), milliseconds(now - SETTLE) // size * size

        def is_compared(at: int, since: int = since, until: int = until, size: int = size) -> bool:
            return since <= at < until and not any(start < at + size and at < end for start, end in held)

        expected: dict[tuple[str, int], list[float]] = defaultdict(list)
        for it in seen.all.values():
            if is_compared(window := it.time // size * size):
                expected[it.series, window].append(it.value)
        found = {
            (oracle.at(it, source.series_field), start): it
            for it in source.collection(f"{source.name}_{level}").find({"start": {"$gte": first}})
            if is_compared(start := milliseconds(it["start"]))
        }
        for key in sorted(found.keys() | expected.keys()):
            _check_summary(f"{source.name}: {level} {key}", found.get(key), expected[key], source.value_field)
        compared += len(found)
    return compared


def _check_summary(name: str, summary: Document | None, values: list[float], field_name: str) -> None:
    if summary is None or not values:
        raise Broken(f"{name}: {summary}, not of {sorted(values)}")
    held = summary[field_name]
    told = summary["count"], held["count"], held["min"], held["max"]
    is_right = told == (len(values), len(values), min(values), max(values))
    if not is_right or not math.isclose(held["sum"], math.fsum(values), rel_tol=1e-12):
        raise Broken(f"{name}: {told}, {held['sum']}, not of {sorted(values)}")
