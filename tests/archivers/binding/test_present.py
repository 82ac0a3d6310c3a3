"""What a real server tells of the deployment that it is part of, by whichever way it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.markers import (
    Deployment,
    Topology,
    listed_collections,
    present_deployment,
)
from tests.faults.mongods import SET, Node, servers
from tests.jobs.clusters import certificate
from tests.jobs.mongos import mongos

Document = dict[str, Any]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """One that names itself localhost where it is reached by that name, and by its address otherwise."""
    certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text("".join((tmp_path / f"cluster.{it}").read_text() for it in ("pem", "key")))
    with servers(tmp_path, options=("--tlsMode", "allowTLS", "--tlsCertificateKeyFile", str(both))) as set_:
        (it,) = set_.nodes
        with it.client() as client:
            config = client.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["members"][0]["horizons"] = {"outside": f"localhost:{it.port}"}
            client.admin.command("replSetReconfig", config)
        yield it


def seen(uri: str) -> Deployment:
    with MongoClient[Document](uri) as client:
        listed = listed_collections(client["market"])
        return present_deployment(client["market"], listed, Topology(), anew=False)


@pytest.mark.proof
@pytest.mark.process
def test_a_set_with_other_names_outside_of_its_network_is_one_from_both_sides(node: Node) -> None:
    inside = seen(f"mongodb://127.0.0.1:{node.port}/?replicaSet={SET}")
    uri = f"mongodb://localhost:{node.port}/?replicaSet={SET}&tls=true&tlsInsecure=true"
    outside = seen(uri)
    with MongoClient[Document](uri) as client:
        assert client.admin.command("hello")["hosts"] == [f"localhost:{node.port}"]  # it has two
    assert inside == outside
    assert inside.hosts == (f"127.0.0.1:{node.port}", f"localhost:{node.port}")
    assert inside.id


def test_a_sharded_cluster_is_known_by_its_id_and_the_hosts_of_its_shards(
    database: Database[Document],
) -> None:
    address, config = database.client.address, database.client["config"]
    assert address is not None
    with mongos(address) as port:
        uri = f"mongodb://127.0.0.1:{port}/"
        before = seen(uri)  # nothing may be read, or there is nothing
        assert (before.set, before.hosts, before.id) == (None, (), None)
        identity = ObjectId()
        try:
            config["version"].insert_one({"_id": 1, "clusterId": identity})
            config["shards"].insert_many(
                {"_id": it, "host": f"{it}/{it}-0:27018,{it}-1:27018"} for it in ("a", "b")
            )
            found = seen(uri)
        finally:
            config.drop_collection("version")
            config.drop_collection("shards")
    assert found.hosts == ("a-0:27018", "a-1:27018", "b-0:27018", "b-1:27018")
    assert found.id == str(identity)
    assert before.difference(found) is None
