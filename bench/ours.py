"""The jobs of bucketwise, as the command line runs them. Each is an action: see `bench.measuring`."""

from __future__ import annotations

from bench.place import Place
from buckets.decoding.decode import decode
from buckets.fields.times import FIRST_MS, LAST_MS
from buckets.source import Source


def to_columns(place: Place) -> None:
    """Reads from the server into columns: what every job begins with."""
    policy = place.policy("roll")
    for batch in Source(place.database, policy).batches(FIRST_MS, LAST_MS):
        decode(batch, policy)


def to_parquet(place: Place) -> None:
    """Writes parts and buckets files, read back and compared, with their manifests: an archive without
    deletes."""
    assert place.run("archive", "copy")["readings"] == place.readings


def to_summaries(place: Place) -> None:
    """Writes hourly and daily summaries, with percentiles."""
    assert place.run("rollup", "roll")["readings"] == place.readings


def move(place: Place) -> None:
    """Exports, reads back, verifies, commits, and deletes under guard."""
    assert place.run("archive", "move")["deleted"] == place.buckets


def bring_back(place: Place) -> None:
    """Restores into a new collection."""
    assert place.run("restore", "move")["buckets"] == place.buckets


def look_back_by_scan(place: Place) -> None:
    """Rolls up again by a scan, and finds all as it was."""
    done = place.run("rollup", "scan")
    assert done["readings"] == place.readings and not done["hourly"]["written"]


def look_back_by_stream(place: Place) -> None:
    """Rolls up again by the change stream, and reads nothing."""
    done = place.run("rollup", "stream")
    assert done["late"]["mode"] == "stream" and not done["readings"]


def rolled_up_for_scan(place: Place) -> None:
    """Prepares summaries for a look-back by scan."""
    place.clear()
    place.run("rollup", "scan")


def rolled_up_for_stream(place: Place) -> None:
    """Prepares summaries and a bookmark for a look-back by stream."""
    place.clear()
    place.run("rollup", "stream")


def moved(place: Place) -> None:
    """Archives a fresh copy of the workload, and deletes it."""
    place.fill_copy()
    place.run("archive", "move")
