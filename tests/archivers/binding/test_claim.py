"""A claim, before the first write of a run, asks anew what the run has asked before."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveState
from bucketwise.archivers.markers import Topology
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import samples_overflow
from tests.archivers.harness import Cycle


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_another_database_in_its_place_halts(
    database: Database[dict[str, Any]], file_store: Store, to: str
) -> None:
    case = samples_overflow() if to == "offline" else samples_overflow().online()
    cycle = Cycle(database, case, file_store).load()
    cycle.run()
    binding = cycle.context(fence=2).binding
    binding.check()
    receipts = database["bucketwise_receipts"]
    receipts.aggregate([{"$out": "restored"}])
    receipts.drop()
    database["restored"].rename("bucketwise_receipts")
    with pytest.raises(HaltedError, match="it was restored from a dump"):
        binding.claim()


def test_another_replica_set_than_the_first_policies_of_a_run_met_halts(
    database: Database[dict[str, Any]], file_store: Store
) -> None:
    cycle = Cycle(database, samples_overflow(), file_store).load()
    cycle.run()
    before = Topology("another", is_read=True)
    with pytest.raises(HaltedError, match="the replica set has the id another"):
        cycle.context(state=ArchiveState(topology=before)).binding.check()
    database["bucketwise_receipts"].update_one({"_id.name": "owner"}, {"$set": {"deployment.id": "another"}})
    owner = next(cycle.root.glob("*/meta/owner.json"))
    topology = Topology()
    topology.read(database, is_set=True, anew=True)
    owner.write_bytes(owner.read_bytes().replace(str(topology.id).encode(), b"another"))
    binding = cycle.context(fence=2, state=ArchiveState(topology=before)).binding
    binding.check()
    with pytest.raises(HaltedError, match="and not another"):
        binding.claim()
