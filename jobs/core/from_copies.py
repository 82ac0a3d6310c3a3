"""What was read from a copy, since the store could not give it: told in the JSON, on stderr, and by exit code
3."""

from __future__ import annotations

from typing import Any

from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.stores.copied import copies_of
from bucketwise.jobs.core.logs import log


def take_reads_from_copies(store: ObjectStore | None) -> dict[str, Any]:
    """Returns what was read from copies since this was last asked, as a part of the JSON; an empty one where
    nothing was. Logs a warning."""
    copied = copies_of(store)
    count, first = copied.take_reads() if copied is not None else (0, ())
    if not count:
        return {}
    log.warning(
        "read from a copy, since the store could not give it. Run `bucketwise repair`",
        objects=count,
        first=first[0].key,
        copy=first[0].copy,
        reason=first[0].reason,
    )
    return {"from_copies": {"count": count, "objects": [it._asdict() for it in first]}}
