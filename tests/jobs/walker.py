"""Walks all that is in a store and a database, in plain Python, and tells where a text stands."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import bson
import pyarrow.parquet as pq
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.database import Database

Document = dict[str, Any]
_CODEC: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def texts(value: Any) -> Iterator[str]:
    """All strings in a value, and those in what is packed in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(key)
            yield from texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
        for unpack in (zlib.decompress, gzip.decompress):
            try:
                yield unpack(value).decode("latin-1")
            except (zlib.error, OSError, EOFError):
                continue


def in_files(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text: in their bytes, or in what these decode to."""
    return [str(it.relative_to(folder)) for it in folder.rglob("*") if it.is_file() and _holds(it, text)]


def _holds(path: Path, text: str) -> bool:
    data = path.read_bytes()
    if text.encode() in data or text in path.name:
        return True
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
        return any(text.encode().decode("latin-1") in it or text in it for row in rows for it in texts(row))
    if path.suffix == ".json":
        return any(text in it for it in texts(json.loads(data)))
    return path.suffix == ".gz" and text.encode() in gzip.decompress(data)


def in_database(database: Database[Document], text: str) -> list[str]:
    """The collections in which a text stands."""
    return [name for name in sorted(database.list_collection_names()) if _is_up_to_date(database, name, text)]


def _is_up_to_date(database: Database[Document], name: str, text: str) -> bool:
    found = database.get_collection(name, codec_options=_CODEC).find_raw_batches()
    documents = [it for some in found for it in bson.decode_all(cast(bytes, some), _CODEC)]
    return any(text in it for document in documents for it in texts(document))
