"""What a URI says never weakens what a run relies on."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from pymongo import ReadPreference
from pymongo.read_concern import ReadConcern

from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core.connect import connect

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    "options",
    [
        "w=1",
        "w=0",
        "w=1&j=false",
        "journal=false;fsync=true",
        "JOURNAL=false",
        "readConcernLevel=local",
        "readPreference=secondary",
        "readPreference=secondary&readPreferenceTags=dc:ny&readPreferenceTags=",
        "readPreference=nearest&maxStalenessSeconds=90",
        "retryWrites=false&retryReads=false",
    ],
)
def test_a_careless_uri(options: str) -> None:
    for mark in ("?", "?appName=mine&"):
        settings = MongoDB(uri=SecretStr(f"mongodb://127.0.0.1:1/{mark}{options}"), database="it")
        with connect(settings) as client:
            assert client.write_concern.document == {"w": "majority", "wtimeout": 60_000}
            assert client.read_preference == ReadPreference.PRIMARY
            assert client.read_concern == ReadConcern("majority")
            assert client.options.retry_writes
            assert client.options.retry_reads


def test_what_else_it_says_stays() -> None:
    uri = "mongodb://me:a%3Fb@127.0.0.1:1/x?w=1&authSource=other&wTimeoutMS=5&j=true&socketTimeoutMS=7000"
    with connect(MongoDB(uri=SecretStr(uri), database="it")) as client:
        assert client.write_concern.document == {"w": "majority", "wtimeout": 5}
        assert client.options.pool_options.socket_timeout == 7
