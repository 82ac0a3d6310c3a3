"""Local time by the readings' own offsets. Some applications store these in minutes, as JavaScript's
`getTimezoneOffset` gives them: UTC minus local time, -330 in Kolkata, 300 in New York in winter.

One offset a bucket; in a `samples` bucket without one, one a sample.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import TYPE_NAMES
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.decoding.soundness import Faults, ReadingGroup
from bucketwise.buckets.fields.values import NUMBERS, read_values
from bucketwise.buckets.layouts.layout import Element, Flags, Path
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import Breach, find_all, split
from bucketwise.config.policies import Policy

#: The largest offset, in minutes: a local time is less than a day from UTC.
LARGEST_MS = 18 * 3_600_000
_MINUTE = 60_000
_LARGEST = LARGEST_MS // _MINUTE

Minutes = NDArray[np.float64]


def local_times(pieces: list[ReadingGroup], policy: Policy, faults: Faults) -> list[NDArray[np.int64]] | None:
    """Returns the local times of each piece's readings, (n, k), in milliseconds, as if local midnight were
    midnight UTC. None where the policy names no field for the offset. A bucket without a sound offset is
    added to `faults`."""
    if policy.local_offset_field is None:
        return None
    path, sample_time = split(policy.local_offset_field), model_of(policy).sample_time
    of_bucket = np.full(len(faults.sound), np.nan)
    for piece in pieces:
        if not piece.overflow:
            needed = np.full((len(piece.units), 1), sample_time is None)  # or its samples have theirs
            of_bucket[piece.units] = _read(piece, [path], needed, policy, faults)[:, 0]
    return [_local(piece, path, of_bucket[piece.units], policy, faults) for piece in pieces]


def _local(
    piece: ReadingGroup, path: Path, of_bucket: Minutes, policy: Policy, faults: Faults
) -> NDArray[np.int64]:
    minutes = np.repeat(of_bucket[:, None], piece.time.shape[1], axis=1)
    without = np.isnan(of_bucket)
    sample_time = model_of(policy).sample_time
    if sample_time is not None and piece.shape.times and without.any():
        paths = [(*cell[0].path[: -len(sample_time)], *path) for cell in piece.shape.times]
        needed = np.repeat(without[:, None], len(paths), axis=1)
        if piece.present is not None:
            needed &= piece.present
        minutes[without] = _read(piece, paths, needed, policy, faults)[without]
    return piece.time - np.nan_to_num(minutes).astype(np.int64) * _MINUTE


def _read(piece: ReadingGroup, paths: list[Path], needed: Flags, policy: Policy, faults: Faults) -> Minutes:
    """Returns offsets, (n, paths), NaN where there is no sound one. An absent one is a fault only where it is
    needed."""
    prefix = f"{policy.overflow.collection}: " if policy.overflow and piece.overflow else ""
    try:
        cells = [find_all(piece.group.layout, path) for path in paths]
    except Breach as breach:
        faults.add(piece.units, prefix + breach.field, breach.reason)
        return np.full((len(piece.units), len(paths)), np.nan)
    values, kinds = read_values(piece.group, cells)
    sound = (kinds == ValueKind.FINITE) & (values == np.rint(values)) & (np.abs(values) <= _LARGEST)
    for at, (path, cell) in enumerate(zip(paths, cells, strict=True)):
        places = [(element, piece.group.where((element,))) for element in cell]
        for element, needing in [*places, (None, needed[:, at] & ~piece.group.where(cell))]:
            wrong = np.flatnonzero(~sound[:, at] & needing)
            faults.add(piece.units[wrong], prefix + ".".join(path), _reason(element, values[wrong, at]))
    return np.where(sound, values, np.nan)


def _reason(element: Element | None, values: Minutes) -> Callable[[int], str]:
    if element is None:
        return lambda _: "no offset from UTC: the field is missing or null"
    if element.type not in NUMBERS:
        return lambda _: f"no offset from UTC: {TYPE_NAMES[element.type]} stands where minutes are needed"
    return lambda i: f"{values[i]:g} is no whole number of minutes from -{_LARGEST} to {_LARGEST}"
