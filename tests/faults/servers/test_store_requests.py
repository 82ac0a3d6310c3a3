"""Requests to S3 are counted as they are sent, and retries are told from them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bucketwise.config.tables import Store
from tests.faults.s3_proxy import BodyCutShort, Fault, Refused, RequestLost, s3_proxy
from tests.faults.servers.test_store_faults import DATA, is_any, is_get, through

FAULTS = {
    "refused": Refused(is_any, 2, status=503),
    "request-lost": RequestLost(is_any, 2),
    "body-cut-short": BodyCutShort(is_get, 2),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_request_and_every_retry(
    fault: Fault, moto_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    with s3_proxy(str(moto_store.endpoint_url)) as proxy:
        store = through(moto_store, proxy.endpoint_url)
        proxy.fault = fault
        store.put_bytes("k", DATA)
        assert store.get_bytes("k") == DATA
        assert [it.key for it in store.list()] == ["k"]
        assert store.head("k") is not None
        store.delete(["k"])
        sent, retries = store.requests.take()
        assert sum(sent.values()) == proxy.count(is_any)
    assert set(sent) == {"put", "get", "list", "head", "delete"}
    assert retries == fault.struck == sum(sent.values()) - 5 == 2
    assert store.requests.take() == ({}, 0)
