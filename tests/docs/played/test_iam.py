"""The IAM policy that security.md shows is enough, and nothing in it is too much, on a server that asks.

moto asks for signature, action and the resource of each request. It does not look at conditions, nor at the
key of a delete of many objects, and finds a key that is not there without `s3:ListBucket`, as AWS does not.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from bucketwise.archivers.stores.base import Denied
from bucketwise.archivers.stores.s3 import S3Store
from tests.conftest import REGION, S3Server, serve
from tests.docs.pages import ROOT, blocks
from tests.jobs.command import Ran
from tests.jobs.place import MINUTES, Place

Policy = dict[str, Any]
BUCKET, PREFIX, USER = "acme-archive", "market", "bucketwise"


def policy(mark: str = "iam") -> Policy:
    (block,) = [it for it in blocks(ROOT / "docs" / "security.md") if it.marks == (mark,)]
    found: Policy = json.loads(block.text)
    return found


def actions(of: Policy) -> list[str]:
    return [action for statement in of["Statement"] for action in statement["Action"]]


def without(of: Policy, action: str) -> Policy:
    less = copy.deepcopy(of)
    for statement in less["Statement"]:
        statement["Action"] = [it for it in statement["Action"] if it != action]
    less["Statement"] = [statement for statement in less["Statement"] if statement["Action"]]
    return less


def as_moto_asks(of: Policy) -> Policy:
    """For a delete of many objects moto asks for the right in the bucket; AWS does for each key."""
    if "s3:DeleteObject" not in actions(of):
        return of
    more = {"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": f"arn:aws:s3:::{BUCKET}"}
    return {**of, "Statement": [*of["Statement"], more]}


@dataclass(frozen=True)
class Account:
    """A server that asks, its root, and the user who may do what it was last allowed."""

    server: S3Server
    root: dict[str, str]
    user: dict[str, str]

    def client(self, service: str, who: dict[str, str]) -> Any:
        keys = {"aws_access_key_id": who["AccessKeyId"], "aws_secret_access_key": who["SecretAccessKey"]}
        return boto3.client(service, endpoint_url=self.server.endpoint_url, region_name=REGION, **keys)

    def allow(self, granted: Policy) -> None:
        document = json.dumps(granted)
        self.client("iam", self.root).put_user_policy(
            UserName=USER, PolicyName="granted", PolicyDocument=document
        )

    def objects(self) -> list[str]:
        found = self.client("s3", self.root).list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return [item["Key"] for item in found]

    def empty(self) -> None:
        client = self.client("s3", self.root)
        for key in self.objects():
            client.delete_object(Bucket=BUCKET, Key=key)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.user["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": self.user["SecretAccessKey"],
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    unasked = {"INITIAL_NO_AUTH_ACTION_COUNT": "3"}  # root's own user, policy and key
    for server in serve(lambda port: [*command, str(port)], path="/moto-api/", **unasked):
        plain = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        first = boto3.client("iam", endpoint_url=server.endpoint_url, region_name=REGION, **plain)
        all_ = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        first.create_user(UserName="root")
        first.put_user_policy(UserName="root", PolicyName="all", PolicyDocument=json.dumps(all_))
        root = first.create_access_key(UserName="root")["AccessKey"]
        asking = Account(server, root, {})
        iam = asking.client("iam", root)
        iam.create_user(UserName=USER)
        user = iam.create_access_key(UserName=USER)["AccessKey"]
        asking.client("s3", root).create_bucket(Bucket=BUCKET)
        yield Account(server, root, user)
        break


@dataclass(frozen=True)
class Archive:
    account: Account
    place: Place

    def __call__(self, verb: str, *arguments: str) -> Ran:
        given = [verb, "-p", "ticks", "--quiet", "--json", "--now", "2018-09-01", *arguments]
        environment = self.account.environment | {"MONGODB_URI": self.place.uri}
        return self.place.command(*given, cwd=self.place.folder, **environment)

    def store(self) -> S3Store:
        return S3Store(BUCKET, PREFIX, endpoint_url=self.account.server.endpoint_url)


@pytest.fixture
def archive(account: Account, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    text = place.config.read_text()
    head = f'[store]\nurl = "s3://{BUCKET}/{PREFIX}"\nendpoint_url = "{account.server.endpoint_url}"\n'
    place.config.write_text(text.replace(text[text.index("[store]") : text.index("[policies")], head))
    account.empty()
    yield Archive(account, place)
    account.empty()


def steps(archive: Archive) -> Iterator[Ran]:
    """All that touches the store, with a commit that is taken out."""
    source = archive.place.database.ticks
    yield archive("check")
    yield archive("run")
    yield archive("readings", "--since", "2018-06-30", "--until", "2018-07-01", "-o", "out.csv")
    yield archive("restore", "--to", "ticks")
    source.update_one({}, {"$set": {"note": "changed"}})
    yield archive("unpin")
    yield archive("run")  # another commit takes over, and the first goes
    yield archive("verify")
    yield archive("audit")


@pytest.mark.proof
def test_it_is_enough(archive: Archive) -> None:
    archive.account.allow(as_moto_asks(policy()))
    for ran in steps(archive):
        assert ran.code == 0, ran
        assert "AccessDenied" not in ran.out + ran.err
    assert all(key.startswith(f"{PREFIX}/") for key in archive.account.objects())


@pytest.mark.proof
def test_who_reads_needs_less(archive: Archive) -> None:
    archive.account.allow(as_moto_asks(policy()))
    assert archive("run").code == 0
    before = archive.account.objects()
    archive.account.allow(policy("iam-read"))
    for verb in ("verify", "audit", "plan"):
        assert archive(verb).code == 0, verb
    ran = archive("check")
    assert ran.code == 1 and "missing: s3:PutObject, s3:DeleteObject" in ran.out
    assert archive.account.objects() == before


@pytest.mark.proof
def test_a_run_without_a_right_says_which_and_deletes_nothing(archive: Archive) -> None:
    for action in ("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject"):
        archive.account.allow(as_moto_asks(without(policy(), action)))
        ran = archive("check")
        (found,) = [it for it in ran.json["findings"] if it["code"] == "store"]
        assert ran.code == 1 and f"missing: {action}." in found["message"], ran
        if action != "s3:DeleteObject":
            ran = archive("run")
            assert ran.code == 1 and "AccessDenied" in ran.policy("ticks")["error"], ran
            assert "Traceback" not in ran.err
        assert archive.place.database.ticks.count_documents({}) == MINUTES


ACTS: dict[str, Callable[[S3Store], object]] = {
    "s3:PutObject": lambda store: store.put_bytes("ticks/x", b""),
    "s3:GetObject": lambda store: store.get_bytes("ticks/there"),
    "s3:DeleteObject": lambda store: store.delete(["ticks/there"]),
    "s3:ListBucket": lambda store: list(store.list("ticks/")),
}


@pytest.mark.proof
def test_nothing_in_it_is_too_much(archive: Archive) -> None:
    assert set(ACTS) == set(actions(policy()))
    client = archive.account.client("s3", archive.account.root)
    for action, act in ACTS.items():
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/ticks/there", Body=b"")
        archive.account.allow(as_moto_asks(without(policy(), action)))
        with pytest.raises(Denied):
            act(archive.store())
        assert f"{PREFIX}/ticks/there" in archive.account.objects()
        archive.account.allow(as_moto_asks(policy()))
        act(archive.store())


@pytest.mark.proof
def test_nothing_beside_the_prefix_can_be_had(archive: Archive) -> None:
    archive.account.allow(as_moto_asks(policy()))
    client = archive.account.client("s3", archive.account.root)
    client.put_object(Bucket=BUCKET, Key="other/there", Body=b"")
    elsewhere = S3Store(BUCKET, "other", endpoint_url=archive.account.server.endpoint_url)
    for act in (lambda: elsewhere.get_bytes("there"), lambda: elsewhere.put_bytes("more", b"")):
        with pytest.raises(Denied):
            act()
    assert "other/there" in archive.account.objects()
