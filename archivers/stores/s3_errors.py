"""What S3 and its client say of a failure, as errors of stores."""

from __future__ import annotations

import threading
from typing import Any

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

from bucketwise.archivers.stores.base import AlreadyExists, Cold, Corrupt, Denied, NotFound, StoreError

#: What the client raises.
FAILURES = (BotoCoreError, ClientError)

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
THAW = "Thaw it: `bucketwise thaw`."
_DENIED = {"AccessDenied", "AllAccessDisabled", "Forbidden", "403", "401"}


def http_status(error: Exception) -> int | None:
    """Returns the status with which the server answered, or None where it did not answer."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def is_definite(error: Exception) -> bool:
    """Returns whether the request certainly had no effect: its first attempt was refused.

    A later refusal does not show that: earlier attempts may have taken effect, and their replies been
    lost."""
    status = http_status(error)
    if status is None or not isinstance(error, ClientError):
        return _is_unsendable(error) or isinstance(
            error, ParamValidationError | NoCredentialsError | PartialCredentialsError
        )
    return 400 <= status < 500 and not error.response["ResponseMetadata"].get("RetryAttempts", 0)


class Tries(threading.local):
    """The tries of the request that a thread makes."""

    #: Whether the server may still carry one out, since it, or a gateway before it, was too slow to answer.
    may_still_happen = False

    def begin(self) -> None:
        """Begins with a new request."""
        self.may_still_happen = False

    def note(
        self,
        response_dict: dict[str, Any] | None = None,
        exception: Exception | None = None,
        **_: object,
    ) -> None:
        """Notes how a try ended, as botocore tells it."""
        is_late = response_dict is not None and response_dict["status_code"] == 504
        self.may_still_happen |= is_late or isinstance(exception, ReadTimeoutError)


def store_error(operation: str, place: str, error: Exception) -> StoreError:
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
    code, status = str(found.get("Code", "")), http_status(error)
    reason = f"{code}: {found.get('Message') or 'the server says no more'}"[:300]
    if code == "InvalidObjectState":
        return Cold(operation, place, "it has to be thawed before it can be read", THAW)
    if code in _REMEDIES:
        return StoreError(operation, place, reason, _REMEDIES[code])
    if code in _DENIED:
        return Denied(operation, place, reason, "Grant these credentials that right.")
    if status == 412:
        return AlreadyExists(operation, place, "it already exists")
    if code in ("NoSuchKey", "404"):
        return NotFound(operation, place, "no such object")
    return StoreError(operation, place, reason, _AGAIN if status and status >= 500 else "")


def is_unsupported(error: Exception) -> bool:
    """Returns whether the server does not know the request."""
    return http_status(error) == 501
