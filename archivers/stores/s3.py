"""A store in an S3 bucket, or in one of a server that speaks S3."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal
from urllib.parse import urlsplit

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from bucketwise.archivers.stores.base import (
    USUAL,
    AlreadyExists,
    Cold,
    Corrupt,
    Denied,
    ObjectStore,
    OlderVersions,
    Requests,
    RetryLimits,
    Rights,
    ServedStore,
    StoreError,
    StoreObject,
    Versioning,
    check_bytes,
    check_size,
    checked_key,
    probe_store,
)
from bucketwise.archivers.stores.classes import LifecycleRule, Standing, Tier
from bucketwise.archivers.stores.s3_errors import (
    FAILURES,
    THAW,
    Tries,
    http_status,
    is_definite,
    is_unsupported,
    store_error,
)
from bucketwise.config.tables import COLD, ObjectLock, StorePlace

_RIGHTS = Rights("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject")
_OPERATIONS = {
    "PutObject": "put",
    "GetObject": "get",
    "HeadObject": "head",
    "ListObjectsV2": "list",
    "DeleteObjects": "delete",
    "CopyObject": "copy",
    "RestoreObject": "thaw",
}
_UNDER_WAY = "RestoreAlreadyInProgress"
_NO_LOCKS = "the bucket has no Object Lock: it is given at its creation"
_UNASKED = "whether the bucket has Object Lock can't be asked: grant s3:GetBucketObjectLockConfiguration"
_DELETE_BATCH = 1000  # what S3 takes in one request


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


class S3Store(ServedStore):
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
        self._tries = Tries()
        self._client.meta.events.register("before-send.s3", self._count)
        self._client.meta.events.register("response-received.s3.PutObject", self._tries.note)
        self._client.meta.events.register("before-parse.s3.GetObject", _without_body_if_refused)

    @property
    def url(self) -> str:
        """Returns the s3:// URL of the bucket and prefix."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

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
            until = locked_from + timedelta(days=self._lock.days)
            if until > datetime.now(UTC):  # S3 takes no lock that has ended
                options |= {"ObjectLockMode": self._lock.mode.upper(), "ObjectLockRetainUntilDate": until}
        if if_absent and self._knows_conditions:
            options["IfNoneMatch"] = "*"
        self._tries.begin()
        try:
            self._client.put_object(**self._where(key), Body=data, **options)
        except FAILURES as error:
            if "IfNoneMatch" in options and is_unsupported(error):
                self._knows_conditions = False
                self.put_bytes(
                    key, data, if_absent=True, storage_class=storage_class, locked_from=locked_from
                )
            else:
                failed = self._error("put", key, error)
                if is_definite(error):
                    raise failed from error
                self._look_up(key, data, failed, error, may_come=self._tries.may_still_happen)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        """Returns the bytes of an object. Reads it again from its start where the reply breaks off or is
        damaged."""
        for attempt in itertools.count(1):
            if attempt > 1:
                self.requests.count_retry()
            with self._failing("get", key):  # after all retries
                reply = self._client.get_object(**self._where(key))
            check_size(reply.get("ContentLength", size), size, f"{self.url}/{key}")
            try:
                data: bytes = reply["Body"].read()
                return data
            except FAILURES as error:
                if attempt == self._attempts:
                    raise self._error("get", key, error) from error
        raise AssertionError("unreachable")

    def head(self, key: str) -> StoreObject | None:
        """Returns what is known of an object; None where there is none."""
        try:
            found = self._client.head_object(**self._where(key))
        except FAILURES as error:
            if http_status(error) == 404:
                return None
            raise self._error("look at", key, error) from error
        version = found.get("VersionId")
        storage_class = found.get("StorageClass", "STANDARD")  # told of all others
        return StoreObject(key, found["ContentLength"], found["LastModified"], version, storage_class)

    def check(self, key: str, size: int | None, sha256: str) -> None:
        """Compares the object's size, and the SHA-256 that the server has computed of it. Reads the object
        where the server has none: it keeps none, or the object was uploaded without."""
        place = f"{self.url}/{key}"
        found = self._told(key)
        check_size(found["ContentLength"], size, place)
        if (kept := found.get("ChecksumSHA256")) is None:
            check_bytes(self.get_bytes(key, size), sha256, place)
        elif kept != _in_base64(sha256):
            raise Corrupt("check", place, "it was replaced: the store has another SHA-256 of it")

    def move(self, key: str, size: int, sha256: str, storage_class: str) -> bool:
        """Copies the object onto itself, unless it is in that class: three requests, or one. The copy is
        held against the SHA-256 that the server has computed of it, or against the MD5 that is its ETag."""
        place = f"{self.url}/{key}"
        before = self._told(key)
        check_size(before["ContentLength"], size, place)
        if before.get("StorageClass", "STANDARD") == storage_class:
            with suppress(Cold):  # of what is cold, a server without checksums tells no more than the size
                self._sum_of(key, before, sha256)
            return False
        if not (standing := _standing(before)).is_readable:
            raise Cold("move", place, f"it is in {standing.storage_class}", THAW)
        kept = self._sum_of(key, before, sha256)
        where, options = self._where(key), self._locks_of(key, before)
        options |= {"StorageClass": storage_class, "ChecksumAlgorithm": "SHA256"}
        options["CopySourceIfMatch"] = before["ETag"]
        with self._failing("move", key):
            self._client.copy_object(**where, CopySource=where, **options)
        after = self._told(key)
        check_size(after["ContentLength"], size, place)
        if self._kept(after) not in kept:
            raise Corrupt("move", place, "the copy has another checksum than the object that was copied")
        if after.get("StorageClass", "STANDARD") != storage_class:
            what = f"the server has left it in {after.get('StorageClass', 'STANDARD')}"
            raise StoreError("move", place, what, "Leave out the storage classes that this server ignores.")
        return True

    def _locks_of(self, key: str, told: dict[str, Any]) -> dict[str, Any]:
        """Returns the lock and the legal hold of an object, for its copy. What S3 has not told is asked for
        where files are locked: it does not tell those who lack the right to see it."""
        options: dict[str, Any] = {}
        if self._lock is not None and "ObjectLockMode" not in told:
            found = self._asked(key, "Retention")
            told = {**told, **{f"ObjectLock{name}": it for name, it in found.items()}}
        if self._lock is not None and "ObjectLockLegalHoldStatus" not in told:
            told = {**told, "ObjectLockLegalHoldStatus": self._asked(key, "LegalHold").get("Status")}
        until = told.get("ObjectLockRetainUntilDate")
        if until is not None and until > datetime.now(UTC):  # S3 takes no lock that has ended
            options |= {name: told[name] for name in ("ObjectLockMode", "ObjectLockRetainUntilDate")}
        if told.get("ObjectLockLegalHoldStatus") == "ON":
            options["ObjectLockLegalHoldStatus"] = "ON"
        return options

    def _asked(self, key: str, what: Literal["Retention", "LegalHold"]) -> dict[str, Any]:
        """Returns the retention or the legal hold of an object; empty where it has none. Raises Denied."""
        ask = {
            "Retention": self._client.get_object_retention,
            "LegalHold": self._client.get_object_legal_hold,
        }
        try:
            found: dict[str, Any] = ask[what](**self._where(key)).get(what, {})
        except FAILURES as error:
            if http_status(error) in (400, 404, 501):  # the object, the bucket or the server has none
                return {}
            failed = self._error("move", key, error)
            if isinstance(failed, Denied):
                why = "its lock can't be seen, and would be lost"
                raise Denied("move", failed.place, why, f"Grant s3:GetObject{what}.") from error
            raise failed from error
        return found

    def _told(self, key: str) -> dict[str, Any]:
        with self._failing("look at", key):
            found: dict[str, Any] = self._client.head_object(**self._where(key), ChecksumMode="ENABLED")
        return found

    @staticmethod
    def _kept(told: dict[str, Any]) -> str | None:
        """Returns the checksum of a whole object, as the server tells it; None where it tells none."""
        found: str | None = told.get("ChecksumSHA256") or told.get("ETag")
        return found

    def _sum_of(self, key: str, told: dict[str, Any], sha256: str) -> set[str]:
        """Returns the checksums of which a copy of an object must have one. Reads an object of which the
        server keeps no SHA-256. Raises Corrupt where it is not what was put there, and StoreError where
        nothing would tell of the copy."""
        place, kept = f"{self.url}/{key}", told.get("ChecksumSHA256")
        if kept is not None:
            if kept != _in_base64(sha256):
                raise Corrupt("move", place, "it was replaced: the store has another SHA-256 of it")
            return {kept}
        data = self.get_bytes(key, told["ContentLength"])
        check_bytes(data, sha256, place)
        tag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        if told.get("ETag") != tag:
            what = "the server tells no checksum of it, with which a copy could be compared"
            raise StoreError("move", place, what, "Leave out the storage classes for this server.")
        return {tag, _in_base64(sha256)}

    def standing(self, key: str) -> Standing:
        """Returns how an object lies, by one request."""
        return _standing(self._told(key))

    def thaw(self, key: str, days: int | None, tier: Tier) -> None:
        """Asks for an object to be readable for so many days, or for good, unless that is under way."""
        request: dict[str, Any] = {"GlacierJobParameters": {"Tier": tier.capitalize()}}
        request |= {} if days is None else {"Days": days}
        try:
            self._client.restore_object(**self._where(key), RestoreRequest=request)
        except FAILURES as error:
            if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") == _UNDER_WAY:
                return
            raise self._error("thaw", key, error) from error

    def lifecycle(self) -> Sequence[LifecycleRule]:
        """Returns what the bucket's lifecycle rules do to objects below the prefix. A rule for tags is none
        for ours."""
        try:
            found = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket)
        except FAILURES as error:
            if http_status(error) in (400, 404, 405, 501):  # without rules, or a server that has none
                return ()
            raise self._error("ask for the lifecycle rules of", "", error) from error
        return [it for rule in found["Rules"] for it in _lifecycle_rules(rule, self._prefix)]

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoreObject]:
        """Yields the objects whose keys begin with `prefix` and come after the key `after`, sorted by key."""
        where = {"StartAfter": self._prefix + after} if after else {}
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix, **where
        )
        with self._failing("list", prefix):
            found = [
                StoreObject(item["Key"].removeprefix(self._prefix), item["Size"], item["LastModified"])
                for page in pages
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")  # a folder that a console made
                and item["Key"] > self._prefix + after  # some servers that speak S3 ignore StartAfter
            ]
        # S3 lists in the order of keys; not every server that speaks S3 does.
        yield from sorted(found, key=lambda item: item.key)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes objects, up to a thousand a request. Absent ones are no error."""
        waiting = iter(keys)
        while batch := list(islice(waiting, _DELETE_BATCH)):
            names = [{"Key": self._where(key)["Key"]} for key in batch]
            with self._failing("delete", batch[0]):
                reply = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": names, "Quiet": True}
                )
            refused = [item for item in reply.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
            if refused:
                key = refused[0].get("Key", "").removeprefix(self._prefix)
                raise self._error("delete", key, ClientError({"Error": refused[0]}, "DeleteObjects"))

    def versioning(self) -> Versioning:
        """Returns how the bucket is configured, as far as we may ask."""
        lock = None if self._lock is None else f"{self._lock.mode}, {self._lock.days} days"
        try:
            status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
            return Versioning(status == "Enabled", self._has_locks(), lock, _NO_LOCKS)
        except FAILURES:  # a server without versions, or credentials without the right to ask
            return Versioning(has_locks=None, lock=lock, fault=_UNASKED)

    def older_versions(self, prefix: str) -> Sequence[OlderVersions]:
        """Returns the older versions, where versioning is on or was. Asks for the locks of each version, if
        the bucket has any."""
        place = f"{self.url}/{prefix}"
        try:
            if "Status" not in self._client.get_bucket_versioning(Bucket=self._bucket):
                return []
            where = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
            pages = self._client.get_paginator("list_object_versions").paginate(**where)
            old = [it for page in pages for it in page.get("Versions", ()) if not it["IsLatest"]]
            ends = [self._locked_until(it) for it in old] if old and self._has_locks() else []
        except FAILURES as error:
            if is_unsupported(error):
                return []
            return [OlderVersions(place, unknown=str(self._error("list the versions below", prefix, error)))]
        return [OlderVersions(place, len(old), max((it for it in ends if it is not None), default=None))]

    def _has_locks(self) -> bool:
        try:
            self._client.get_object_lock_configuration(Bucket=self._bucket)
        except FAILURES as error:
            if http_status(error) == 404:
                return False
            raise
        return True

    def _locked_until(self, version: dict[str, Any]) -> datetime | None:
        where = {"Key": version["Key"], "VersionId": version["VersionId"]}
        until: datetime | None = self._client.head_object(Bucket=self._bucket, **where).get(
            "ObjectLockRetainUntilDate"
        )
        return until

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
        return store_error(operation, f"{self.url}/{key}", error)

    @contextmanager
    def _failing(self, operation: str, key: str) -> Iterator[None]:
        """Raises what the client raises in the block as an error of the store."""
        try:
            yield
        except FAILURES as error:
            raise self._error(operation, key, error) from error

    def _refuses_overwrite(self, key: str) -> bool:
        try:
            self._client.put_object(**self._where(key), Body=b"overwritten", IfNoneMatch="*")
        except FAILURES as error:
            if is_unsupported(error) or http_status(error) == 412:
                return http_status(error) == 412
            raise self._error("put", key, error) from error
        return False


def _standing(told: dict[str, Any]) -> Standing:
    """Returns how an object lies, by what the server tells of it."""
    named, tier, thawed = (
        told.get("StorageClass", "STANDARD"),
        told.get("ArchiveStatus"),
        told.get("Restore", ""),
    )
    is_thawing = 'ongoing-request="true"' in thawed
    if tier is not None:  # of INTELLIGENT_TIERING: it is gone once the object can be read
        return Standing(tier, is_readable=False, is_thawing=is_thawing)
    return Standing(named, named not in COLD or bool(thawed and not is_thawing), is_thawing)


def _lifecycle_rules(rule: dict[str, Any], prefix: str) -> Iterator[LifecycleRule]:
    """Yields what a rule of the bucket does to objects below a prefix; not to older versions of them."""
    given = rule.get("Filter", {})
    where = given.get("And", given)
    named = where.get("Prefix", rule.get("Prefix", ""))
    is_near = named.startswith(prefix) or prefix.startswith(named)
    if rule["Status"] == "Enabled" and is_near and not (where.get("Tag") or where.get("Tags")):
        goes = [None] if rule.get("Expiration", {}).keys() & {"Days", "Date"} else []
        for there in (*goes, *(it["StorageClass"] for it in rule.get("Transitions", ()))):
            yield LifecycleRule(rule.get("ID", "without a name"), named[len(prefix) :], there)


def _in_base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _without_body_if_refused(response_dict: dict[str, Any], **_: object) -> None:
    """Removes the body of a refusal that names the object's checksum: botocore takes it for the object's and
    fails."""
    if response_dict["status_code"] >= 300 and not isinstance(response_dict["body"], bytes):
        response_dict["body"] = b""
