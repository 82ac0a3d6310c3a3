"""What writers noted, put in order and told to the checker."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.buckets import oracle
from tests.faults.truth import Row, Truth, Unit

Key = tuple[Any, str | None]  # an `_id`, and which of the documents that had it


@dataclass
class Written:
    """`ended`: buckets that were replaced or deleted while they were live."""

    truth: Truth
    versions: dict[Key, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    overflow: dict[Key, dict[Any, list[bytes | None]]] = field(default_factory=lambda: defaultdict(dict))
    ended: dict[Key, str] = field(default_factory=dict)
    unknown: set[Any] = field(default_factory=set)  # `_id`s: a writer was killed while it changed them
    acknowledged: int = 0

    def __post_init__(self) -> None:
        """Begins with what the checker knows."""
        for unit in self.truth.units.values():
            key = self._add(unit[0])
            for extra in unit[1:]:
                self.overflow[key][oracle.decoded(extra)["_id"]] = [extra]

    def read(self, notes: Path) -> None:
        tried = None
        owner: dict[Any, Key] = {}
        for line in notes.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # cut off: its answer was not seen
            told = json.loads(line)
            if told["what"] == "try":
                tried = told["id"]
                continue
            tried = None
            self.acknowledged += 1
            raw = {key: base64.b64decode(told[key]) for key in ("new", "old", "extra") if key in told}
            self._note(told["what"], raw, owner)
        if tried is not None:
            self.unknown.add(tried)

    def _note(self, what: str, raw: dict[str, bytes], owner: dict[Any, Key]) -> None:
        if "old" in raw:
            self.ended[self._add(raw["old"])] = what
        key = self._add(raw["new"]) if "new" in raw else None
        if what == "unflagged" and key is not None:
            for states in self.overflow[key].values():
                states.append(None)
        if "extra" in raw:
            name = oracle.decoded(raw["extra"])["_id"]
            key = owner.setdefault(name, key) if key is not None else owner[name]
            self.overflow[key].setdefault(name, []).append(raw["extra"])

    def _add(self, main: bytes) -> Key:
        document = oracle.decoded(main)
        key = document["_id"], document.get("g")
        self.versions[key][document.get("v", 0)] = main
        return key

    def found(self, mains: Sequence[bytes]) -> None:
        """What is there of buckets that a killed writer was about to change: either outcome is right."""
        here = {self._add(main) for main in mains if oracle.decoded(main)["_id"] in self.unknown}
        for key in self.versions:
            if key[0] in self.unknown and key not in here:
                self.ended.setdefault(key, "deleted")

    def tell(self) -> None:
        """The last version of each bucket must be there. One that was deleted may be, in the version that it
        was copied in, since the archive had it before; so may one that was replaced, and deleted then."""
        units = {key: self._last(key) for key in self.versions if key not in self.ended}
        written = Counter(self.truth.rows_of(units.values()))
        spare = Counter(self.truth.rows_of(self.truth.live())) | self.truth.archived()
        spare -= written
        online = self.truth.policy.archive is not None and self.truth.policy.archive.to == "online"
        mains = {unit[0] for unit in self.truth.copies()} if online else set()
        deleted = {identity for (identity, _), what in self.ended.items() if what == "deleted"}
        for key in [key for key in self.ended if key[0] in deleted]:
            if unit := self._kept(key, spare, mains):
                spare -= Counter(self.truth.rows_of([unit]))
                units[key] = unit
        self.truth.units = units

    def last_versions(self) -> set[bytes]:
        """The documents of the buckets that nobody deleted or replaced."""
        return {self._last(key)[0] for key in self.versions if key not in self.ended}

    def _last(self, key: Key) -> Unit:
        main = self.versions[key][max(self.versions[key])]
        extras = self.overflow[key] if oracle.decoded(main).get("more") else {}
        return main, *(last for name in sorted(extras) if (last := extras[name][-1]) is not None)

    def _kept(self, key: Key, spare: Counter[Row], mains: set[bytes]) -> Unit | None:
        """A version whose readings are all there: of several one of `mains`, then the one with the most
        readings, then the newest. (No two readings have the same value.)"""
        best: tuple[bool, int, int] | None = None
        kept: Unit | None = None
        for version, main in self.versions[key].items():
            unit: Unit = (main,)
            if not self._is_in(unit, spare):
                continue
            extras = self.overflow[key] if oracle.decoded(main).get("more") else {}
            for name in sorted(extras):
                states = (it for it in reversed(extras[name]) if it is not None)
                unit = next(((*unit, it) for it in states if self._is_in((*unit, it), spare)), unit)
            rank = main in mains, sum(1 for _ in self.truth.rows_of([unit])), version
            if best is None or rank > best:
                best, kept = rank, unit
        return kept

    def _is_in(self, unit: Unit, spare: Counter[Row]) -> bool:
        rows = Counter(self.truth.rows_of([unit]))
        return bool(rows) and all(number <= spare[row] for row, number in rows.items())
