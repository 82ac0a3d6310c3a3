"""A store in a container of Azure Blob Storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from obstore.store import AzureStore

from bucketwise.archivers.stores.base import ObjectStore, Rights
from bucketwise.archivers.stores.cloud_failures import Failure
from bucketwise.archivers.stores.cloud_locks import CloudLocks, Container, Lock, Older, require
from bucketwise.archivers.stores.clouds import Cloud, CloudStore
from bucketwise.config.tables import StorePlace

_ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_KEY = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_KEY",
)
_CLIENT = ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID")
_TENANT = ("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID")
_SECRET = ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET")
_ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
#: Names of the az command line, and what obstore calls them.
_ALSO = {"AZURE_STORAGE_ACCOUNT": "account_name", "AZURE_STORAGE_KEY": "account_key"}
_API = "2023-11-03"  # the version of the API that obstore speaks
_MODES = {"governance": "Unlocked", "compliance": "Locked"}


def _named(names: tuple[str, ...]) -> str:
    """Returns the first of these variables that is set; empty where none is."""
    return next((value for it in names if (value := os.environ.get(it))), "")


def _connect(container: str, endpoint: str | None, options: dict[str, Any]) -> AzureStore:
    config: Any = {key: os.environ[name] for name, key in _ALSO.items() if os.environ.get(name)}
    if endpoint is not None:
        config["endpoint"] = endpoint
    sends_more = "default_headers" in options["client_options"]
    if sends_more and _named(_KEY) and not os.environ.get("AZURE_STORAGE_TOKEN"):
        options = options | {"credential_provider": _signature}
    return AzureStore(container, config=config, **options)


def _signature() -> dict[str, Any]:
    """Returns a shared access signature by the account's key. obstore signs requests by the key without the
    headers that it is told to send with each, and Azure refuses these; a signature covers no headers."""
    from azure.storage.blob import generate_account_sas

    ends = datetime.now(UTC) + timedelta(hours=2)
    token = generate_account_sas(
        _named(_ACCOUNT), _named(_KEY), resource_types="o", permission="rwci", expiry=ends, services="b"
    )
    return {"sas_token": token, "expires_at": ends - timedelta(hours=1)}


def _lock_headers(lock: Lock) -> dict[str, str]:
    return {
        "x-ms-immutability-policy-until-date": format_datetime(lock.until.astimezone(UTC), usegmt=True),
        "x-ms-immutability-policy-mode": _MODES[lock.mode],
    }


class BearerToken:
    """A token of the environment, as Azure's client takes one."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *_scopes: str, **_: Any) -> Any:
        """Returns the token, of which nothing tells when it ends."""
        from azure.core.credentials import AccessToken

        return AccessToken(self._token, int((datetime.now(UTC) + timedelta(hours=1)).timestamp()))


def _credential() -> Any:
    """Returns who asks, for Azure's client: the same that obstore finds, in the same order."""
    from azure import identity

    client, tenant, file = _named(_CLIENT), _named(_TENANT), os.environ.get("AZURE_FEDERATED_TOKEN_FILE")
    if token := os.environ.get("AZURE_STORAGE_TOKEN"):
        return BearerToken(token)
    if key := _named(_KEY):
        return {"account_name": _named(_ACCOUNT), "account_key": key}
    if client and tenant and file:
        return identity.WorkloadIdentityCredential(tenant_id=tenant, client_id=client, token_file_path=file)
    if client and tenant and (secret := _named(_SECRET)):
        return identity.ClientSecretCredential(tenant, client, secret)
    if signature := _named(_SAS):
        return signature
    if os.environ.get("AZURE_USE_AZURE_CLI", "").lower() in ("true", "1", "yes", "on"):
        return identity.AzureCliCredential()
    return identity.ManagedIdentityCredential(client_id=client or None)


class AzureInquiry:
    """What Azure's own client is told of a container."""

    def __init__(self, container: str, endpoint: str | None, timeout: float) -> None:
        from azure.storage.blob import ContainerClient

        endpoint = endpoint or _named(_ENDPOINT) or f"https://{_named(_ACCOUNT)}.blob.core.windows.net"
        with _failures():
            credential = _credential()
            if endpoint.startswith("http://") and hasattr(credential, "get_token"):
                message = "Azure's client sends a token to no http:// address"
                raise Failure(ValueError(message), message=message, is_of_credentials=True)
            self._client = ContainerClient(
                endpoint,
                container,
                credential=credential,
                api_version=_API,
                retry_total=0,
                connection_timeout=timeout,
                read_timeout=timeout,
            )

    def container(self) -> Container:
        """Returns whether it has immutability for versions. What is a setting of the account, as versions
        are without that, is not told."""
        with _failures():
            has_locks = bool(
                self._client.get_container_properties().immutable_storage_with_versioning_enabled
            )
        return Container(True if has_locks else None, has_locks)

    def lock(self, name: str) -> Lock | None:
        """Returns the immutability policy of a blob; None where it has none."""
        with _failures():
            return _lock_of(self._client.get_blob_client(name).get_blob_properties())

    def older(self, prefix: str) -> Iterator[Older]:
        """Yields versions that are not current, and snapshots, with what is soft-deleted."""
        more = ["versions", "snapshots", "deleted", "immutabilitypolicy"]
        with _failures():
            for it in self._client.list_blobs(name_starts_with=prefix, include=more):
                is_older = it.snapshot or (it.version_id and not it.is_current_version)
                if is_older or it.deleted:
                    lock = _lock_of(it)
                    yield Older(None if lock is None else lock.until, bool(it.deleted))


def _lock_of(told: Any) -> Lock | None:
    """Returns the policy in the properties of a blob; None where there is none."""
    policy = told.immutability_policy
    modes = {it.lower(): mode for mode, it in _MODES.items()}
    mode = modes.get(str(policy.policy_mode or "").lower())
    return Lock(mode, policy.expiry_time) if mode is not None and policy.expiry_time is not None else None


@contextmanager
def _failures() -> Iterator[None]:
    """Raises what Azure's client raises in the block as Failure."""
    from azure.core import exceptions as azure

    try:
        yield
    except azure.ServiceRequestError as error:
        raise Failure(error, wire="Connect") from error
    except azure.ServiceResponseError as error:
        is_slow = isinstance(error, azure.ServiceResponseTimeoutError)
        raise Failure(error, wire="Timeout" if is_slow else "Request") from error
    except azure.HttpResponseError as error:
        code = getattr(error, "error_code", None) or ""
        message = (error.reason or "") if code else "no valid credentials were found"
        is_unknown = isinstance(error, azure.ClientAuthenticationError) and error.status_code is None
        raise Failure(
            error, error.status_code, getattr(code, "value", code), message, is_of_credentials=is_unknown
        ) from error
    except (azure.AzureError, ValueError) as error:  # no text of it: a secret may be in it
        raise Failure(error, message=type(error).__name__, is_of_credentials=True) from error


AZURE = Cloud(
    container="container",
    extra="azure",
    connect=_connect,
    locks=CloudLocks(
        headers=_lock_headers,
        inquire=AzureInquiry,
        modes=_MODES,
        right="blobs/immutableStorage/runAsSuperUser/action, or `i` in a signature",
        absent="the container has no immutability for versions",
        remedy="Enable version-level immutability for it, in an account with versioning.",
        unversioned="",  # without versions, there are no locks
    ),
    rights=Rights("blobs/write", "blobs/read", "list (blobs/read of the container)", "blobs/delete"),
    credentials="Set AZURE_STORAGE_ACCOUNT_NAME, and a key (AZURE_STORAGE_ACCOUNT_KEY), a token "
    "(AZURE_STORAGE_SAS_TOKEN) or a principal (AZURE_CLIENT_ID …), or use a managed identity.",
    sent=("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_TOKEN"),
    absent=("ContainerNotFound",),
    taken=("BlobAlreadyExists", "ConditionNotMet"),
    unknown=(
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
        "NoAuthenticationInformation",
    ),
    remedies={
        "BlobArchived": "Move it to another access tier, and keep lifecycle rules from archiving it.",
        "BlobImmutableDueToPolicy": "An immutability policy keeps it. Run again after its end.",
        "ContainerBeingDeleted": "Create the container anew once it is gone, or correct store.url.",
        "ServerBusy": "The store asks for fewer requests. Run again later.",
        "InvalidResourceName": "Correct store.url.",
    },
    page=5000,
    lists_from=False,  # its API has no such thing that every kind of account knows
    deletes_many=True,
)


def open_store(settings: StorePlace) -> ObjectStore:
    """Returns the container, or the prefix in it, at the URL of the settings. Raises ImportError where what
    locks files is missing, and they are to be locked."""
    if settings.object_lock is not None:
        require("azure.storage.blob", "azure.identity")
    return CloudStore(AZURE, settings)
