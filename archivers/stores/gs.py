"""A store in a bucket of Google Cloud Storage."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from obstore.store import GCSStore

from bucketwise.archivers.stores.base import ObjectStore, Rights
from bucketwise.archivers.stores.cloud_failures import Failure
from bucketwise.archivers.stores.cloud_locks import CloudLocks, Container, Lock, Older, require
from bucketwise.archivers.stores.clouds import Cloud, CloudStore
from bucketwise.config.tables import StorePlace

_API = "https://storage.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_only"]
_MODES = {"governance": "Unlocked", "compliance": "Locked"}


def _connect(bucket: str, endpoint: str | None, options: dict[str, Any]) -> GCSStore:
    config: Any = {} if endpoint is None else {"base_url": endpoint}
    return GCSStore(bucket, config=config, **options)


def _lock_headers(lock: Lock) -> dict[str, str]:
    """Returns what the XML API takes, which has other names for the modes."""
    return {
        "x-goog-object-lock-mode": lock.mode.upper(),
        "x-goog-object-lock-retain-until-date": f"{lock.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


def _credentials() -> Any:
    """Returns who asks, for Google's client: the same that obstore finds, in the same order."""
    import google.auth
    from google.oauth2 import credentials, service_account

    file = os.environ.get("GOOGLE_SERVICE_ACCOUNT") or os.environ.get("GOOGLE_SERVICE_ACCOUNT_PATH")
    if token := os.environ.get("GOOGLE_BEARER_TOKEN"):
        return credentials.Credentials(token)
    if file:
        return service_account.Credentials.from_service_account_file(file, scopes=_SCOPES)
    if key := os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY"):
        return service_account.Credentials.from_service_account_info(json.loads(key), scopes=_SCOPES)
    found, _ = google.auth.default(scopes=_SCOPES)
    # A project that is billed for it needs a right more; obstore names none.
    return found.with_quota_project(None) if hasattr(found, "with_quota_project") else found


class GoogleInquiry:
    """What the JSON API of Google Cloud Storage tells of a bucket."""

    def __init__(self, bucket: str, endpoint: str | None, timeout: float) -> None:
        from google.auth.transport.requests import AuthorizedSession

        endpoint = endpoint or os.environ.get("GOOGLE_BASE_URL") or _API
        self._bucket = f"{endpoint.rstrip('/')}/storage/v1/b/{quote(bucket, safe='')}"
        self._timeout = timeout
        with _failures():
            self._session = AuthorizedSession(_credentials())

    def container(self) -> Container:
        """Returns whether the bucket keeps versions, and whether its objects can have a retention. What is
        soft-deleted is a version that goes by itself: without others, it can't be told that none is kept."""
        told = self._get("", fields="versioning,objectRetention,softDeletePolicy")
        is_versioned = bool(told.get("versioning", {}).get("enabled"))
        has_locks = told.get("objectRetention", {}).get("mode") == "Enabled"
        soft = int(told.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
        return Container(None if soft and not is_versioned and not has_locks else is_versioned, has_locks)

    def lock(self, name: str) -> Lock | None:
        """Returns the retention of an object; None where it has none."""
        retention = self._get(f"/o/{quote(name, safe='')}", fields="retention").get("retention", {})
        modes = {it: mode for mode, it in _MODES.items()}
        mode, until = modes.get(retention.get("mode", "")), _instant(retention.get("retainUntilTime"))
        return Lock(mode, until) if mode is not None and until is not None else None

    def older(self, prefix: str) -> Iterator[Older]:
        """Yields the versions that are not live, then what is soft-deleted."""
        for it in self._listed(prefix, versions="true"):
            if "timeDeleted" in it:
                yield Older(_instant(it.get("retention", {}).get("retainUntilTime")), False)
        try:
            for _ in self._listed(prefix, softDeleted="true"):
                yield Older(None, True)
        except Failure as failure:
            if failure.status != 400:  # a bucket without soft delete
                raise

    def _listed(self, prefix: str, **which: str) -> Iterator[dict[str, Any]]:
        more = {"fields": "nextPageToken,items(timeDeleted,retention)", "prefix": prefix}
        while True:
            page = self._get("/o", **which, **more)
            yield from page.get("items", [])
            if not (token := page.get("nextPageToken")):
                return
            more["pageToken"] = token

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        """Returns what the server answers. Raises Failure."""
        with _failures():
            reply = self._session.get(self._bucket + path, params=query, timeout=self._timeout)
            told: dict[str, Any] = reply.json() if reply.ok else {}
        if not reply.ok:
            raise _refusal(reply)
        return told


def _refusal(reply: Any) -> Failure:
    """Returns what a reply tells that is an error."""
    try:
        told = reply.json()["error"]
        message, reason = told["message"], told["errors"][0]["reason"]
    except (ValueError, LookupError, TypeError):
        message = reason = ""
    absent = reply.status_code == 404 and "bucket" in message
    code = "NoSuchBucket" if absent else reason
    return Failure(OSError(f"status {reply.status_code}"), reply.status_code, code, message)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


@contextmanager
def _failures() -> Iterator[None]:
    """Raises what Google's client raises in the block as Failure."""
    import requests
    from google.auth import exceptions as google

    try:
        yield
    except requests.exceptions.Timeout as error:
        raise Failure(error, wire="Timeout") from error
    except requests.exceptions.JSONDecodeError as error:
        raise Failure(error, wire="Decode") from error
    except requests.exceptions.RequestException as error:
        raise Failure(error, wire="Connect") from error
    except (google.GoogleAuthError, ValueError, OSError) as error:  # no text of it: a secret may be in it
        if isinstance(error, google.TransportError) or getattr(error, "retryable", False):
            raise Failure(error, message="no token could be got", wire="Connect") from error
        raise Failure(error, message=type(error).__name__, is_of_credentials=True) from error


GOOGLE = Cloud(
    container="bucket",
    extra="gcs",
    connect=_connect,
    locks=CloudLocks(
        headers=_lock_headers,
        inquire=GoogleInquiry,
        modes=_MODES,
        right="storage.objects.setRetention",
        absent="the bucket has no object retention",
        remedy="Create a bucket with `--enable-per-object-retention`, or enable it in the console; and turn "
        "object versioning on.",
        unversioned="the bucket keeps no versions: files that are locked could be neither replaced nor "
        "removed. Turn object versioning on.",
    ),
    rights=Rights(
        "storage.objects.create", "storage.objects.get", "storage.objects.list", "storage.objects.delete"
    ),
    credentials="Name a key file in GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
    "login`, or run where there is a service account.",
    sent=("GOOGLE_BEARER_TOKEN",),
    absent=("NoSuchBucket",),
    taken=("PreconditionFailed",),
    unknown=("AuthenticationRequired", "InvalidSecurity"),
    remedies={
        "ExpiredToken": "Get new credentials, then run again.",
        "RetentionPolicyNotMet": "A retention policy of the bucket keeps it, or a lock where no versions are "
        "kept. Run again after its end.",
        "ObjectUnderActiveHold": "A hold of the bucket keeps it. Run again once it is released.",
        "SlowDown": "The store asks for fewer requests. Run again later.",
        "InvalidBucketName": "Correct store.url.",
    },
    page=1000,
    lists_from=True,
    deletes_many=False,
)


def open_store(settings: StorePlace) -> ObjectStore:
    """Returns the bucket, or the prefix in it, at the URL of the settings. Raises ImportError where what
    reads locks back is missing, and files are to be locked."""
    if settings.object_lock is not None:
        require("google.auth", "requests")
    return CloudStore(GOOGLE, settings)
