"""The parts of a commit: a Parquet file for each UTC day."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from datetime import date

import numpy as np
from numpy.typing import NDArray

from archivers.format import parquet
from archivers.format.manifest import Part, StoredFile
from archivers.format.names import day, part_key
from buckets.fields.times import DAY_MS, as_date
from buckets.packing.pack import Packed


def write_parts(
    packed: Packed, policy: str, commit: str, types: dict[str, str], written: dict[str, bytes]
) -> Iterator[Part]:
    """Gives a part for each UTC day; into `written`: what its file holds, by its key."""
    for start, end in itertools.pairwise(_edges_of_days(packed.rows.time)):
        times = packed.rows.time[start:end]
        dt, first, last = day(int(times[0])), int(times.min()), int(times.max())
        if {day(first), day(last)} != {dt}:  # whoever looks for a day would miss some
            raise ValueError(f"the rows of {dt} do not lie together")
        key = part_key(policy, dt, commit)
        written[key] = parquet.write_part(packed.rows, slice(start, end), types)
        yield Part(
            **stored(key, written[key]).model_dump(),
            dt=date.fromisoformat(dt),
            rows=end - start,
            first=as_date(first),
            last=as_date(last),
        )


def _edges_of_days(time: NDArray[np.int64]) -> list[int]:
    """Where the rows of each day start, and where the last end. Rows are sorted by day, and no
    further: to find where one ends that is enough."""
    edges = [0]
    while edges[-1] < len(time):
        rest = time[edges[-1] :]
        edges.append(edges[-1] + int(np.searchsorted(rest, (rest[0] // DAY_MS + 1) * DAY_MS)))
    return edges


def stored(key: str, data: bytes) -> StoredFile:
    """Returns what a manifest says of a file."""
    return StoredFile(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
