"""A store in an S3 bucket, or in one of a server that speaks S3."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from boto3.s3.transfer import TransferConfig
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from archivers.stores.base import (
    AlreadyExists,
    Capabilities,
    NotFound,
    OutcomeUnknown,
    Rights,
    StoreError,
    StoreObject,
    checked_key,
    local_errors,
    probe_store,
)
from archivers.stores.s3_errors import (
    FAILURES,
    http_status,
    is_definite,
    is_gone,
    is_unsupported,
    may_still_happen,
    store_error,
)

_RIGHTS = Rights("s3:PutObject", "s3:GetObject", "s3:ListBucket", "s3:DeleteObject")
_DELETE_BATCH = 1000  # what S3 takes in one request
_CHUNK = 1 << 20


class S3Store:
    """Credentials come from boto3's own chain. Safe to use from several threads.

    `attempts` bounds the tries of one request, `timeout` (seconds) the wait for a connection or for bytes.
    Files of `multipart_threshold` bytes or more go up in parts of that size.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        attempts: int = 5,
        timeout: float = 30.0,
        multipart_threshold: int = 16 << 20,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._attempts = attempts
        self._transfer = TransferConfig(
            multipart_threshold=multipart_threshold,
            multipart_chunksize=multipart_threshold,
            max_concurrency=4,
        )
        self._knows_conditions = True
        config = Config(
            connect_timeout=timeout,
            read_timeout=timeout,
            retries={"mode": "standard", "total_max_attempts": attempts},
            s3={"addressing_style": "path" if endpoint_url else "auto"},
            request_checksum_calculation="when_supported",
            response_checksum_validation="when_supported",
        )
        try:
            self._client = Session().client(
                "s3", endpoint_url=endpoint_url, region_name=region, config=config
            )
        except (BotoCoreError, ValueError) as error:
            mend = "Look at store.endpoint_url, store.region and the AWS settings of this user."
            raise StoreError("open", self.url, str(error), mend) from error
        self._client.meta.events.register("before-parse.s3.GetObject", _without_body_if_refused)

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put_file(self, key: str, path: Path) -> None:
        where = self._where(key)
        with local_errors(f"read {path} to put", f"{self.url}/{key}"):
            try:
                with path.open("rb") as source:
                    self._client.upload_fileobj(source, **where, Config=self._transfer)
            except FAILURES as error:
                with path.open("rb") as source:
                    self._settle(key, error, hashlib.file_digest(source, "sha256").digest())

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        # The look comes first for servers that ignore the condition.
        if if_absent and self.head(key) is not None:
            raise AlreadyExists("put", f"{self.url}/{key}", "it is there already")
        try:
            if if_absent and self._knows_conditions:
                self._client.put_object(**self._where(key), Body=data, IfNoneMatch="*")
            else:
                self._client.put_object(**self._where(key), Body=data)
        except FAILURES as error:
            if if_absent and self._knows_conditions and is_unsupported(error):
                self._knows_conditions = False
                self.put_bytes(key, data, if_absent=True)
            else:
                self._settle(key, error, hashlib.sha256(data).digest())

    def get_file(self, key: str, path: Path) -> None:
        with local_errors(f"write {path} to get", f"{self.url}/{key}"):
            try:
                with path.open("wb") as sink:
                    self._download(key, sink)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def get_bytes(self, key: str) -> bytes:
        sink = BytesIO()
        self._download(key, sink)
        return sink.getvalue()

    def head(self, key: str) -> StoreObject | None:
        try:
            found = self._client.head_object(**self._where(key))
        except FAILURES as error:
            if http_status(error) == 404:
                return None
            raise self._error("look at", key, error) from error
        return StoreObject(key, found["ContentLength"], found["LastModified"])

    def list(self, prefix: str = "") -> Iterator[StoreObject]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        try:
            found = [
                StoreObject(item["Key"].removeprefix(self._prefix), item["Size"], item["LastModified"])
                for page in pages
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")  # a folder that a console made
            ]
        except FAILURES as error:
            raise self._error("list", prefix, error) from error
        # S3 lists in order of keys; not everything that speaks S3 does.
        yield from sorted(found, key=lambda item: item.key)

    def delete(self, keys: Iterable[str]) -> None:
        waiting = iter(keys)
        while batch := list(islice(waiting, _DELETE_BATCH)):
            names = [{"Key": self._where(key)["Key"]} for key in batch]
            try:
                reply = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": names, "Quiet": True}
                )
            except FAILURES as error:
                raise self._error("delete", batch[0], error) from error
            refused = [item for item in reply.get("Errors", ()) if item.get("Code") != "NoSuchKey"]
            if refused:
                key = refused[0].get("Key", "").removeprefix(self._prefix)
                raise self._error("delete", key, ClientError({"Error": refused[0]}, "DeleteObjects"))

    def clean_temporaries(self, before: datetime) -> int:
        try:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            found = [item for page in pages for item in page.get("Uploads", ()) if item["Initiated"] < before]
            for item in found:
                self._client.abort_multipart_upload(
                    Bucket=self._bucket, Key=item["Key"], UploadId=item["UploadId"]
                )
        except FAILURES as error:
            if is_gone(error):  # finished since; or there was none, as rclone's server says it
                return 0
            raise self._error("clean", "", error) from error
        return len(found)

    def probe(self) -> Capabilities:
        return probe_store(self, _RIGHTS, self._refuses_overwrite)

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + checked_key(key, self.url)}

    def _error(self, operation: str, key: str, error: Exception) -> StoreError:
        return store_error(operation, f"{self.url}/{key}", error)

    def _download(self, key: str, sink: BinaryIO) -> None:
        """Write the object to `sink`, from its start again where the reply breaks off or is damaged."""
        for attempt in range(1, self._attempts + 1):
            sink.seek(0)
            sink.truncate()
            try:
                reply = self._client.get_object(**self._where(key))
            except FAILURES as error:  # tried as often as may be, inside
                raise self._error("get", key, error) from error
            try:
                for chunk in reply["Body"].iter_chunks(_CHUNK):
                    sink.write(chunk)
                return
            except FAILURES as error:
                if attempt == self._attempts:
                    raise self._error("get", key, error) from error

    def _settle(self, key: str, error: Exception, sha256: bytes) -> None:
        """After a put that gave an error: return if it happened all the same, raise what is true if not."""
        failed = self._error("put", key, error)
        if is_definite(error):
            raise failed from error
        try:
            if self._holds(key, sha256):
                return
        except (StoreError, OSError) as unread:
            reason = f"{failed.reason}. Reading it back failed too: {unread}"
            mend = "Whether it was written is unknown. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, reason, mend) from error
        if may_still_happen(error):
            mend = "It is not there yet, and may come. It is safe to run again."
            raise OutcomeUnknown("put", failed.place, failed.reason, mend) from error
        raise failed from error

    def _holds(self, key: str, sha256: bytes) -> bool:
        with TemporaryFile() as found:
            try:
                self._download(key, found)
            except NotFound:
                return False
            found.seek(0)
            return hashlib.file_digest(found, "sha256").digest() == sha256

    def _refuses_overwrite(self, key: str) -> bool:
        try:
            self._client.put_object(**self._where(key), Body=b"overwritten", IfNoneMatch="*")
        except FAILURES as error:
            if is_unsupported(error) or http_status(error) == 412:
                return http_status(error) == 412
            raise self._error("put", key, error) from error
        return False


def _without_body_if_refused(response_dict: dict[str, Any], **_: object) -> None:
    """Where a refusal names the object's checksum, botocore takes its body for the object's and fails."""
    if response_dict["status_code"] >= 300 and not isinstance(response_dict["body"], bytes):
        response_dict["body"] = b""
