"""Secrets planted everywhere they may stand, and looked for in all that comes out, in every form."""

from __future__ import annotations

import base64
import io
import itertools
import json
import shutil
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import bson
import pyarrow.parquet as pq
import pytest
from pymongo import MongoClient

from bucketwise.jobs.suite import ENTRIES
from tests.conftest import S3Server, s3_client
from tests.faults.s3_proxy import Refused, s3_proxy
from tests.jobs.command import CommandLine, Ran, started
from tests.jobs.place import NOW, POLICIES, START, Db

Client = MongoClient[dict[str, Any]]
#: Signs that a URI, a shell, JSON and a regular expression stumble over, and a part to know it by.
PASSWORD = "a/b@c:d?e#f%g[h] i\"j'k\\l+m&n=ZqMongo7Secret"
KEY, TOKEN = "Zq/Aws+Key7Secret", "Zq==Aws/Token7Secret"
VALUES = [PASSWORD, KEY, TOKEN]


def forms(secret: str) -> Iterator[bytes]:
    """What a secret looks like in URLs, JSON, Python and base64, wherever it begins in what was encoded."""
    for text in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]):
        yield text.encode()
    yield repr(secret)[1:-1].encode()
    yield secret.encode().hex().encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret.encode()).rstrip(b"=")
        yield encoded[4:-4]
        yield encoded[4:-4].translate(bytes.maketrans(b"+/", b"-_"))


def check_clean(what: str, data: str | bytes, *more: str) -> None:
    raw = data.encode() if isinstance(data, str) else data
    for secret in (*VALUES, *more):
        for form in forms(secret):
            assert form not in raw, f"{form!r} is in {what}: {raw[:2000]!r}"
    assert b"7Secret" not in raw, f"a part of a secret is in {what}: {raw[:2000]!r}"


def test_forms_are_found() -> None:
    """Else the tests below would prove nothing."""
    for data in (
        PASSWORD,
        quote_plus(TOKEN),
        json.dumps({"x": PASSWORD}),
        base64.b64encode(b"x:" + KEY.encode()),
    ):
        with pytest.raises(AssertionError):
            check_clean("this", data)


@dataclass(frozen=True)
class Planted:
    """A policy file, a user with a password, and an S3 store with a key and a token."""

    folder: Path
    client: Client
    database: Db
    bucket: str
    s3: S3Server
    command: CommandLine
    environment: dict[str, str]

    def __call__(self, verb: str, *arguments: str, **other: str) -> Ran:
        given = [verb, *arguments, "--now", NOW]
        ran = self.command(*given, cwd=self.folder, **(self.environment | other))
        check_clean(f"stdout of {given}", ran.out)
        check_clean(f"stderr of {given}", ran.err)
        return ran

    def check_everything(self) -> None:
        for name in self.database.list_collection_names():
            for document in self.database[name].find():
                check_clean(f"{name}: {document['_id']}", bson.encode(document))
                check_clean(f"{name}: {document['_id']}", str(document))
        plain = s3_client(self.s3.endpoint_url)
        for item in plain.list_objects_v2(Bucket=self.bucket).get("Contents", []):
            found = plain.get_object(Bucket=self.bucket, Key=item["Key"])
            data = found["Body"].read()
            check_clean(item["Key"], data)
            check_clean(f"headers of {item['Key']}", str(found["Metadata"]))
            if item["Key"].endswith(".parquet"):  # its pages are compressed
                read = pq.read_table(io.BytesIO(data))
                check_clean(item["Key"], f"{read.schema.metadata} {read.to_pylist()}")
        for path in self.folder.rglob("*"):
            if path.is_file():
                check_clean(str(path), path.read_bytes())
        assert list((self.folder / "tmp").iterdir()) == []


@pytest.fixture
def planted(
    asking_mongod: Client, moto_server: S3Server, bucketwise: CommandLine, tmp_path: Path
) -> Iterator[Planted]:
    name, bucket = f"test_{uuid.uuid4().hex[:12]}", moto_server.new_bucket()
    database = asking_mongod[name]
    database.command("createUser", "bob", pwd=PASSWORD, roles=["readWrite"])
    (tmp_path / "bucketwise.toml").write_text(
        f'[mongodb]\nuri = "mongodb://bob:${{PW}}@${{HOST}}"\ndatabase = "{name}"\n'
        f'[store]\nurl = "s3://{bucket}/here"\nendpoint_url = "{moto_server.endpoint_url}"\n'
        f'region = "us-east-1"\n[publish.redis]\nurl = "redis://:${{PW}}@127.0.0.1:1/0"\n'
        f'[lake]\ncatalog = "ours"\nproperties = {{type = "sql", uri = '
        f'"sqlite:///{tmp_path}/c.db", token = "${{AWS_SESSION_TOKEN}}"}}\n{POLICIES}'
    )
    shutil.copy(tmp_path / "bucketwise.toml", tmp_path / "new.toml")
    (tmp_path / "tmp").mkdir()
    assert asking_mongod.address is not None
    host, port = asking_mongod.address
    environment = {
        "PW": quote_plus(PASSWORD),
        "HOST": f"{host}:{port}/?replicaSet=rs0&authSource={name}&serverSelectionTimeoutMS=2000",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    prices = {str(second): 50 + second / 8 for second in range(60)}
    database.ticks.insert_one({"symbol": "MDB", "d": START, "p": prices})
    database.iot.insert_one({"sensor": 7, "at": START, "t": 20.5})
    yield Planted(tmp_path, asking_mongod, database, bucket, moto_server, bucketwise, environment)
    database.command("dropAllUsersFromDatabase")
    asking_mongod.drop_database(name)


RANGE = ("--since", "2018-06-30", "--until", "2018-07-01")
VERBS: list[tuple[str, ...]] = [
    ("advise", "ticks", "--no-candidates"), ("remodel", "ticks", "--to", "slots", "--into", "again"),
    ("check",), ("config", "show"), ("plan",), ("plan", "--against", "new.toml"), ("rollup",),
    ("archive",), ("run",),
    ("lake", "sync"), ("verify",), ("drill",), ("copy",), ("repair",),
    ("audit", "--html", "audit.html"), ("status",), ("stats",), ("summarize", "-p", "ticks", *RANGE),
    ("query", "FROM ticks, ticks_hourly, ticks_coverage LIMIT 1"), ("query", "FROM ticks", "--explain"),
    ("coverage",),
    ("explain", "--at", RANGE[1]),
    ("readings", "-p", "ticks", *RANGE, "-o", "out.csv"), ("restore", "-p", "ticks", "--to", "ticks"),
    ("thaw", "-p", "ticks", *RANGE),
    ("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "why", "--confirm", "ticks"),
    ("unpin",), ("hold", "add", "case", "--reason", "why"), ("hold", "list"), ("undelete",),
    ("adopt", "--reason", "why"), ("pause", "--reason", "why"), ("run",), ("resume",), ("schedule",),
    ("publish",), ("retire", "gone", "--reason", "why"),
]  # fmt: skip
VERBS += [(name,) for name in ENTRIES if name not in {"demo", "init", *(it[0] for it in VERBS)}]
_LATER = [("rollup",), ("lake", "sync"), ("coverage",), ("hold", "add", "case", "--reason", "why")]
_CUTS = [VERBS.index(it) for it in _LATER]
PARTS = [
    [("run",)] * (begin > 0) + VERBS[begin:end] for begin, end in itertools.pairwise([0, *_CUTS, len(VERBS)])
]


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("odd", [0, pytest.param(1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("verbs", PARTS, ids=["planning", "moving", "proving", "asking", "others"])
def test_no_verb_shows_them(planted: Planted, odd: int, verbs: list[tuple[str, ...]]) -> None:
    for number, verb in enumerate(verbs):
        form = () if number % 2 == odd else ("--json",)
        ran = planted(*verb, *form, BUCKETWISE_DEBUG="1")
        # One takes no --now, one finds no such policy; the others can't reach Redis.
        codes = {"schedule": 2, "retire": 2, "copy": 2, "repair": 2, "publish": 1, "erase": 3}
        assert ran.code == codes.get(verb[0], 0), ran
    assert (planted.folder / "audit.html").exists() == any(it[0] == "audit" for it in verbs)
    planted.check_everything()


@pytest.mark.proof
def test_init_shows_none(planted: Planted) -> None:
    uri = f"mongodb://bob:${{PW}}@{planted.environment['HOST'].replace('/?', f'/{planted.database.name}?')}"
    for form in ([], ["--json"], ["-o", "-"]):
        (planted.folder / "bucketwise.toml").unlink(missing_ok=True)
        assert planted("init", uri, *form, BUCKETWISE_DEBUG="1").code == 0
    assert planted("init", uri, "-o", "x.toml", PW="Zq%40Mongo7Secret", BUCKETWISE_DEBUG="1").code == 1
    assert planted("init", uri, "-o", "x.toml", PW=PASSWORD, BUCKETWISE_DEBUG="1").code == 2
    planted.check_everything()


#: What goes wrong: other values of the environment.
BROKEN: dict[str, dict[str, str]] = {
    "wrong password": {"PW": "Zq%40Mongo7Secret"},
    "password not escaped": {"PW": PASSWORD},
    "half an escape": {"PW": "%zzMongo7Secret"},
    "nobody listens": {"HOST": "127.0.0.1:1/?serverSelectionTimeoutMS=50"},
    "no such host": {"HOST": "nowhere.invalid/?serverSelectionTimeoutMS=50"},
    "no such option": {"HOST": "h/?replicaSt=Zq7Secret&authSource=${PW}"},
    "a wrong value": {"HOST": "h/?w=-1&tlsCertificateKeyFilePassword=Zq7Secret"},
    "a file that is not there": {
        "HOST": "127.0.0.1:1/?tls=true&tlsCertificateKeyFile=/nowhere&tlsCertificateKeyFilePassword=Zq7Secret"
    },
    "a token of AWS": {
        "HOST": "127.0.0.1:1/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:Zq7Secret"
        "&serverSelectionTimeoutMS=50"
    },
    "a proxy": {"HOST": "127.0.0.1:1/?proxyHost=h&proxyPassword=Zq7Secret&serverSelectionTimeoutMS=50"},
    "another scheme": {"BUCKETWISE_MONGODB_URI": "postgres://bob:Zq7Secret@h/x"},
    "no scheme": {"BUCKETWISE_MONGODB_URI": "Zq7Secret"},
    "no host": {"BUCKETWISE_MONGODB_URI": "mongodb://bob:Zq7Secret"},
    "no endpoint": {"BUCKETWISE_STORE_ENDPOINT_URL": "http://127.0.0.1:1"},
    "keys in the endpoint": {"BUCKETWISE_STORE_ENDPOINT_URL": "http://Zq7Secret:Zq7Secret@127.0.0.1:1"},
    "keys in the store": {"BUCKETWISE_STORE_URL": "s3://AKIA:Zq7Secret@bucket/x"},
    "no such bucket": {"BUCKETWISE_STORE_URL": "s3://no-such-bucket/x"},
    "a line break in the token": {"AWS_SESSION_TOKEN": f"{TOKEN}\n"},
    "a line break in the key": {"AWS_SECRET_ACCESS_KEY": f"{KEY}\n"},
    "a line break in the name of the key": {"AWS_ACCESS_KEY_ID": "AKIA\n7Secret"},
    "a proxy for S3": {"HTTP_PROXY": "http://bob:Zq7Secret@127.0.0.1:1"},
    "a broken proxy for S3": {"HTTP_PROXY": "http://bob:Zq7Secret@127.0.0.1:x"},
    "no region": {"BUCKETWISE_STORE_REGION": "Zq://bob:7Secret@h"},
}  # fmt: skip


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("verb", ["run", pytest.param("check", marks=pytest.mark.proof)])
def test_no_failure_shows_them(planted: Planted, verb: str, first: int) -> None:
    """Four tests share what goes wrong."""
    for what, other in list(BROKEN.items())[first::4]:
        ran = planted(verb, "--json", BUCKETWISE_DEBUG="1", **other)
        assert ran.code in ((0,) if what == "a line break in the key" else (1, 2)), (what, ran)
        assert "This is a defect" not in ran.out + ran.err, (what, ran)
    planted.check_everything()


@pytest.mark.proof
def test_no_refusal_of_the_store_shows_them(planted: Planted) -> None:
    with s3_proxy(planted.s3.endpoint_url) as proxy:
        for code in ("SignatureDoesNotMatch", "AccessDenied", "ExpiredToken"):
            proxy.fault = Refused(lambda _: True, times=None, status=403, code=code)
            other = {"BUCKETWISE_STORE_ENDPOINT_URL": proxy.endpoint_url, "BUCKETWISE_DEBUG": "1"}
            ran = planted("run", "-p", "ticks", **other)
            assert ran.code == 1 and code in ran.err, ran
    planted.check_everything()


@pytest.mark.proof
def test_the_service_shows_none(planted: Planted) -> None:
    """A policy that works, and one whose store refuses: log, metrics, health and ledger."""
    config = planted.folder / "bucketwise.toml"
    text = config.read_text()
    config.write_text(text.replace('model = "reading"', 'model = "reading"\nschedule = "0 0 1 1 *"'))
    environment = planted.environment | {"BUCKETWISE_STORE_URL": "s3://no-such-bucket/x"}
    with started("schedule", "--metrics-port", "0", cwd=planted.folder, **environment) as service:
        assert service.stderr is not None
        log = [next(line for line in service.stderr if "metrics are served" in line)]
        address = log[0].partition("address=")[2].split()[0]
        told = (line for line in service.stderr if 'event="run ended' in line or 'event="run failed' in line)
        log += [next(told), next(told)]
        for path in ("/metrics", "/healthz", "/nothing"):
            url = address.replace("/metrics", path)
            try:
                with urllib.request.urlopen(url, timeout=30) as reply:
                    check_clean(path, reply.read() + str(reply.headers).encode())
            except urllib.error.HTTPError as error:
                check_clean(path, error.read())
        service.terminate()
        log += service.stderr.readlines()
    check_clean("log", "".join(log))
    assert "run ended" in "".join(log) and "run failed" in "".join(log)
    planted.check_everything()
