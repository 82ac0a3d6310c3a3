"""A place whose offline archive lies in S3, with the classes that a test asks for."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from bucketwise.config.tables import Store
from bucketwise.jobs.suite import load
from tests.conftest import ACCESS_KEY, SECRET_KEY, s3_client
from tests.jobs.command import Ran
from tests.jobs.place import NOW, POLICIES, Place

#: The readings are of 2018-06-30; a day later, compaction has looked at what was archived by then.
DAY_AFTER = "2018-09-03T00:00:00Z"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
GLACIER = 'storage_class = "GLACIER"'
AFTER_180 = '[[policies.ticks.archive.storage_classes]]\nafter = "180d"\nclass = "DEEP_ARCHIVE"'


@dataclass
class Chilled:
    place: Place
    store: Store

    def write_config(self, archive: str, policies: str = POLICIES, more: str = "") -> None:
        """`archive`: keys of the table `archive` of ticks, or tables after it."""
        keys = "" if archive.startswith("[") else archive
        tables = archive if archive.startswith("[") else ""
        text = policies.replace('to = "offline"', f'to = "offline"\n{keys}')
        text = text.replace("[policies.ticks.retain]", f"{tables}\n[policies.ticks.retain]")
        head = f'[mongodb]\nuri = "${{MONGODB_URI}}"\ndatabase = "{self.place.database.name}"\n'
        url = f'[store]\nurl = "{self.store.url}"\nendpoint_url = "{self.store.endpoint_url}"\n'
        self.place.config.write_text(f'{head}{url}region = "{self.store.region}"\n{more}{text}')

    def __call__(self, verb: str, *arguments: str, now: str | None = NOW) -> Ran:
        is_told = "--json" in arguments or load(verb).answers
        given = [verb, *(["--quiet"] if is_told else []), *arguments, *(["--now", now] if now else [])]
        return self.place.command(*given, cwd=self.place.folder, MONGODB_URI=self.place.uri, **CREDENTIALS)

    def freeze(self, policies: str = POLICIES, more: str = "", workers: int = 1) -> None:
        """Archives all, and moves it to a cold class."""
        self.write_config(GLACIER, policies, more)
        self("run", "--workers", str(workers))
        self("run", now=DAY_AFTER)
        assert self.classes()["data"] == {"GLACIER"}

    def classes(self) -> dict[str, set[str]]:
        """The classes of objects, by the folder of the policy that they lie in."""
        client = s3_client(str(self.store.endpoint_url))
        bucket, _, prefix = self.store.url.removeprefix("s3://").partition("/")
        found: dict[str, set[str]] = {}
        for item in client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/ticks/")["Contents"]:
            head = client.head_object(Bucket=bucket, Key=item["Key"])
            folder = item["Key"].removeprefix(f"{prefix}/ticks/").split("/")[0]
            found.setdefault(folder, set()).add(head.get("StorageClass", "STANDARD"))
        return found

    def delete_parts(self) -> None:
        """Has the store lose the parts of ticks."""
        self._delete("data/")

    def delete_states(self) -> None:
        """Has the store lose the states of ticks."""
        self._delete("meta/buckets/", ".states.parquet")

    def freeze_states(self) -> None:
        """Moves the states of ticks to a cold class, as a lifecycle rule does that somebody wrote for all."""
        client = s3_client(str(self.store.endpoint_url))
        for place in self._objects("meta/buckets/", ".states.parquet"):
            client.copy_object(**place, CopySource=place, StorageClass="GLACIER")

    def _delete(self, folder: str, ending: str = "") -> None:
        client = s3_client(str(self.store.endpoint_url))
        for place in self._objects(folder, ending):
            client.delete_object(**place)

    def _objects(self, folder: str, ending: str) -> list[dict[str, str]]:
        client = s3_client(str(self.store.endpoint_url))
        bucket, _, prefix = self.store.url.removeprefix("s3://").partition("/")
        found = client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/ticks/{folder}")["Contents"]
        return [{"Bucket": bucket, "Key": it["Key"]} for it in found if it["Key"].endswith(ending)]


def thaws_after(store: Store, looks: int) -> None:
    """Has the server thaw an object once it was looked at so many times; 0: at once."""
    progression: dict[str, Any] = {"progression": "immediate"}
    if looks:
        progression = {"progression": "manual", "times": looks}
    body = json.dumps({"model_name": "s3::keyrestore", "transition": progression}).encode()
    request = urllib.request.Request(
        f"{store.endpoint_url}/moto-api/state-manager/set-transition",
        body,
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()
