"""Hints from the names of fields. They only break ties: documents come first."""

from __future__ import annotations

import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


TIME = _set(
    "t d ts time times timestamp timestamps date datetime day hour minute at when instant epoch "
    "start started begin from first since end ended last until to stop"
)
#: Names of times when a document was written, not of a reading.
BOOKKEEPING = _set("created updated inserted modified received ingested expire expires expiry deleted")
START = _set("start started begin from first since min day hour date open opened")
END = _set("end ended last until to stop max close closed")
SERIES = _set(
    "id sensor device dev symbol sym ticker series station meter machine rig host hostname node channel tag "
    "source site location gateway gw metric name uuid asset plant"
)
COUNT = _set("n count num number size samples nsamples total length")
OFFSET = _set("tz offset tzoffset utcoffset timezone timezoneoffset zone localoffset")
FLAG = _set("has more extra extras overflow overflown outlier is")
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
