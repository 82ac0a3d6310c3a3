"""Stores of offline archives: a module for each kind of store, named after the scheme of its URLs."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from urllib.parse import urlsplit

from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.stores.encrypted import EncryptedStore, EncryptionKeys
from bucketwise.config.checks.locations import url_faults
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import Store


def open_store(settings: Store) -> EncryptedStore:
    """Returns the store at a URL, without connecting to it. Raises UsageError where no store has such a URL.

    Only the module of its kind is imported: a client such as boto3 takes long."""
    for fault in url_faults(settings.url):
        raise UsageError(f"store.url = {settings.url!r}: {fault.message}; {fault.remedy}")
    module = import_module(f"{__name__}.{urlsplit(settings.url).scheme}")
    store: ObjectStore = module.open_store(settings)
    return EncryptedStore(store, partial(EncryptionKeys.of, settings))
