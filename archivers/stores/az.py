"""A store in a container of Azure Blob Storage."""

from __future__ import annotations

import os
from typing import Any

from obstore.store import AzureStore

from bucketwise.archivers.stores.base import ObjectStore, Rights
from bucketwise.archivers.stores.clouds import Cloud, CloudStore
from bucketwise.config.tables import StorePlace

#: Names of the az command line, and what obstore calls them.
_ALSO = {"AZURE_STORAGE_ACCOUNT": "account_name", "AZURE_STORAGE_KEY": "account_key"}


def _connect(container: str, endpoint: str | None, options: dict[str, Any]) -> AzureStore:
    config: Any = {key: os.environ[name] for name, key in _ALSO.items() if os.environ.get(name)}
    if endpoint is not None:
        config["endpoint"] = endpoint
    return AzureStore(container, config=config, **options)


AZURE = Cloud(
    container="container",
    connect=_connect,
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
    """Returns the container, or the prefix in it, at the URL of the settings."""
    return CloudStore(AZURE, settings)
