"""Sampled documents field by field, what the names of fields hint at, and notes on each key of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import bson
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.decimal128 import Decimal128
from bson.errors import InvalidBSON

from bucketwise.config.checks.names import field_fault


def words_of(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


TIME = words_of(
    "t d ts time times timestamp timestamps date datetime day hour minute at when instant epoch "
    "start started begin from first since end ended last until to stop"
)
#: Names of times when a document was written, not of a reading.
BOOKKEEPING = words_of("created updated inserted modified received ingested expire expires expiry deleted")
START = words_of("start started begin from first since min day hour date open opened")
END = words_of("end ended last until to stop max close closed")
SERIES = words_of(
    "id sensor device dev symbol sym ticker series station meter machine rig host hostname node channel tag "
    "source site location gateway gw metric name uuid asset plant"
)
#: What whole numbers may number, where nothing else tells series apart.
NUMBERED = words_of(
    "unit probe pump tank valve turbine inverter panel feeder line well box door gate kiosk house flat "
    "apartment building room zone vehicle truck car bus robot server interface serial sid imei eui mac nr"
)
COUNT = words_of("n count num number size samples nsamples total length")
OFFSET = words_of("tz offset tzoffset utcoffset timezone timezoneoffset zone localoffset")
FLAG = words_of("has more extra extras overflow overflown outlier is")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words(path: str) -> set[str]:
    """Returns the words of a field's name, in small letters: of its last part."""
    name = path.rpartition(".")[2]
    found = {it.lower() for it in _PARTS.findall(name)}
    found.add(name.lower().replace("_", ""))
    return found | {"id" for it in found if len(it) > 3 and it.endswith("id")}


def hints(path: str, wanted: frozenset[str]) -> bool:
    """Returns whether a field's name has one of these words."""
    return bool(words(path) & wanted)


_SHOWN = 5


@dataclass
class Notes:
    """Evidence and open questions for each key of a policy."""

    evidence: dict[str, list[str]] = field(default_factory=dict)
    questions: dict[str, list[str]] = field(default_factory=dict)

    def add_evidence(self, key: str, text: str) -> None:
        """Adds evidence."""
        self.evidence.setdefault(key, []).append(text)

    def add_question(self, key: str, text: str) -> None:
        """Adds a question."""
        self.questions.setdefault(key, []).append(text)

    def drop(self, key: str) -> None:
        """Removes all notes on a key."""
        self.evidence.pop(key, None)
        self.questions.pop(key, None)


def quoted(name: str) -> str:
    """Returns a name for a line of text: in quotes, with escapes for what could end the line."""
    text = json.dumps(name, ensure_ascii=False)
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def listed(names: list[str]) -> str:
    """Returns names for a line of text: the first few, and how many more there are."""
    shown = ", ".join(map(quoted, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


Document = dict[str, Any]
_CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="backslashreplace",
)
#: Fields that are read, and their depth.
_MAX_FIELDS, _MAX_DEPTH = 500, 6
#: Of a slot: a day has 86,400 seconds.
_MAX_DIGITS = 5
#: A slot's key as a clock shows its time.
CLOCK = re.compile("([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_GEOJSON = words_of(
    "Point LineString Polygon MultiPoint MultiLineString MultiPolygon GeometryCollection Feature "
    "FeatureCollection"
)
#: Fields of such a place; `properties` may hold anything.
_GEOJSON_PARTS = ("coordinates", "geometries", "geometry", "features")
_GEOJSON_OWN = (*_GEOJSON_PARTS, "type", "bbox", "crs")


@dataclass
class Fields:
    """Paths of fields, each with its value in every document; None where it is missing or null.

    `several`: arrays, and sub-documents whose keys are all numbers; what is inside them is no field.
    """

    documents: list[Document]
    single: dict[str, list[Any]] = field(default_factory=dict)
    several: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Fields:
        """Returns the fields of some documents, or of the sub-documents in an array."""
        fields = cls(list(documents))
        for number, document in enumerate(fields.documents):
            for path, value in _walk(document, "", 0):
                target = fields.several if isinstance(value, dict | list) else fields.single
                if path not in target:
                    if len(target) >= _MAX_FIELDS:
                        continue
                    target[path] = [None] * len(fields.documents)
                target[path][number] = value
        return fields

    def in_most(self, least: float = 1.0) -> dict[str, list[Any]]:
        """Returns the single fields that at least this share of the documents has."""
        enough = least * len(self.documents)
        return {path: it for path, it in self.single.items() if len(non_null(it)) >= enough}


def decoded(raw: Iterable[bytes]) -> list[Document]:
    """Returns documents as Python has them; one that can't be decoded is left out."""
    found = []
    for document in raw:
        try:
            found.append(bson.decode(document, _CODEC))
        except (InvalidBSON, OverflowError, ValueError):
            continue
    return found


def non_null(values: Iterable[Any]) -> list[Any]:
    """Returns the values that are neither missing nor null."""
    return [it for it in values if it is not None]


def is_number(value: Any) -> bool:
    """Returns whether a value is one of MongoDB's numbers."""
    return isinstance(value, int | float | Decimal128) and not isinstance(value, bool)


def as_float(value: Any) -> float:
    """Returns one of MongoDB's numbers as a float; a NaN that signals as one that doesn't."""
    return float(str(value).lower().replace("snan", "nan"))


def is_text(value: Any) -> bool:
    """Returns whether a value is a string, and no code."""
    return isinstance(value, str) and not isinstance(value, Code)


def is_whole(value: Any) -> bool:
    """Returns whether a value is a whole number."""
    return is_number(value) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def counted_from(values: Sequence[Any]) -> int | None:
    """Returns the number from which on values count one by one, time and again, as places do; None where they
    don't."""
    if not values or not all(map(is_whole, values)):
        return None
    begins = {values[0], *(after for before, after in pairwise(values) if after != before + 1)}
    return int(values[0]) if len(begins) == 1 and max(values) > values[0] else None


def has_slots(value: Any) -> bool:
    """Returns whether this is a sub-document whose keys are all numbers, or all times of a clock."""
    if not isinstance(value, dict) or not value:
        return False
    return all(it.isascii() and it.isdigit() and len(it) <= _MAX_DIGITS for it in value) or all(
        map(CLOCK.fullmatch, value)
    )


def _is_geojson(value: Document) -> bool:
    """Returns whether this is a place on a map. All that it says of itself is the same in all documents."""
    return value.get("type") in _GEOJSON and any(it in value for it in _GEOJSON_PARTS)


@lru_cache(10_000)
def _has_path(name: str) -> bool:
    """Returns whether a policy can name the field."""
    return "." not in name and name != "*" and field_fault(name) is None


def nameless(documents: Iterable[Document]) -> list[str]:
    """Returns the names of fields that no policy can name, of documents and of what lies in their arrays."""
    found = (name for it in documents for name in _nameless(it, 0))
    return sorted(dict.fromkeys(islice(found, _MAX_FIELDS)))


def _nameless(value: Any, depth: int) -> Iterator[str]:
    inner = value.values() if isinstance(value, dict) else value[:1] if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from (name for name in value if not _has_path(name))
    for it in inner if depth < _MAX_DEPTH else ():
        yield from _nameless(it, depth + 1)


def _walk(document: Document, parent: str, depth: int) -> Iterator[tuple[str, Any]]:
    is_place = bool(parent) and _is_geojson(document)
    for name, value in document.items():
        if not _has_path(name) or (is_place and name in _GEOJSON_OWN):
            continue
        path = f"{parent}{name}"
        if not isinstance(value, dict) or has_slots(value):
            yield path, value
        elif depth < _MAX_DEPTH:
            yield from _walk(value, f"{path}.", depth + 1)
