"""A store in an S3 bucket, or in one of a server that speaks S3."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from bucketwise.archivers.stores.base import (
    AlreadyExists,
    Corrupt,
    Denied,
    NotFound,
    ObjectStore,
    OlderVersions,
    OutcomeUnknown,
    PlainStore,
    Requests,
    Rights,
    StoreError,
    StoreObject,
    Versioning,
    check_bytes,
    check_size,
    checked_key,
    probe_store,
)
from bucketwise.config.tables import ObjectLock, StorePlace

_RIGHTS = Rights("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject")
_OPERATIONS = {
    "PutObject": "put",
    "GetObject": "get",
    "HeadObject": "head",
    "ListObjectsV2": "list",
    "DeleteObjects": "delete",
}
_DELETE_BATCH = 1000  # what S3 takes in one request


_FAILURES = (BotoCoreError, ClientError)

_CREDENTIALS = "Give boto3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role."
_ENDPOINT = "Look at store.endpoint_url, store.region and the network, then run again."
_AGAIN = "It is safe to run again."
_REMEDIES = {
    "NoSuchBucket": "Create the bucket, or correct store.url.",
    "InvalidBucketName": "Correct store.url.",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": "The secret key does not match the access key. " + _CREDENTIALS,
    "ExpiredToken": "Get new credentials, then run again.",
    "InvalidToken": "Get new credentials, then run again.",
    "RequestTimeTooSkewed": "Set this machine's clock.",
    "PermanentRedirect": "Set store.region to the bucket's region.",
    "AuthorizationHeaderMalformed": "Set store.region to the bucket's region.",
    "InvalidStorageClass": "Set archive.storage_class to one that this store has, or leave it out.",
    "NotImplemented": "This server can't do that. If archive.storage_class is set, leave it out.",
    "SlowDown": "The store asks for fewer requests. Run again later.",
}
_DENIED = {"AccessDenied", "AllAccessDisabled", "Forbidden", "403", "401"}


class RetryLimits(NamedTuple):
    """Limits of a request: `attempts` at most, and `timeout` (seconds) for a connection or for bytes."""

    attempts: int = 5
    timeout: float = 30.0


USUAL = RetryLimits()


def open_store(settings: StorePlace) -> ObjectStore:
    """Returns the bucket, or the prefix in it, at the URL of the settings."""
    url = urlsplit(settings.url)
    return S3Store(
        url.netloc,
        url.path.strip("/"),
        endpoint_url=settings.endpoint_url,
        region=settings.region,
        lock=settings.object_lock,
    )


class S3Store(PlainStore):
    """A store in an S3 bucket. Credentials come from boto3's own chain. Safe to use from several threads.
    `lock`: how long the files of a commit are locked; None: they are not."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        lock: ObjectLock | None = None,
        limits: RetryLimits = USUAL,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._attempts = limits.attempts
        self._lock = lock
        self._knows_conditions = True
        self.requests = Requests()
        config = Config(
            connect_timeout=limits.timeout,
            read_timeout=limits.timeout,
            retries={"mode": "standard", "total_max_attempts": limits.attempts},
            s3={"addressing_style": "path" if endpoint_url else "auto"},
            request_checksum_calculation="when_supported",
            response_checksum_validation="when_supported",
        )
        try:
            self._client = Session().client(
                "s3", endpoint_url=endpoint_url, region_name=region, config=config
            )
        except (BotoCoreError, ValueError) as error:
            remedy = "Look at store.endpoint_url, store.region and the AWS settings of this user."
            raise StoreError("open", self.url, str(error), remedy) from error
        self._client.meta.events.register("before-send.s3", self._count)
        self._client.meta.events.register("before-parse.s3.GetObject", _without_body_if_refused)

    @property
    def url(self) -> str:
        """Returns the s3:// URL of the bucket and prefix."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def check_there(self) -> None:
        """Does nothing: a bucket that is missing is told by the first request."""

    def put_bytes(
        self,
        key: str,
        data: bytes,
        *,
        if_absent: bool = False,
        storage_class: str | None = None,
        locked_from: datetime | None = None,
    ) -> None:
        """Uploads an object. If the reply is lost, finds out what the bucket holds."""
        # Look first, for servers that ignore the condition.
        if if_absent and self.head(key) is not None:
            raise AlreadyExists("put", f"{self.url}/{key}", "it already exists")
        options: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"}  # the server keeps it: see `check`
        options["ChecksumSHA256"] = _in_base64(hashlib.sha256(data).hexdigest())
        if storage_class is not None:
            options["StorageClass"] = storage_class
        if self._lock is not None and locked_from is not None:
            options["ObjectLockMode"] = self._lock.mode.upper()
            options["ObjectLockRetainUntilDate"] = locked_from + timedelta(days=self._lock.days)
        if if_absent and self._knows_conditions:
            options["IfNoneMatch"] = "*"
        try:
            self._client.put_object(**self._where(key), Body=data, **options)
        except _FAILURES as error:
            if "IfNoneMatch" in options and _is_unsupported(error):
                self._knows_conditions = False
                self.put_bytes(
                    key, data, if_absent=True, storage_class=storage_class, locked_from=locked_from
                )
            else:
                self._resolve_put(key, error, data)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object. Reads it again from its start where the reply breaks off or is
        damaged."""
        for attempt in itertools.count(1):
            if attempt > 1:
                self.requests.count_retry()
            try:
                reply = self._client.get_object(**self._where(key))
            except _FAILURES as error:  # after all retries
                raise self._error("get", key, error) from error
            check_size(reply.get("ContentLength", size), size, f"{self.url}/{key}")
            try:
                data: bytes = reply["Body"].read()
                return data
            except _FAILURES as error:
                if attempt == self._attempts:
                    raise self._error("get", key, error) from error
        raise AssertionError("unreachable")

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        try:
            found = self._client.head_object(**self._where(key))
        except _FAILURES as error:
            if _http_status(error) == 404:
                return None
            raise self._error("look at", key, error) from error
        version = found.get("VersionId")
        storage_class = found.get("StorageClass", "STANDARD")  # told of all others
        return StoreObject(key, found["ContentLength"], found["LastModified"], version, storage_class)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Asks for the object's size, and for the SHA-256 that the server has computed of it. Reads the
        object where it has none: a server that keeps none, or an object that was uploaded without."""
        place = f"{self.url}/{key}"
        try:
            found = self._client.head_object(**self._where(key), ChecksumMode="ENABLED")
        except _FAILURES as error:
            raise self._error("look at", key, error) from error
        check_size(found["ContentLength"], size, place)
        if (kept := found.get("ChecksumSHA256")) is None:
            check_bytes(self.get_bytes(key, size), sha256, place)
        elif kept != _in_base64(sha256):
            raise Corrupt("check", place, "it was replaced: the store has another SHA-256 of it")

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects whose keys begin with `prefix` and come after the key `after`, sorted by key."""
        where = {"StartAfter": self._prefix + after} if after else {}
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix, **where
        )
        try:
            found = [
                StoreObject(item["Key"].removeprefix(self._prefix), item["Size"], item["LastModified"])
                for page in pages
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")  # a folder that a console made
                and item["Key"] > self._prefix + after  # some servers that speak S3 ignore StartAfter
            ]
        except _FAILURES as error:
            raise self._error("list", prefix, error) from error
        # S3 lists in the order of keys; not every server that speaks S3 does.
        yield from sorted(found, key=lambda item: item.key)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, up to a thousand a request. Absent ones are no error."""
        waiting = iter(keys)
        while batch := list(islice(waiting, _DELETE_BATCH)):
            names = [{"Key": self._where(key)["Key"]} for key in batch]
            try:
                reply = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": names, "Quiet": True}
                )
            except _FAILURES as error:
                raise self._error("delete", batch[0], error) from error
            refused = [item for item in reply.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
            if refused:
                key = refused[0].get("Key", "").removeprefix(self._prefix)
                raise self._error("delete", key, ClientError({"Error": refused[0]}, "DeleteObjects"))

    def versioning(self) -> Versioning:
        """Returns how the bucket is configured, as far as we may ask."""
        lock = None if self._lock is None else f"{self._lock.mode}, {self._lock.days} days"
        try:
            status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
            return Versioning(status == "Enabled", self._has_locks(), lock)
        except _FAILURES:  # a server without versions, or credentials without the right to ask
            return Versioning(has_locks=None, lock=lock)

    def older_versions(self, prefix: str) -> OlderVersions:
        """Returns the older versions, where versioning is on or was. Asks for the locks of each version, if
        the bucket has any."""
        try:
            if "Status" not in self._client.get_bucket_versioning(Bucket=self._bucket):
                return OlderVersions()
            where = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
            pages = self._client.get_paginator("list_object_versions").paginate(**where)
            old = [it for page in pages for it in page.get("Versions", ()) if not it["IsLatest"]]
            ends = [self._locked_until(it) for it in old] if old and self._has_locks() else []
        except _FAILURES as error:
            if _is_unsupported(error):
                return OlderVersions()
            raise self._error("list the versions below", prefix, error) from error
        return OlderVersions(len(old), max((it for it in ends if it is not None), default=None))

    def _has_locks(self) -> bool:
        try:
            self._client.get_object_lock_configuration(Bucket=self._bucket)
        except _FAILURES as error:
            if _http_status(error) == 404:
                return False
            raise
        return True

    def _locked_until(self, version: dict[str, Any]) -> datetime | None:
        where = {"Key": version["Key"], "VersionId": version["VersionId"]}
        until: datetime | None = self._client.head_object(Bucket=self._bucket, **where).get(
            "ObjectLockRetainUntilDate"
        )
        return until

    def clean_temporaries(self, before: datetime | None, folder: str | None = None) -> int:  # noqa: ARG002
        """Returns 0: each object is put by one request, whole or not at all."""
        return 0

    def unfinished(self, folder: str) -> Sequence[str]:  # noqa: ARG002
        """Returns none."""
        return []

    def probe(self) -> bool:
        """Tries every right, with an object that is removed again."""
        return probe_store(self, _RIGHTS, self._refuses_overwrite)

    def _count(self, request: Any, event_name: str, **_: object) -> None:
        """Counts each attempt, botocore's own retries among them."""
        self.requests.count(_OPERATIONS.get(event_name.rpartition(".")[2], "other"))
        if "attempt=1;" not in str(request.headers.get("amz-sdk-request", "attempt=1;")):
            self.requests.count_retry()

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + checked_key(key, self.url)}

    def _error(self, operation: str, key: str, error: Exception) -> StoreError:
        return _store_error(operation, f"{self.url}/{key}", error)

    def _resolve_put(self, key: str, error: Exception, data: bytes) -> None:
        """Finds out after a failed put whether it took effect. Returns if it did; otherwise raises the error
        that applies."""
        failed = self._error("put", key, error)
        if _is_definite(error):
            raise failed from error
        try:
            if self._holds(key, data):
                return
        except (StoreError, OSError) as unread:
            reason = f"{failed.reason}. Reading it back failed too: {unread}"
            remedy = "Whether it was written is unknown. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, reason, remedy) from error
        if _may_still_happen(error):
            remedy = "It is not there yet, and may come. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, failed.reason, remedy) from error
        raise failed from error

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self.get_bytes(key) == data
        except NotFound:
            return False

    def _refuses_overwrite(self, key: str) -> bool:
        try:
            self._client.put_object(**self._where(key), Body=b"overwritten", IfNoneMatch="*")
        except _FAILURES as error:
            if _is_unsupported(error) or _http_status(error) == 412:
                return _http_status(error) == 412
            raise self._error("put", key, error) from error
        return False


def _in_base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _without_body_if_refused(response_dict: dict[str, Any], **_: object) -> None:
    """Removes the body of a refusal that names the object's checksum: botocore takes it for the object's and
    fails."""
    if response_dict["status_code"] >= 300 and not isinstance(response_dict["body"], bytes):
        response_dict["body"] = b""


def _http_status(error: Exception) -> int | None:
    """Returns the status with which the server answered, or None where it did not answer."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def _is_definite(error: Exception) -> bool:
    """Returns whether the request certainly had no effect: its first attempt was refused.

    A later refusal does not show that: earlier attempts may have taken effect, and their replies been
    lost."""
    status = _http_status(error)
    if status is None or not isinstance(error, ClientError):
        return _is_unsendable(error) or isinstance(
            error, ParamValidationError | NoCredentialsError | PartialCredentialsError
        )
    return 400 <= status < 500 and not error.response["ResponseMetadata"].get("RetryAttempts", 0)


def _may_still_happen(error: Exception) -> bool:
    """Returns whether the server may still carry the request out, since it, or a gateway before it, was too
    slow to answer."""
    return isinstance(error, ReadTimeoutError) or _http_status(error) == 504


def _store_error(operation: str, place: str, error: Exception) -> StoreError:
    """Returns the store error for an error of boto3."""
    if isinstance(error, ClientError):
        return _refusal(operation, place, error)
    if _is_unsendable(error):  # its text quotes the session token
        return StoreError(operation, place, "the credentials hold a line break, or the like", _CREDENTIALS)
    reason = str(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return StoreError(operation, place, "no credentials were found", _CREDENTIALS)
    if isinstance(error, CredentialRetrievalError):  # its text may quote what a helper program printed
        return StoreError(operation, place, "the credentials could not be fetched", _CREDENTIALS)
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError | SSLError):
        return StoreError(operation, place, reason, _ENDPOINT)
    if isinstance(error, IncompleteReadError):
        return StoreError(operation, place, f"the reply was truncated: {reason}", _AGAIN)
    if isinstance(error, FlexibleChecksumError):
        return Corrupt(operation, place, reason, _AGAIN)
    if isinstance(error, ParamValidationError):
        return StoreError(operation, place, " ".join(reason.split()), "Correct store.url.")
    return StoreError(operation, place, reason or type(error).__name__, _AGAIN)


def _is_unsendable(error: Exception) -> bool:
    """Returns whether something of ours could not be put into the request's headers."""
    return isinstance(error, HTTPClientError) and isinstance(error.kwargs.get("error"), ValueError)


def _refusal(operation: str, place: str, error: ClientError) -> StoreError:
    found = error.response.get("Error", {})
    code, status = str(found.get("Code", "")), _http_status(error)
    reason = f"{code}: {found.get('Message') or 'the server says no more'}"[:300]
    if code in _REMEDIES:
        return StoreError(operation, place, reason, _REMEDIES[code])
    if code in _DENIED:
        return Denied(operation, place, reason, "Grant these credentials that right.")
    if status == 412:
        return AlreadyExists(operation, place, "it already exists")
    if code in ("NoSuchKey", "404"):
        return NotFound(operation, place, "no such object")
    return StoreError(operation, place, reason, _AGAIN if status and status >= 500 else "")


def _is_unsupported(error: Exception) -> bool:
    """Returns whether the server does not know the request."""
    return _http_status(error) == 501
