"""`check` against servers that are as they should be, and against ones that are not."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collation import Collation

from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.stores.s3 import S3Store
from bucketwise.config.tables import Store
from bucketwise.jobs.check.checks import granted_actions
from bucketwise.jobs.check.verb import check
from bucketwise.jobs.core import clock
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.embedded import find_mongod
from bucketwise.jobs.core.stopping import Stop
from tests.conftest import await_primary
from tests.jobs.command import Ran
from tests.jobs.place import MINUTES, POLICIES, Place

Db = Any


def findings(place: Place, policy: str = "ticks") -> dict[str, dict[str, Any]]:
    """What `check` finds of the policy beyond what is fine, by code."""
    return beyond_fine(place("check", "--json", now=None), policy)


def beyond_fine(ran: Ran, policy: str) -> dict[str, dict[str, Any]]:
    found = ran.policy(policy)["findings"]
    expected = 1 if any(it["severity"] == "error" for it in found) else 0
    assert ran.policy(policy)["exit_code"] == expected
    return {it["code"]: it for it in found if it["severity"] != "ok"}


def test_all_is_well(place: Place) -> None:
    ran = place("check", "--json", now=None)
    assert ran.code == 0
    assert [(it["code"], it["severity"]) for it in ran.json["findings"]] == [
        ("server-version", "ok"),
        ("replica-set", "ok"),
        ("clock", "ok"),
        ("store", "ok"),
    ]
    for policy in ("ticks", "iot"):
        (finding,) = ran.policy(policy)["findings"]
        assert (finding["code"], finding["severity"], finding["policy"]) == ("policy", "ok", policy)
    assert "everything is as a run needs it" in place("check", now=None).out


def test_a_store_out_of_reach_hides_nothing_else(place: Place) -> None:
    url = 'url = "s3://nobody/x"\nendpoint_url = "http://127.0.0.1:1"\nregion = "us-east-1"'
    place.config.write_text(
        place.config.read_text().replace(f'url = "{(place.folder / "store").as_uri()}"', url)
    )
    place.database.ticks.drop_index("d_1")
    ran = place("check", "-p", "ticks", "--json", now=None)
    found = {it["code"]: it["severity"] for it in ran.policy("ticks")["findings"]}
    assert (ran.code, found) == (1, {"store": "error", "index-missing": "warning"})


@pytest.mark.proof
def test_a_storage_class_that_the_store_refuses_is_found(
    place: Place, moto_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that has fewer of them than S3."""
    put = S3Store.put_bytes

    def refuse(self: S3Store, key: str, data: bytes, **given: Any) -> None:
        if given.get("storage_class") == "GLACIER_IR":
            raise StoreError("put", key, "InvalidStorageClass")
        put(self, key, data, **given)

    monkeypatch.setattr(S3Store, "put_bytes", refuse)
    monkeypatch.setenv("MONGODB_URI", place.uri)
    store = f'url = "{moto_store.url}"\nendpoint_url = "{moto_store.endpoint_url}"\nregion = "us-east-1"\n'
    given = place.config.read_text().replace(f'url = "{(place.folder / "store").as_uri()}"\n', store)
    for named, severity in (("STANDARD_IA", "ok"), ("GLACIER_IR", "error")):
        text = given.replace('to = "offline"', f'to = "offline"\nstorage_class = "{named}"')
        place.config.write_text(text)
        call = Call("check", place.config, (), clock.current(), False, True, True, True, Stop())
        report = check(call)
        (found,) = [it for it in report.extra["findings"] if it["code"] == "store"]
        assert (found["severity"], report.exit_code) == (severity, int(severity == "error"))


def _drop_source(database: Db) -> None:
    database.ticks.drop()


@pytest.mark.proof
def test_a_collection_that_does_not_exist_fails_a_run_unless_it_may_be_missing(place: Place) -> None:
    """One that is empty is in order: its writer may begin tomorrow."""
    for name in ("ticks", "iot"):
        place.database[name].drop()
    place.database.create_collection("iot")
    for verb in ("plan", "run", "rollup", "archive"):
        ran = place(verb, "--json")
        assert (ran.code, ran.policy("iot")["exit_code"]) == (1, 0)
        said = f"policy ticks: there is no collection ticks in the database {place.database.name}"
        assert ran.policy("ticks")["error"].startswith(said)
    assert not (place.folder / "store" / "ticks").exists()
    place.write_config(POLICIES.replace('"ticks"\n', '"ticks"\nmay_be_missing = true\n', 1))
    assert [place(verb).code for verb in ("check", "plan", "run")] == [0, 0, 0]


@pytest.mark.proof
def test_a_mistyped_database_claims_nothing(place: Place) -> None:
    """The right one goes on once it is mended."""
    right = place.config.read_text()
    place.config.write_text(right.replace(place.database.name, f"{place.database.name}_"))
    assert [place(verb).code for verb in ("plan", "run")] == [1, 1]
    assert list((place.folder / "store").iterdir()) == []
    place.config.write_text(right)
    assert place("run").code == 0
    place.database.client.drop_database(f"{place.database.name}_")


def _source_is_view(database: Db) -> None:
    database.ticks.drop()
    database.command("create", "ticks", viewOn="iot", pipeline=[])


def _source_is_timeseries(database: Db) -> None:
    database.ticks.drop()
    database.create_collection("ticks", timeseries={"timeField": "d", "metaField": "symbol"})


def _source_is_capped(database: Db) -> None:
    database.ticks.drop()
    database.create_collection("ticks", capped=True, size=100_000).create_index("d")


def _no_index(database: Db) -> None:
    database.ticks.drop_index("d_1")


def _partial_index(database: Db) -> None:
    database.ticks.drop_index("d_1")
    database.ticks.create_index("d", partialFilterExpression={"symbol": "MDB"})


def _hidden_index(database: Db) -> None:
    database.command("collMod", "ticks", index={"name": "d_1", "hidden": True})


def _late_index(database: Db) -> None:
    database.ticks.drop_index("d_1")
    database.ticks.create_index([("symbol", 1), ("d", 1)])


def _ttl_on_source(database: Db) -> None:
    database.ticks.drop_index("d_1")
    database.ticks.create_index("d", expireAfterSeconds=29 * 86400)


def _ttl_on_target(database: Db) -> None:
    database.ticks_daily.create_index("start", expireAfterSeconds=1000)


def _target_is_view(database: Db) -> None:
    database.command("create", "ticks_hourly", viewOn="iot", pipeline=[])


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("spoil", "code", "severity", "fragments"),
    [
        (_drop_source, "source-missing", "error", ["there is no collection ticks", "may_be_missing"]),
        (_source_is_view, "source-kind", "error", ["it is a view", "slots", "archive.delete = false"]),
        (_source_is_timeseries, "source-kind", "error", ["it is a timeseries", 'model = "timeseries"']),
        (_source_is_capped, "source-kind", "error", ["capped", "delete = false"]),
        (_no_index, "index-missing", "warning", ["createIndex({'d': 1})"]),
        (_partial_index, "index-missing", "warning", ["createIndex({'d': 1})"]),
        (_hidden_index, "index-missing", "warning", ["createIndex({'d': 1})"]),
        (_late_index, "index-missing", "warning", ["createIndex({'d': 1})"]),
        (_ttl_on_source, "ttl-conflict", "error", ["29 days", "30 days"]),
        (_ttl_on_target, "ttl-conflict", "error", ["0:16:40", "forever"]),
        (_target_is_view, "target-kind", "error", ["it is a view", "ordinary collection"]),
    ],
)
def test_what_is_wrong_is_found(
    place: Place, spoil: Callable[[Db], None], code: str, severity: str, fragments: list[str]
) -> None:
    spoil(place.database)
    ran = place("check", "--json", now=None)
    found = beyond_fine(ran, "ticks")
    assert set(found) == {code}
    assert found[code]["severity"] == severity
    for fragment in fragments:
        assert fragment in found[code]["message"]
    assert beyond_fine(ran, "iot") == {}


def test_a_view_is_fine_where_nothing_is_deleted_from_it(place: Place) -> None:
    place.database.ticks.rename("behind")
    place.database.command("create", "ticks", viewOn="behind", pipeline=[])
    assert set(findings(place)) == {"source-kind"}
    place.write_config(POLICIES.replace('to = "offline"', 'to = "offline"\ndelete = false', 1))
    assert findings(place) == {}
    assert place("run", "-p", "ticks", "--json").policy("ticks")["archive"]["buckets"] == MINUTES


def test_a_ttl_that_is_slower_than_the_archive_is_fine(place: Place) -> None:
    place.database.ticks.drop_index("d_1")
    place.database.ticks.create_index("d", expireAfterSeconds=31 * 86400)
    place.database.ticks_hourly.create_index("start", expireAfterSeconds=366 * 86400)
    assert findings(place) == {}


def test_native_time_series_are_exported_and_kept(place: Place) -> None:
    place.write_config(POLICIES.replace('model = "reading"', 'model = "timeseries"'))
    assert "model that its documents have" in findings(place, "iot")["source-kind"]["message"]
    place.database.iot.drop()
    place.database.create_collection("iot", timeseries={"timeField": "at", "metaField": "sensor"})
    found = findings(place, "iot")
    assert set(found) == {"deletes-impossible"}
    assert found["deletes-impossible"]["severity"] == "warning"
    assert "exported and kept" in found["deletes-impossible"]["message"]
    place.database.iot.drop()
    place.database.create_collection("iot", timeseries={"timeField": "when", "metaField": "sensor"})
    assert "its timeField is when" in findings(place, "iot")["source-kind"]["message"]


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        ('time_field = "d"\ntime_format = "%d.%m.%Y"', "d"),
        ('time_field = ["d", "t"]\ntime_format = "%Y %j"', "d, t"),
    ],
)
def test_times_that_do_not_sort_cost_a_full_read(place: Place, keys: str, fields: str) -> None:
    place.write_config(POLICIES.replace('time_field = "d"', keys))
    found = findings(place)["times-unsorted"]
    assert (found["severity"], found["place"]) == ("warning", f"ticks, {fields}")
    assert f"{place.database.ticks.estimated_document_count():,} documents" in found["message"]


def test_an_index_whose_collation_sorts_otherwise_than_time_is_told_with_its_remedy(place: Place) -> None:
    keys = 'time_field = "d"\ntime_format = "%Y-%m-%d %H:%M:%S.%f"'
    place.write_config(POLICIES.replace('time_field = "d"', keys))
    place.database.ticks.drop()
    ticks = place.database.create_collection("ticks", collation={"locale": "en", "numericOrdering": True})
    for i in range(5):
        slots = {str(second): 1.5 for second in range(60)}
        ticks.insert_one({"symbol": "a", "d": f"2018-06-30 00:0{i}:00.0", "p": slots})
    missing = findings(place)["index-missing"]["message"]
    assert "createIndex({'d': 1}, {collation: {locale: \"simple\"}})" in missing
    ticks.create_index("d")
    message = findings(place)["index-missing"]["message"]
    assert "reads all of 5 documents" in message
    assert '{collation: {locale: "simple"}, name: "d_1_simple"})' in message
    ticks.create_index("d", collation=Collation("simple"), name="d_1_simple")
    assert "index-missing" not in findings(place)


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        ('sample_time_field = "time"\nsample_time_unit = "+s"', False),
        ('samples_as = "pairs"', False),
        ('sample_time_field = "time"\nsample_time_unit = "+s"\nend_field = "last"', True),
        ('sample_time_field = "time"', True),
    ],
)
def test_ends_that_nothing_tells_cost_a_look_into_each_bucket(place: Place, keys: str, is_told: bool) -> None:
    model = f'model = "samples"\nsamples_field = "s"\nstart_field = "at"\ntime_unit = "date"\n{keys}'
    place.write_config(POLICIES.replace('model = "reading"\ntime_field = "at"', model))
    found = findings(place, "iot").get("ends-unknown")
    assert (found is None) == is_told
    count = place.database.iot.estimated_document_count()
    assert found is None or f"of {count:,} documents" in found["message"]


OVERFLOW = """
[policies.ticks.overflow]
flag_field = "more"
collection = "ticks_more"
ref_field = "of"
samples_field = "p"
"""


@pytest.mark.proof
def test_overflow_needs_its_collection_and_index(place: Place) -> None:
    place.write_config(POLICIES.replace("\n[policies.iot]", OVERFLOW + "\n[policies.iot]"))
    assert findings(place)["overflow-missing"]["place"] == "ticks_more"
    place.database.ticks_more.insert_one({"of": 1, "p": {}})
    assert "'of'" in findings(place)["index-missing"]["message"]
    place.database.ticks_more.create_index("of")
    assert findings(place) == {}
    place.database.ticks_more.drop()
    place.database.command("create", "ticks_more", viewOn="iot", pipeline=[])
    assert "it is a view" in findings(place)["overflow-kind"]["message"]


def test_all_that_can_be_told_is_told_without_a_server(place: Place) -> None:
    uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
    ran = place.command("check", "--json", cwd=place.folder, MONGODB_URI=uri)
    assert ran.code == 1
    assert [(it["code"], it["severity"]) for it in ran.json["findings"]] == [
        ("server-unreachable", "error"),
        ("store", "ok"),
    ]
    assert "cannot reach MongoDB at 127.0.0.1:1" in ran.json["findings"][0]["message"]
    assert ran.json["policies"] == []


@contextmanager
def other_mongod(folder: Path, *options: str) -> Iterator[int]:
    """A mongod that is set up otherwise; gives its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    folder.mkdir()
    command = [str(find_mongod(folder)), "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket"]
    command += ["--dbpath", str(folder), "--wiredTigerCacheSizeGB", "0.25", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with MongoClient[dict[str, Any]]("127.0.0.1", port, directConnection=True) as client:
                client.admin.command("ping")
            yield port
        finally:
            process.kill()


def test_a_standalone_server_is_refused(place: Place, tmp_path: Path) -> None:
    with other_mongod(tmp_path / "alone") as port:
        ran = place.command("check", "--json", cwd=place.folder, MONGODB_URI=f"mongodb://127.0.0.1:{port}")
    assert ran.code == 1
    (found,) = [it for it in ran.json["findings"] if it["code"] == "replica-set"]
    assert found["severity"] == "error"
    assert "--replSet" in found["message"]


@pytest.mark.proof
def test_rights_that_are_missing_are_named(place: Place, tmp_path: Path) -> None:
    """A server that asks who one is: a user may only read, another may do all in the database."""
    key = tmp_path / "key"
    key.write_text("c2VjcmV0" * 8)
    key.chmod(0o600)
    name = place.database.name
    options = ("--replSet", "guarded", "--keyFile", str(key), "--auth")
    with other_mongod(tmp_path / "guarded", *options) as port:
        with MongoClient[dict[str, Any]]("127.0.0.1", port, directConnection=True) as client:
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            client.admin.command("replSetInitiate", {"_id": "guarded", "members": members})
            await_primary(client)
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        root = f"mongodb://root:root@127.0.0.1:{port}/?authSource=admin&replicaSet=guarded"
        with MongoClient[dict[str, Any]](root) as client:
            roles = {"reader": "read", "writer": "readWrite"}
            for user, role in roles.items():
                client.admin.command("createUser", user, pwd="hunter2", roles=[{"role": role, "db": name}])
            client[name].ticks.create_index("d")
            client[name].iot.create_index("at")
        codes = {}
        for user in roles:
            uri = f"mongodb://{user}:hunter2@127.0.0.1:{port}/?authSource=admin&replicaSet=guarded"
            ran = place.command("check", "--json", cwd=place.folder, MONGODB_URI=uri)
            assert "hunter2" not in ran.out + ran.err
            codes[user] = ran.code
            found = {it["place"]: it["message"] for it in ran.policy("ticks")["findings"]}
            if user == "reader":
                assert "lacks remove there" in found["ticks"]
                assert "insert, update, remove" in found["ticks_hourly"]
                assert "lacks insert, update there" in found["bucketwise_lease"]
        assert codes == {"reader": 1, "writer": 0}
        elsewhere = f"mongodb://reader:hunter2@127.0.0.1:{port}/{name}?replicaSet=guarded"
        ran = place.command("status", cwd=place.folder, MONGODB_URI=elsewhere)
        assert ran.code == 1
        assert "refused the login" in ran.err and "authSource=admin" in ran.err and "hunter2" not in ran.err


def test_privileges_are_read_as_the_server_means_them() -> None:
    privileges = [
        {"resource": {"db": "market", "collection": ""}, "actions": ["find"]},
        {"resource": {"db": "", "collection": "ticks"}, "actions": ["remove"]},
        {"resource": {"db": "market", "collection": "ticks"}, "actions": ["insert"]},
        {"resource": {"db": "other", "collection": ""}, "actions": ["update"]},
        {"resource": {"cluster": True}, "actions": ["shutdown"]},
    ]
    assert granted_actions(privileges, "market", "ticks") == {"find", "remove", "insert"}
    assert granted_actions(privileges, "market", "iot") == {"find"}
    assert granted_actions([{"resource": {"anyResource": True}, "actions": ["x"]}], "a", "b") == {"x"}
