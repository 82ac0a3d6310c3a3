"""Addresses that ask for less than bucketwise may rely on, while a secondary knows nothing of late."""

from __future__ import annotations

import pytest

from tests.faults import aftermath
from tests.faults.mongods import SET, stale
from tests.faults.places import Place
from tests.faults.scene import OFFLINE, ONLINE, ROLLUP, SAMPLES
from tests.faults.tally import Tally

ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
#: What a URI may ask for; no server has the tag.
CARELESS = (
    "w=1&journal=false&retryWrites=false&retryReads=false&readConcernLevel=local&readPreference=secondary",
    "readPreference=secondary&readPreferenceTags=dc:ny",
    "readPreference=nearest&maxStalenessSeconds=90",
)


@pytest.mark.proof
@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize("careless", CARELESS)
def test_the_whole_cycle_beside_a_stale_secondary(
    three: Place, tally: Tally, archive: str, careless: str
) -> None:
    """Nothing is read there, whatever the URI says, and all is written to a majority."""
    scene = three.empty(SAMPLES + ROLLUP + ARCHIVES[archive])
    scene.write_config(uri=f"{three.servers.uri}&{careless}")
    with stale(three.servers.secondaries[0]):
        for first in (0, 6):
            for number in range(first, first + 6):
                scene.insert(number, scene.when(number, 12), 5)
            assert scene.well()["archive"]["deleted"] == 6
        scene.finish()
        scene.audited()
        scene.check_restores()
        toll = scene.toll()
        tally("MongoDB: careless addresses", f"{archive}: {careless}", runs=8, **toll._asdict())
        assert toll[1:] == (0, 0)


@pytest.mark.proof
def test_a_secondary_alone_is_not_worked_with(three: Place, tally: Tally) -> None:
    """It would tell what was: here a run has deleted since, and the archive holds more."""
    scene = three.empty(SAMPLES + ROLLUP + OFFLINE).fill(12)
    scene.well()
    node = three.servers.secondaries[0]
    reading = [("status",), ("verify",), ("audit",), ("plan",), ("query", "SELECT count(*) FROM it")]
    with stale(node):
        for number in range(20, 24):
            scene.insert(number, scene.when(number, 12), 5)
        scene.well()
        scene.write_config(uri=f"mongodb://{node.address}/?directConnection=true")
        for verb, *given in [("run",), ("restore", "-p", "it", "--to", "back"), *reading]:
            message = aftermath.said(scene.run(verb, *given), codes={1})
            assert "this node is not the primary" in message
            assert message.endswith(f"replicaSet={SET}")
    scene.write_config(uri=f"mongodb://{three.servers.primary.address}/?directConnection=true")
    assert scene.run("query", "SELECT count(*) FROM it").json["rows"] == [[80]]
    tally("MongoDB: careless addresses", "a secondary alone", runs=12, **scene.toll()._asdict())
    scene.write_config()
    scene.finish()
