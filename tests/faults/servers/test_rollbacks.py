"""What a set of three took back: writes to a primary that died before any other node had them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.write_concern import WriteConcern

from tests.faults.mongods import Servers, await_
from tests.faults.places import Place
from tests.faults.scene import OFFLINE, ONLINE, RAW, ROLLUP, SLOTS, START, Scene
from tests.faults.stopping import stopped
from tests.faults.tally import Tally

ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
#: Where a run stands when it happens.
STEPS = {
    "offline": [
        "before summaries",
        "before put part",
        "before put manifest",
        "before delete",
        "after delete",
    ],
    "online": ["before summaries", "before copy", "before delete", "after delete"],
}


@contextmanager
def alone(servers: Servers) -> Iterator[None]:
    """What is written in the block reaches the primary, which dies then, and no other node. After the block
    another one is primary, and the first has taken back what nobody else has."""
    primary, others = servers.primary, servers.secondaries

    def taken_back() -> set[Path]:
        return {*(primary.dbpath / "rollback").rglob("*.bson")}

    before = taken_back()
    for node in others:
        with node.client() as client:
            client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "alwaysOn"})
    try:
        yield
        primary.kill()
    finally:
        for node in others:
            with node.client() as client:
                client.admin.command({"configureFailPoint": "stopReplProducer", "mode": "off"})
    await_(lambda: next((True for node in others if node.says(lambda it: it["isWritablePrimary"])), None))
    primary.start()
    await_(lambda: taken_back() - before or None)
    servers.make_well()


def write_in_vain(scene: Scene) -> None:
    """An application that waits for nobody else: a bucket grows, another one goes, one is new."""
    source = scene.database.get_collection("it", codec_options=RAW, write_concern=WriteConcern(1, j=True))
    (grown,) = scene.unit(2, scene.when(2, 12), 6, 90.0)
    (new,) = scene.unit(77, START + timedelta(minutes=7), 4, 70.0)
    source.replace_one({"_id": 2}, RawBSONDocument(grown, RAW), upsert=True)
    source.delete_one({"_id": 3})
    source.insert_one(RawBSONDocument(new, RAW))


@pytest.mark.proof
@pytest.mark.parametrize(("archive", "at"), [(it, at) for it in STEPS for at in STEPS[it]])
def test_a_primary_takes_back_what_a_run_may_have_seen(
    three: Place, tally: Tally, archive: str, at: str
) -> None:
    """Nothing of it is in the archive or in summaries, and what it hid is not lost."""
    scene = three.empty(SLOTS + ROLLUP + ARCHIVES[archive]).fill(buckets=12, readings=4)
    with stopped(scene, at, asleep=0) as run:
        assert run.step == at
        with alone(three.servers):
            write_in_vain(scene)
    toll = scene.toll()
    tally("MongoDB: writes that are taken back", f"{archive}: {at}", runs=4, **toll._asdict())
    assert toll[1:] == (0, 0), run
    assert run.code in (0, 1, 3), run
    assert run.ran is not None and "Traceback" not in run.ran.err
    scene.finish()
    scene.check_restores()
