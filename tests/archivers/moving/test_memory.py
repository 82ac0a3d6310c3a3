"""What a run holds, and for how long."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import Connections, LocalExecutor
from bucketwise.archivers.format import archive as reading
from bucketwise.archivers.format import writing
from bucketwise.archivers.upkeep import roll_up_all
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.packing import Packed, PackedGroup, Readings, pack, unpacks_to
from bucketwise.config.tables import Store
from bucketwise.jobs.audit.audit import audit_policy
from bucketwise.rollups.rolling import slices
from bucketwise.rollups.rolling.slices import CellStates
from tests.archivers.builders import DAY0, HOUR, Case, encode, slots
from tests.archivers.harness import Cycle
from tests.jobs.counting import ticks_policy

Document = dict[str, Any]


@pytest.mark.proof
def test_what_was_read_is_given_back_before_the_copy_is_read_again(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the documents stay, to be compared."""
    held: list[ref[Any]] = []
    checked: list[int] = []

    def packing(buckets: BucketSet) -> Packed:
        packed = pack(buckets)
        held.extend(map(ref, (buckets.decoded, packed.rows.time)))
        return packed

    def comparing(readings: Readings, groups: list[PackedGroup], batch: Batch) -> bool:
        assert [it() for it in held] == [None] * 2
        checked.append(len(batch))
        return unpacks_to(readings, groups, batch)

    monkeypatch.setattr(writing, "pack", packing)
    monkeypatch.setattr(reading, "unpacks_to", comparing)
    cycle = Cycle(database, slots(), file_store).load()
    assert cycle.run().deleted == sum(checked) == len(cycle.case.documents)


def archived(database: Database[Document], store: Store, series: int, hours: int) -> Cycle:
    """A reading an hour of each series, rolled up and archived."""
    documents = [
        encode({"symbol": f"S{it}", "d": DAY0 + hour * HOUR, "p": it / 7})
        for hour in range(hours)
        for it in range(series)
    ]
    cycle = Cycle(database, Case("ticks", ticks_policy(to="offline"), documents, []), store).load()
    database["ticks"].create_index("d")
    roll_up_all(cycle.context())
    assert cycle.run().deleted == len(documents)
    return cycle


@pytest.mark.proof
def test_an_audit_holds_no_more_states_than_a_roll_up(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many series are put aside, whether they are live or archived."""
    series, hours, at_once = 120, 4, 20
    cycle = archived(database, file_store, series, hours)
    held: list[int] = []
    add = CellStates.add

    def adding(cells: CellStates, *entry: Any) -> None:
        add(cells, *entry)
        held.append(len(cells.states))

    monkeypatch.setattr(CellStates, "add", adding)
    connections = Connections(database, cycle.store)
    memory = 4 * at_once * slices.STATE_BYTES  # a quarter of it is for the states of a slice
    report = audit_policy(cycle.context(executor=LocalExecutor(connections, memory=memory)))
    assert (report.findings, report.parts_read) == ([], 1)
    assert len(held) == 2 * series * hours  # read, and loaded again
    assert max(held) <= at_once + hours * 3  # of a portion more: few series share one
