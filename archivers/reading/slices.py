"""Slices of live and archived buckets, read by units of work."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future

from archivers.reading.reader import ArchivedReader
from archivers.units import Here, Opened, Sight, Units, check_sight, sight
from buckets.layouts.groups import Unions
from buckets.source import Source
from config.policies import Policy
from rollups.rolling.slices import Asked, Found, Reader, here, read


def slice_reader(units: Units, opened: Opened, policy: Policy) -> Reader:
    """For one roll-up: what is archived by then does not change until it is done."""
    if isinstance(units, Here):
        archived = ArchivedReader(opened.database, policy, opened.store)
        return here(Source(opened.database, policy), archived.batches, policy)
    run, seen = uuid.uuid4().hex, sight(opened, policy)

    def read_elsewhere(asked: Asked) -> Future[Found]:
        return units.submit(read_slice, policy, run, seen, asked)

    return Reader(read_elsewhere, units.workers, units.memory)


def read_slice(opened: Opened, policy: Policy, run: str, expected: Sight, asked: Asked) -> Found:
    """The unit. Of one `run`, a worker looks at the archive's manifests once."""
    if getattr(_KEPT, "run", None) != run:
        check_sight(opened, policy, expected)
        _KEPT.archived = ArchivedReader(opened.database, policy, opened.store)
        _KEPT.run, _KEPT.unions = run, Unions()
    return read(Source(opened.database, policy), _KEPT.archived.batches, policy, asked, _KEPT.unions)


#: Of each thread: a worker of a cluster may have several.
_KEPT = threading.local()
