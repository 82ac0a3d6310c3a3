"""Fields that documents of all models have: series and values, in all ways that people write them."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from random import Random
from typing import Any

from bson import Decimal128, Int64, ObjectId

from tests.cases.clocks import some_day, some_zone
from tests.cases.oracle import NO_NUMBER, Row, Variant, Written


def put(document: Row, path: str, value: Any) -> None:
    """Sets the value of a dotted path."""
    *outer, last = path.split(".")
    for name in outer:
        document = document.setdefault(name, {})
    document[last] = value


def listed(names: list[str]) -> str:
    return json.dumps(names, ensure_ascii=False)


class Values:
    """A value field: how numbers are written, and what the policy says of it."""

    def __init__(self, random: Random, path: str, name: str, *, plain: bool = False) -> None:
        self._random, self.path, self.name = random, path, name
        self.table: list[str] = []
        self._kind = "plain" if plain else random.choice(["plain", "plain", "plain", "mixed", "text", "map"])
        if self._kind == "text":
            self._mark, self._unit = random.choice([".", ","]), random.choice(["", "°C", "kWh", "%"])
            self.table = ["text = true", f'decimal = "{self._mark}"']
            self.table += [f'unit = "{self._unit}"'] if self._unit else []
        if self._kind == "map":
            self._map: dict[str, float] = random.choice(
                [{"ON": 1, "OFF": 0}, {"true": 1, "false": 0}, {"open": 2.5, "": -1, "true": 7}]
            )
            self.table = [
                "map = {" + ", ".join(f"{json.dumps(key)} = {it}" for key, it in self._map.items()) + "}"
            ]
        if random.random() < 0.2 and not plain:
            self.name = random.choice(["visits", "größe", "x_1"])
            self.table.append(f'as = "{self.name}"')

    def lines(self) -> list[str]:
        return [f"[policies.c.values.{json.dumps(self.path)}]", *self.table] if self.table else []

    def draw(self) -> tuple[Any, Any]:
        """A value as written, and what it counts as."""
        random, number = self._random, round(self._random.uniform(-50, 100), self._random.choice([1, 2, 4]))
        if self._kind == "text":
            return self._text(number)
        if self._kind == "map" and random.random() < 0.7:
            word, counts = random.choice(list(self._map.items()))
            stored: Any = (
                {"true": True, "false": False}[word]
                if word in ("true", "false") and random.random() < 0.7
                else word
            )
            return stored, float(counts)
        if self._kind == "map" and random.random() < 0.2:
            return "on ", NO_NUMBER
        if self._kind == "mixed":
            mixed: list[tuple[Any, Any]] = [
                (math.nan, math.nan),
                (-math.inf, -math.inf),
                ("n/a", NO_NUMBER),
                (True, NO_NUMBER),
            ]
            mixed += [
                (Decimal128(str(number)), number),
                (Int64(int(number)), float(int(number))),
                (-0.0, -0.0),
            ]
            return random.choice(mixed) if random.random() < 0.4 else (number, number)
        return (number, number) if random.random() < 0.8 else (int(number), float(int(number)))

    def _text(self, number: float) -> tuple[Any, Any]:
        random, exact = self._random, Decimal(repr(number))
        plain = f"{exact:f}".replace(".", self._mark)
        shown: list[tuple[Any, Any]] = [
            (plain, number),
            (plain, number),
            (f"{plain} {self._unit}".strip(), number),
        ]
        shown += [(f"{exact:e}".replace(".", self._mark), number), (f"  {plain}", number), ("NaN", math.nan)]
        other = "1.234,5" if self._mark == "," else "1,234.5"
        shown += [
            (other, NO_NUMBER),
            ("-", NO_NUMBER),
            ("", NO_NUMBER),
            (number, number),
            (f"{plain} K", NO_NUMBER),
        ]
        return random.choice(shown if random.random() < 0.5 else shown[:3])


class Maker:
    """Draws the fields that all models have: series, value fields, and their names."""

    def __init__(self, seed: int, *, stars: bool = False, in_id: bool = True, plain: bool = False) -> None:
        self.random = random = Random(f"{seed}")
        self.zone = some_zone(random)
        self.day = some_day(random, self.zone)
        self._made = 0
        self.defaults: Row = {}
        names = random.sample(
            ["dev", "meta.site", "tags.host.name", "sensor_id", "k"], random.choice([1, 1, 2])
        )
        self.paths = list(names)
        if in_id and random.random() < 0.12:
            self.paths = [f"_id.{it.split('.')[-1]}" for it in names]
        self.names = [it.removeprefix("_id.") for it in self.paths]
        kinds = random.sample(["text", "int", "mixed"], len(names))
        self.series = [
            {name: _series_value(random, kind, place) for name, kind in zip(self.names, kinds, strict=True)}
            for place in range(2)
        ]
        if self.paths == names and random.random() < 0.25:
            # A column of an archive has one type, and a first run may meet what has no series alone.
            alike: dict[str, list[Any]] = {"text": ["unknown", ""], "int": [-1, 0]}
            of = dict(zip(names, kinds, strict=True))
            self.defaults = {it: random.choice(alike[kind]) for it, kind in of.items() if kind in alike}
        paths = random.sample(["p", "env.temp", "kwh", "a.b.c", "count", "v"], random.choice([1, 1, 2, 3]))
        if stars:
            paths = [f"slots.*.{it.split('.')[-1]}" for it in paths]
        self.values = [Values(random, it, it.rpartition("*.")[2], plain=plain) for it in paths]
        taken: set[str] = set()
        for it in self.values:
            if it.name == "count" or it.name in taken:
                it.name = f"n{len(taken)}"
                it.table = [line for line in it.table if not line.startswith("as =")] + [f'as = "{it.name}"']
            taken.add(it.name)

    def oid(self) -> ObjectId:
        self._made += 1
        return ObjectId(f"60000000{self._made:016x}")

    def base(self, series: Row) -> tuple[Row, Row]:
        """A document with its series alone, and the series that it counts as."""
        document: Row = {"_id": self.oid()}
        counts = dict(series)
        if self.paths[0].startswith("_id."):
            document["_id"] = {**series, "n": self._made}
            return document, counts
        for name, path in zip(self.names, self.paths, strict=True):
            if path in self.defaults and self.random.random() < 0.3:
                counts[name] = self.defaults[path]
                if self.random.random() < 0.5:
                    put(document, path, None)
            else:
                put(document, path, series[name])
        return document, counts

    def lines(self, model: str) -> list[str]:
        found = [f'model = "{model}"', f"series_fields = {listed(self.paths)}"]
        found.append(f"value_fields = {listed([it.path for it in self.values])}")
        if self.zone != "UTC":
            found.append(f'timezone = "{self.zone}"')
        if self.defaults:
            told = ", ".join(f"{json.dumps(key)} = {json.dumps(it)}" for key, it in self.defaults.items())
            found.append(f"series_defaults = {{{told}}}")
        loose = [it.path for it in self.values]
        found.append(f"nonnumeric_ok = {listed(loose)}")
        return found

    def variant(self, name: str, lines: list[str], documents: list[Written], **more: Any) -> Variant:
        fields = [it.name for it in self.values]
        tables = [line for it in self.values for line in it.lines()]
        documents.sort(key=lambda it: _order(it.document["_id"]))
        return Variant(name, lines, documents, fields, tables, zone=self.zone, **more)

    def drawn(self) -> tuple[dict[str, Any], Row]:
        """Values as written by path, and as they count by name; some are missing or null."""
        written: Row = {}
        counts: Row = {}
        for it in self.values:
            if self.random.random() < 0.08:
                if self.random.random() < 0.5:
                    written[it.path] = None
                continue
            written[it.path], counts[it.name] = it.draw()
        return written, counts


def _order(id: Any) -> Any:
    return id["n"] if isinstance(id, dict) else (id.binary if isinstance(id, ObjectId) else id)


def _series_value(random: Random, kind: str, place: int) -> Any:
    if kind == "text":
        return random.choice(["web", "Häuser", "a b", "x.y", "$7"]) + f"-{place}"
    return random.randrange(1000) * 2 + place if kind == "int" else [f"m{place}", 7 + place][place]
