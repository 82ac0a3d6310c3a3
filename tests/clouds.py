"""Servers of Azure and Google, and plain clients of them, which know nothing of the stores under test."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
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
        url = "/".join([self.endpoint_url, self.name, *([quote(path)] if path else [])])
        url += f"?{urlencode(query)}" if query else ""
        headers = self.signed(method, url, data)
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=method), timeout=60
        ) as answer:
            body: bytes = answer.read()
        return body

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

    def page(self, after: str) -> bytes:
        more = {"marker": after} if after else {}
        return self.request("GET", query={"restype": "container", "comp": "list"} | more)


class GoogleBucket(Container):
    def signed(self, method: str, url: str, data: bytes | None) -> dict[str, str]:  # noqa: ARG002
        return {"Authorization": f"Bearer {CREDENTIALS['GOOGLE_BEARER_TOKEN']}"}

    def create(self) -> None:
        self.request("PUT")

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
