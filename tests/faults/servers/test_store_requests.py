"""Requests to stores are counted as they are sent, and retries are told from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketwise.archivers.stores.base import OutcomeUnknown, StoreError
from bucketwise.config.tables import Store
from tests.faults.s3_proxy import BodyCutShort, Fault, Pass, Refused, Reply, Request, RequestLost, s3_proxy
from tests.faults.servers.test_store_faults import DATA, direct, is_any, is_get, through

__all__ = ["direct"]

pytestmark = pytest.mark.process

FAULTS = {
    "refused": Refused(is_any, 2, status=503),
    "request-lost": RequestLost(is_any, 2),
    "body-cut-short": BodyCutShort(is_get, 2),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_request_and_every_retry(direct: Store, fault: Fault) -> None:
    fault = replace(fault)  # which has not struck yet
    with s3_proxy(str(direct.endpoint_url)) as proxy:
        store = through(direct, proxy.endpoint_url)
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


class LateOnce(Fault):
    """A gateway gives up the first of these requests, and the server is out of order from then on."""

    def strike(self, request: Request, pass_on: Pass) -> Reply | None:
        status, code = (504, "GatewayTimeout") if self.struck == 1 else (500, "InternalError")
        return Refused(self.on, status=status, code=code).strike(request, pass_on)


@pytest.mark.parametrize(("fault", "may_come"), [(LateOnce, True), (Refused, False)])
def test_a_put_any_try_of_which_was_late_may_come(direct: Store, fault: type[Fault], may_come: bool) -> None:
    with s3_proxy(str(direct.endpoint_url)) as proxy:
        store = through(direct, proxy.endpoint_url)
        proxy.fault = fault(lambda it: it.is_put, None)
        with pytest.raises(StoreError) as raised:
            store.put_bytes("k", DATA)
    assert proxy.fault.struck > 1
    assert isinstance(raised.value, OutcomeUnknown) == may_come
