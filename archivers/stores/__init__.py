"""Stores of offline archives: a module for each kind of store, named after the scheme of its URLs."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from urllib.parse import urlsplit

from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.stores.copied import CopiedStore, Copy, Journal, NoJournal
from bucketwise.archivers.stores.encrypted import EncryptedStore, EncryptionKeys
from bucketwise.config.checks.locations import KINDS, url_faults
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import Store, StorePlace


def open_store(settings: Store, journal: Journal | None = None) -> EncryptedStore:
    """Returns the store that the settings describe, with its copies, without connecting to it. Raises
    UsageError where no store has such a URL. `journal`: of its copies; None: nothing is written.

    Copies hold what is encrypted as the store does, byte for byte. Only modules of their kinds are imported:
    a client such as boto3 takes long."""
    store = _opened(settings, "store.url")
    if settings.copies:
        opened = ((it, _opened(it, f"store.copies {it.name}, url")) for it in settings.copies)
        copies = [Copy(it.name, place, it.required, it.storage_class) for it, place in opened]
        store = CopiedStore(store, copies, NoJournal() if journal is None else journal)
    return EncryptedStore(store, partial(EncryptionKeys.of, settings))


def _opened(place: StorePlace, key: str) -> ObjectStore:
    for fault in url_faults(place.url):
        raise UsageError(f"{key} = {place.url!r}: {fault.message}; {fault.remedy}")
    kind = KINDS[urlsplit(place.url).scheme]
    try:
        module = import_module(f"{__name__}.{kind.scheme}")
        store: ObjectStore = module.open_store(place)
    except ImportError as error:
        install = f"Run: pip install 'bucketwise[{kind.extra}]'" if kind.extra else "Install bucketwise anew"
        raise UsageError(
            f"{key} = {place.url!r}: the client of {kind.name} is not installed here ({error}). {install}"
        ) from error
    return store
