"""Exit codes, JSON, the page for people, and messages of failures: the pure parts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from bson import Decimal128, Int64, ObjectId
from hypothesis import given
from hypothesis import strategies as st
from pymongo import ReadPreference
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

from bucketwise.config.errors import HaltedError, InterruptedRun, LeaseHeldError, UsageError
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.audit.page import audit_page
from bucketwise.jobs.core import connect
from bucketwise.jobs.core.failures import failure_of
from bucketwise.jobs.output.report import OUTCOMES, Report, Result, worst_exit_code

NOW = datetime(2018, 9, 1, tzinfo=UTC)
#: The contract's exit codes, from what a person must see first.
ORDER = [5, 130, 1, 2, 11, 4, 3, 0]


@given(st.lists(st.sampled_from(ORDER)))
def test_the_worst_code_wins_in_any_order(codes: list[int]) -> None:
    expected = next((code for code in ORDER if code in codes), 0)
    assert worst_exit_code(codes) == worst_exit_code(reversed(codes)) == expected


def test_every_code_has_a_name() -> None:
    assert set(OUTCOMES) == set(ORDER)
    assert len(set(OUTCOMES.values())) == len(ORDER)


def test_json_has_the_contract_s_shape() -> None:
    report = Report("run", NOW, [Result("ticks", 3, {"buckets": 1}), Result("iot", 1, error="no")])
    assert json.loads(report.as_json()) == {
        "schema": 1,
        "command": "run",
        "exit_code": 1,
        "now": "2018-09-01T00:00:00Z",
        "policies": [
            {"policy": "ticks", "exit_code": 3, "buckets": 1},
            {"policy": "iot", "exit_code": 1, "error": "no"},
        ],
    }
    assert report.complaints == [("policy iot: no", ["iot"])]
    refused = Report("run", NOW, error="bad", error_code=2)
    assert json.loads(refused.as_json())["error"] == "bad"
    assert refused.exit_code == 2


def test_json_holds_what_json_has_no_word_for() -> None:
    identity = ObjectId("5b0159f6a51d88bfacd36671")
    body = {
        "at": datetime(2018, 6, 30, 1, 2, 3, 4000, tzinfo=UTC),
        "ids": [identity, Decimal128("1.50"), Int64(7), b"\x00", 1.5, float("nan"), None, True],
        "nested": {"a": ("x", {"b": identity})},
        "url": "mongodb://me:hunter2@h/db",
    }
    line = Report("run", NOW, [Result("ticks", 0, body)]).as_json()
    assert "\n" not in line
    told = json.loads(line, parse_constant=lambda name: pytest.fail(name))["policies"][0]
    assert told["at"] == "2018-06-30T01:02:03.004Z"
    assert told["ids"][0] == {"$oid": str(identity)}
    assert told["ids"][1] == {"$numberDecimal": "1.50"}
    assert told["ids"][2] == 7
    assert told["ids"][4:] == [1.5, "nan", None, True]
    assert told["nested"]["a"][1] == {"b": {"$oid": str(identity)}}
    assert told["url"] == "mongodb://***@h/db"


@pytest.mark.parametrize(
    ("error", "code", "fragments"),
    [
        (UsageError("wrong"), 2, ["wrong"]),
        (HaltedError("stop"), 5, ["stop"]),
        (LeaseHeldError("held"), 11, ["held"]),
        (InterruptedRun("cut"), 130, ["cut"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
        (
            ServerSelectionTimeoutError(
                "h1:1: [Errno 111] Connection refused (configured timeouts: socketTimeoutMS: 20000.0ms), "
                "Timeout: 10s, Topology Description: <TopologyDescription id: 1>"
            ),
            1,
            ["cannot reach MongoDB at h1:1,h2:2: h1:1: [Errno 111] Connection refused", "Is it up"],
        ),
        (AutoReconnect("h1:1: closed"), 1, ["lost the connection to MongoDB at h1:1,h2:2", "run again"]),
        (WTimeoutError("waiting"), 1, ["took too long"]),
        (
            BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64, "errmsg": "waiting"}]}),
            1,
            ["took too long: waiting. Can a majority"],
        ),
        (
            BulkWriteError({"writeErrors": [{"code": 121, "errmsg": "failed validation"}]}),
            1,
            ["MongoDB at h1:1,h2:2 refused: failed validation (121)"],
        ),
        (
            OperationFailure(
                "x, full error: {}", 13, {"errmsg": "not authorized", "codeName": "Unauthorized"}
            ),
            1,
            ["MongoDB at h1:1,h2:2 refused: not authorized (13 Unauthorized)"],
        ),
        (OperationFailure("no, full error: {'a': 1}", 1), 1, ["refused: no (1)"]),
        (ConfigurationError("odd"), 1, ["MongoDB at h1:1,h2:2: odd"]),
        (
            ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject"),
            1,
            ["S3", "AccessDenied"],
        ),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), 1, ["S3", "http://127.0.0.1:1"]),
        (PermissionError(13, "Permission denied", "/store/x"), 1, ["refused /store/x: Permission denied"]),
        (ZeroDivisionError("a\nb"), 1, ["unexpected error: ZeroDivisionError: a b", "BUCKETWISE_DEBUG=1"]),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, BaseException) else "",
)
def test_failures_are_told_in_plain_words(error: BaseException, code: int, fragments: list[str]) -> None:
    failure = failure_of(error, "h1:1,h2:2")
    assert failure.exit_code == code
    for fragment in fragments:
        assert fragment in failure.message
    assert "Topology" not in failure.message
    assert "full error" not in failure.message


def test_no_secret_passes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BUCKETWISE_DEBUG", "1")
    try:
        raise ValueError("mongodb://me:hunter2@h/db")
    except ValueError as error:
        message = failure_of(error).message
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "hunter2" not in message + shown
    assert "mongodb://***@h/db" in message


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("mongodb://h:1", "h:1"),
        ("mongodb://me:p%40ss@h1:1,h2:2/?replicaSet=r", "h1:1,h2:2"),
        ("mongodb+srv://me:hunter2@cluster.example/db?w=1", "cluster.example"),
        ("mongodb://me:hun@ter2@h/", "h"),
    ],
)
def test_hosts_are_named_without_the_rest(uri: str, hosts: str) -> None:
    assert connect.hosts(MongoDB.model_validate({"uri": uri, "database": "d"})) == hosts


def test_a_client_reads_and_writes_for_a_majority_whatever_the_uri_says() -> None:
    uri = "mongodb://127.0.0.1:1/?w=1&readPreference=secondary&readConcernLevel=local&retryWrites=false"
    with connect.connect(MongoDB.model_validate({"uri": uri, "database": "d"})) as client:
        assert client.write_concern.document == {"w": "majority", "wtimeout": 60_000}
        assert client.read_concern.level == "majority"
        assert client.read_preference == ReadPreference.PRIMARY
        assert client.options.retry_writes
        assert client.options.server_selection_timeout == 10
        assert client.codec_options.tz_aware
        assert client.options.pool_options.appname == "bucketwise"
        assert client.options.server_monitoring_mode == "poll"
    said = f"{uri}&serverSelectionTimeoutMS=50&serverMonitoringMode=stream"
    with connect.connect(MongoDB.model_validate({"uri": said, "database": "d"})) as client:
        assert client.options.server_selection_timeout == 0.05
        assert client.options.server_monitoring_mode == "stream"


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def finding(message: str, **more: Any) -> dict[str, Any]:
    standing = {"code": "overdue", "policy": "ticks", "place": "ticks", "severity": "error", "remedy": "Run."}
    return standing | more | {"message": message}


def page_of(*results: Result) -> _Seen:
    told = dict.fromkeys(("by", "version", "hosts", "database", "config"), "x")
    seen = _Seen()
    seen.feed(audit_page(Report("audit", NOW, list(results), extra=told).plain()))
    seen.text = re.sub(r"\s+", " ", seen.text)
    return seen


def test_the_page_shows_findings_and_runs_nothing() -> None:
    evil = "<script>alert(1)</script> & 'x' mongodb://me:hunter2@h/ \u202e"
    seen = page_of(
        Result("ticks", 4, {"findings": [finding(evil, place=evil)]}),
        Result("iot", 0, {"findings": [finding("look", severity="warning")]}),
        Result("<b>", 1, {}, "cannot reach it"),
    )
    assert "script" not in seen.tags
    assert "b" not in seen.tags
    assert "<script>alert(1)</script> & 'x' mongodb://***@h/ \\u202e" in seen.text
    assert "hunter2" not in seen.text
    assert "2 of 3 policies not kept" in seen.text
    assert "ticks: not kept" in seen.text
    assert "iot: kept" in seen.text
    assert "<b>: could not be audited" in seen.text
    assert "2018-09-01T00:00:00Z" in seen.text
    kept = Result("iot", 0, {"findings": []})
    assert "The policy is kept" in page_of(kept).text
    assert "All 2 policies are kept" in page_of(kept, Result("ticks", 0, {"findings": []})).text


@pytest.mark.parametrize(
    ("message", "codes"),
    [("run `rollup` with `--since`", 2), ("one ` alone", 0), ("``", 1), ("no code", 0), ("`<b>`", 1)],
)
def test_what_stands_between_backticks_is_code(message: str, codes: int) -> None:
    nothing = page_of(Result("iot", 0, {"findings": [finding("")]})).tags.count("code")
    seen = page_of(Result("iot", 0, {"findings": [finding(message)]}))
    assert seen.tags.count("code") == nothing + 2 * codes  # at the top, and among the findings
    assert (message if codes == 0 else message.replace("`", "")) in seen.text
