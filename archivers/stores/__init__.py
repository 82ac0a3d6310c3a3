"""Where offline archives lie: a directory, or an S3 bucket."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.errors import UsageError
from bucketwise.config.tables import Store


def open_store(settings: Store) -> ObjectStore:
    """Returns the store at `url`, without connecting to it. Raises UsageError where it is no s3 or file
    URL."""
    url = urlsplit(settings.url)
    if url.scheme == "file" and url.netloc in ("", "localhost") and url.path.strip("/"):
        return FileStore(Path(unquote(url.path)))
    if url.scheme == "s3" and url.netloc and not (url.query or url.fragment):
        from bucketwise.archivers.stores.s3 import S3Store  # boto3 takes long to import

        return S3Store(
            url.netloc,
            url.path.strip("/"),
            endpoint_url=settings.endpoint_url,
            region=settings.region,
            lock=settings.object_lock,
        )
    raise UsageError(
        f"store.url = {settings.url!r} is not a supported store URL. Use s3://bucket/prefix or file:///absolute/directory."
    )
