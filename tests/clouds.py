"""Servers of Azure and Google, and plain clients of them, which know nothing of the stores under test."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import formatdate, parsedate_to_datetime
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

from bucketwise.config.tables import Store

#: The account of azurite, and its key, which its makers tell everybody.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#: What finds the rights to the test servers.
CREDENTIALS = {
    "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
    "GOOGLE_BEARER_TOKEN": "of the tests",
}
AZURITE = "azurite@3"


@dataclass(frozen=True)
class Container:
    """A container or bucket, seen without the store under test."""

    endpoint_url: str
    name: str
    prefix: str = ""

    def request(
        self, method: str, path: str = "", data: bytes | None = None, query: dict[str, str] | None = None
    ) -> bytes:
        """The body of the answer."""
        return self.answer(method, self.address(path, query), data)[1]

    def address(self, path: str, query: dict[str, str] | None = None) -> str:
        url = "/".join([self.endpoint_url, self.name, *([quote(path)] if path else [])])
        return url + (f"?{urlencode(query)}" if query else "")

    def answer(
        self, method: str, url: str, data: bytes | None = None, **more: str
    ) -> tuple[dict[str, str], bytes]:
        """The headers of the answer, and its body."""
        headers = self.signed(method, url, data) | more
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=method), timeout=60
        ) as answer:
            return dict(answer.headers), answer.read()

    def lock_of(self, name: str) -> tuple[str, datetime] | None:
        """Mode and end of an object's lock, as the cloud calls it."""
        raise NotImplementedError

    def versions_of(self, name: str) -> list[str]:
        """The addresses of the versions of an object, which may be removed there."""
        raise NotImplementedError

    def remove_versions(self, name: str) -> list[int]:
        """What the cloud answers to whoever would remove the versions of an object."""
        return [self._status_of_removal(it) for it in self.versions_of(name)]

    def _status_of_removal(self, url: str) -> int:
        try:
            self.answer("DELETE", url)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def signed(self, method: str, url: str, data: bytes | None) -> dict[str, str]:
        raise NotImplementedError

    def create(self) -> None:
        raise NotImplementedError

    def page(self, after: str) -> bytes:
        """A page of the names behind a mark."""
        raise NotImplementedError

    def names(self) -> list[str]:
        found: list[str] = []
        mark = ""
        while True:
            text = self.page(mark).decode()
            found += [unescape(it) for it in re.findall(r"<(?:Key|Name)>([^<]*)</(?:Key|Name)>(?=<)", text)]
            more = re.search(r"<Next(?:Marker|ContinuationToken)>([^<]+)<", text)
            if more is None:
                return sorted(it.removeprefix(self.prefix) for it in found if it.startswith(self.prefix))
            mark = unescape(more[1])

    def read(self, name: str) -> bytes:
        return self.request("GET", self.prefix + name)

    def write(self, name: str, data: bytes) -> None:
        self.request("PUT", self.prefix + name, data)

    def remove(self, name: str) -> None:
        self.request("DELETE", self.prefix + name)


class AzureContainer(Container):
    def signed(self, method: str, url: str, data: bytes | None) -> dict[str, str]:
        """Headers with a signature by the shared key."""
        parts = urlsplit(url)
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        if data is not None:
            headers |= {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        length = str(len(data)) if data else ""
        lines = [method, "", "", length, "", headers.get("Content-Type", ""), "", "", "", "", "", ""]
        lines += [f"{key}:{headers[key]}" for key in sorted(headers) if key.startswith("x-ms-")]
        lines += [f"/{ACCOUNT}{parts.path}", *(f"{k}:{v}" for k, v in sorted(parse_qsl(parts.query)))]
        text = "\n".join(lines).encode()
        signature = hmac.digest(base64.b64decode(ACCOUNT_KEY), text, hashlib.sha256)
        return headers | {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"}

    def create(self) -> None:
        self.request("PUT", query={"restype": "container"})

    def lock_of(self, name: str) -> tuple[str, datetime] | None:
        told, _ = self.answer("HEAD", self.address(self.prefix + name))
        until = told.get("x-ms-immutability-policy-until-date")
        return (told["x-ms-immutability-policy-mode"], parsedate_to_datetime(until)) if until else None

    def versions_of(self, name: str) -> list[str]:
        asked = {"restype": "container", "comp": "list", "include": "versions", "prefix": self.prefix + name}
        found = re.findall("<VersionId>([^<]+)<", self.request("GET", query=asked).decode())
        return [self.address(self.prefix + name, {"versionid": it}) for it in found]

    def page(self, after: str) -> bytes:
        more = {"marker": after} if after else {}
        return self.request("GET", query={"restype": "container", "comp": "list"} | more)


class GoogleBucket(Container):
    def signed(self, method: str, url: str, data: bytes | None) -> dict[str, str]:  # noqa: ARG002
        return {"Authorization": f"Bearer {CREDENTIALS['GOOGLE_BEARER_TOKEN']}"}

    def create(self) -> None:
        self.request("PUT")

    def set_up(self, *, retention: bool, versions: bool) -> None:
        """What the bucket is to do with what is locked, and with what goes."""
        if retention:
            self.answer("PUT", self.address(""), b"", **{"x-goog-bucket-object-lock-enabled": "true"})
        status = "Enabled" if versions else "Suspended"
        body = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>".encode()
        self.request("PUT", data=body, query={"versioning": ""})

    def keep_soft_deleted(self) -> None:
        body = json.dumps({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}).encode()
        self.answer("PATCH", self._told(), body)

    def lock_of(self, name: str) -> tuple[str, datetime] | None:
        url = f"{self._told()}/o/{quote(self.prefix + name, safe='')}"
        told = json.loads(self.answer("GET", url)[1]).get("retention")
        return (told["mode"], datetime.fromisoformat(told["retainUntilTime"])) if told else None

    def versions_of(self, name: str) -> list[str]:
        query = urlencode({"versions": "true", "prefix": self.prefix + name})
        _, body = self.answer("GET", f"{self._told()}/o?{query}")
        return [
            self.address(it["name"], {"generation": it["generation"]}) for it in json.loads(body)["items"]
        ]

    def _told(self) -> str:
        """Where the JSON API tells of the bucket."""
        return f"{self.endpoint_url}/storage/v1/b/{self.name}"

    def page(self, after: str) -> bytes:
        more = {"continuation-token": after} if after else {}
        return self.request("GET", query={"list-type": "2"} | more)


KINDS: dict[str, type[Container]] = {"az": AzureContainer, "gs": GoogleBucket}


def container_of(store: Store) -> Container:
    url = urlsplit(store.url)
    prefix = f"{url.path.strip('/')}/" if url.path.strip("/") else ""
    return KINDS[url.scheme](str(store.endpoint_url), url.netloc, prefix)


def new_store(scheme: str, endpoint_url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A fresh container, with a prefix."""
    use_credentials(monkeypatch)
    store = Store(url=f"{scheme}://test-{uuid.uuid4().hex[:12]}/archive", endpoint_url=endpoint_url)
    container_of(store).create()
    return store


def use_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the test servers, and nothing of this machine's."""
    for name in [it for it in os.environ if it.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def azurite_command() -> Callable[[int], list[str]]:
    """The command of azurite at a port. It is installed by npm, once, into this environment."""
    npm, node, folder = shutil.which("npm"), shutil.which("node"), Path(sys.prefix) / "azurite"
    if npm is None or node is None:
        pytest.fail("The proofs of Azure need npm. On Debian run: apt-get install npm")
    folder.mkdir(exist_ok=True)
    program = folder / "node_modules/azurite/dist/src/blob/main.js"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = [
                npm,
                "install",
                "--silent",
                "--no-fund",
                "--no-audit",
                "--prefix",
                str(folder),
                AZURITE,
            ]
            subprocess.run(command, check=True, capture_output=True)
    options = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    return lambda port: [node, str(program), "--blobPort", str(port), *options]


def google_command(port: int) -> list[str]:
    return [sys.executable, "-m", "tests.google_server", str(port)]
