"""Minute buckets whose `_id`s are in no order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from bson.binary import UUID_SUBTYPE, Binary

from bench.workloads import MINUTES, SLOT_KEYS, Document, Workload

#: The `_id` of a bucket.
_Identify = Callable[[Document, np.random.Generator], Any]


def _uuid(_bucket: Document, rng: np.random.Generator) -> Binary:
    return Binary(rng.bytes(16), UUID_SUBTYPE)


def _hash(_bucket: Document, rng: np.random.Generator) -> str:
    return rng.bytes(20).hex()


def _text(bucket: Document, _rng: np.random.Generator) -> str:
    return f"{bucket['symbol']}_{bucket['d']:%Y-%m-%dT%H:%M}"


def _compound(bucket: Document, _rng: np.random.Generator) -> Document:
    return {"symbol": bucket["symbol"], "d": bucket["d"]}


def _named(identify: _Identify, number: int, rng: np.random.Generator) -> Iterator[Document]:
    for bucket in MINUTES.day(number, rng):
        yield {"_id": identify(bucket, rng), **bucket}


def _imported(number: int, rng: np.random.Generator) -> Iterator[Document]:
    """Yields documents with ObjectIds in the order of an import: of each day, one series after another."""
    yield from sorted(MINUTES.day(number, rng), key=lambda bucket: str(bucket["symbol"]))


UNORDERED = (
    Workload("minute buckets, UUIDs", partial(_named, _uuid), SLOT_KEYS),
    Workload("minute buckets, hashes", partial(_named, _hash), SLOT_KEYS),
    Workload("minute buckets, texts of series and time", partial(_named, _text), SLOT_KEYS),
    Workload("minute buckets, documents of series and time", partial(_named, _compound), SLOT_KEYS),
    Workload("minute buckets, imported series by series", _imported, SLOT_KEYS),
)
