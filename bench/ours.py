"""The jobs of bucketwise, as the command line runs them. Each is an action: see `bench.measuring`."""

from __future__ import annotations

from bench.testbed import Testbed
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.source import Source


def to_columns(testbed: Testbed) -> None:
    """Reads from the server into columns: what every job begins with."""
    policy = testbed.policy("roll")
    for batch in Source(testbed.database, policy).batches(FIRST_MS, LAST_MS):
        decode(batch, policy)


def to_parquet(testbed: Testbed) -> None:
    """Writes parts and buckets files, read back and compared, with their manifests: an archive without
    deletes."""
    assert testbed.run("archive", "copy")["readings"] == testbed.readings


def to_summaries(testbed: Testbed) -> None:
    """Writes hourly and daily summaries, with percentiles."""
    assert testbed.run("rollup", "roll")["readings"] == testbed.readings


def move(testbed: Testbed) -> None:
    """Exports, reads back, verifies, commits, and deletes under guard."""
    assert testbed.run("archive", "move")["deleted"] == testbed.buckets


def move_into_two(testbed: Testbed) -> None:
    """Does the same into a store and a copy of it that is required, each read back."""
    assert testbed.run("archive", "doubled")["deleted"] == testbed.buckets


def move_encrypted(testbed: Testbed) -> None:
    """Does the same into a store that is encrypted."""
    assert testbed.run("archive", "sealed")["deleted"] == testbed.buckets


def ask(testbed: Testbed) -> None:
    """Queries all archived readings by SQL."""
    assert testbed.ask("move") == testbed.readings


def ask_encrypted(testbed: Testbed) -> None:
    """Does the same of parts that are encrypted."""
    assert testbed.ask("sealed") == testbed.readings


def restore(testbed: Testbed) -> None:
    """Restores into a new collection."""
    assert testbed.run("restore", "move")["buckets"] == testbed.buckets


def look_back_by_scan(testbed: Testbed) -> None:
    """Rolls up again by a scan, and finds all as it was."""
    result = testbed.run("rollup", "scan")
    assert result["readings"] == testbed.readings and not result["hourly"]["written"]


def look_back_by_stream(testbed: Testbed) -> None:
    """Rolls up again by the change stream, and reads nothing."""
    result = testbed.run("rollup", "stream")
    assert result["late"]["mode"] == "stream" and not result["readings"]


def prepare_scan(testbed: Testbed) -> None:
    """Prepares summaries for a look-back by scan."""
    testbed.clear()
    testbed.run("rollup", "scan")


def prepare_stream(testbed: Testbed) -> None:
    """Prepares summaries and a bookmark for a look-back by stream."""
    testbed.clear()
    testbed.run("rollup", "stream")


def prepare_exported(testbed: Testbed) -> None:
    """Exports all readings as Parquet."""
    testbed.clear()
    testbed.run("archive", "copy")


def prepare_restore(testbed: Testbed) -> None:
    """Archives a fresh copy of the workload, and deletes it."""
    testbed.fill_copy()
    testbed.run("archive", "move")


def prepare_encrypted(testbed: Testbed) -> None:
    """Archives a fresh copy of the workload into a store that is encrypted, and deletes it."""
    testbed.fill_copy()
    testbed.run("archive", "sealed")
