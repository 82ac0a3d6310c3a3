"""A store in a bucket of Google Cloud Storage."""

from __future__ import annotations

from typing import Any

from obstore.store import GCSStore

from bucketwise.archivers.stores.base import ObjectStore, Rights
from bucketwise.archivers.stores.clouds import Cloud, CloudStore
from bucketwise.config.tables import StorePlace


def _connect(bucket: str, endpoint: str | None, options: dict[str, Any]) -> GCSStore:
    config: Any = {} if endpoint is None else {"base_url": endpoint}
    return GCSStore(bucket, config=config, **options)


GOOGLE = Cloud(
    container="bucket",
    connect=_connect,
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
        "RetentionPolicyNotMet": "A retention policy of the bucket keeps it. Run again after its end.",
        "ObjectUnderActiveHold": "A hold of the bucket keeps it. Run again once it is released.",
        "SlowDown": "The store asks for fewer requests. Run again later.",
        "InvalidBucketName": "Correct store.url.",
    },
    page=1000,
    lists_from=True,
    deletes_many=False,
)


def open_store(settings: StorePlace) -> ObjectStore:
    """Returns the bucket, or the prefix in it, at the URL of the settings."""
    return CloudStore(GOOGLE, settings)
