"""A case: a folder with documents, a policy, and what must come of them."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.json_util import CANONICAL_JSON_OPTIONS, DatetimeRepresentation, JSONOptions, loads
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from tests.jobs.command import CommandLine, Ran

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
_AS_WRITTEN = JSONOptions(
    json_mode=CANONICAL_JSON_OPTIONS.json_mode, datetime_representation=DatetimeRepresentation.NUMBERLONG
)
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What a folder holds."""

    folder: Path

    def __str__(self) -> str:
        return self.folder.name

    @cached_property
    def expected(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        return found

    @property
    def policy(self) -> str:
        return (self.folder / "policy.toml").read_text(encoding="utf-8")

    @property
    def init(self) -> str:
        return str(json.loads((self.folder / "case.json").read_text(encoding="utf-8"))["init"])

    @property
    def kind(self) -> int:
        return int(json.loads((self.folder / "case.json").read_text(encoding="utf-8"))["kind"])

    @property
    def now(self) -> str:
        return str(self.expected["now"])

    def as_inferred(self) -> Case:
        """The case without the statistics and the names that nobody can know from documents."""
        found = Case(self.folder)
        named = tomllib.loads(self.policy)["policies"]["c"].get("values", {})
        names = {it["as"]: f"{path}_value" for path, it in named.items() if "as" in it}
        rows = {level: [_plain(it, names) for it in self.expected[level]] for level in ("hourly", "daily")}
        found.__dict__["expected"] = {**self.expected, **rows}
        return found

    def documents(self, name: str = "documents") -> list[bytes]:
        """The documents of a file, as BSON; none where there is no such file."""
        path = self.folder / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [bson.encode(loads(it, json_options=_AS_WRITTEN)) for it in lines if it.strip()]


def all_cases() -> list[Case]:
    """All of them."""
    return [Case(it.parent) for it in sorted(CASES.glob("*/case.json"))]


_PLAIN = {"count", "sum", "min", "max", "first", "first_at", "last", "last_at"}


def _plain(row: Row, names: dict[str, str]) -> Row:
    return {
        names.get(name, name): {key: it for key, it in held.items() if key in _PLAIN}
        if isinstance(held, dict) and name != "series"
        else held
        for name, held in row.items()
    }


class Bench:
    """A database, a folder with a policy file and a store, and the command line. `now`: the present, unless a
    call names another."""

    def __init__(self, folder: Path, database: Database[Row], uri: str, command: CommandLine) -> None:
        self.folder, self.database, self.now = folder, database, ""
        self._uri, self._command = uri, command
        (folder / "store").mkdir()

    def write_policy(self, policy: str) -> None:
        head = f'[mongodb]\nuri = "${{MONGODB_URI}}"\ndatabase = "{self.database.name}"\n'
        store = f'[store]\nurl = "{(self.folder / "store").as_uri()}"\n'
        (self.folder / "bucketwise.toml").write_text(head + store + policy, encoding="utf-8")

    def load(self, documents: list[bytes]) -> None:
        if documents:
            self.database.c.with_options(codec_options=_RAW).insert_many(map(RawBSONDocument, documents))

    def run(self, *arguments: str, now: str | None = None) -> Ran:
        given = [*arguments, "--quiet", "--json", "--now", now or self.now]
        return self._command(*given, cwd=self.folder, MONGODB_URI=self._uri)

    def init(self) -> Ran:
        uri = self._uri.replace("/?", f"/{self.database.name}?", 1)
        return self._command("init", uri, "c", "--quiet", "--json", cwd=self.folder)

    def raw(self, collection: str) -> list[bytes]:
        held = self.database[collection].with_options(codec_options=_RAW).find().sort("_id", 1)
        return [bytes(it.raw) for it in held]


class Stage(Bench):
    """A bench with the documents of a case and its policy."""

    def __init__(
        self, case: Case, folder: Path, database: Database[Row], uri: str, command: CommandLine
    ) -> None:
        super().__init__(folder, database, uri, command)
        self.case, self.now = case, case.now
        options = case.folder / "collection.json"
        database.create_collection("c", **(json.loads(options.read_text()) if options.exists() else {}))
        self.write_policy(case.policy)
        self.load(case.documents())


def differences(database: Database[Row], case: Case) -> list[str]:
    """How the summaries of a database differ from those of the case: a line each."""
    found: list[str] = []
    for level in ("hourly", "daily"):
        rows = {_key(it["series"], it["start"]): it for it in case.expected[level]}
        held = {_key(it["_id"]["series"], it["start"]): it for it in database[f"c_{level}"].find()}
        found += [f"{level} {key}: missing" for key in rows.keys() - held.keys()]
        found += [f"{level} {key}: not expected" for key in held.keys() - rows.keys()]
        for key in rows.keys() & held.keys():
            found += [f"{level} {key} {it}" for it in _of_row(rows[key], held[key])]
    return sorted(found)


def _key(series: Row, start: datetime | str) -> str:
    return f"{json.dumps(_flat(series), sort_keys=True, default=str)} {text_of(start)}"


def _flat(series: Row) -> Row:
    found: Row = {}
    for name, value in series.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{name}.{key}".rstrip("."): it for key, it in inner.items()}
    return found


def text_of(at: datetime | str) -> str:
    """An instant as the cases write it."""
    if isinstance(at, str):
        return at.replace(".000Z", "Z")
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")


def _of_row(row: Row, summary: Row) -> list[str]:
    found = []
    for name, wanted in row.items():
        if name in ("series", "start", "then"):
            continue
        held = summary.get(name)
        if not isinstance(wanted, dict):
            found += [] if held == wanted else [f"{name}: {held}, not {wanted}"]
            continue
        for key, value in wanted.items():
            has = (held or {}).get(key)
            if not same(has, value):
                found.append(f"{name}.{key}: {has}, not {value}")
    return found


def same(held: Any, wanted: Any) -> bool:
    """Whether two values are equal, sums but for their rounding."""
    if isinstance(wanted, str):
        return held is not None and text_of(held) == text_of(wanted)
    if isinstance(wanted, float) and isinstance(held, int | float):
        return abs(held - wanted) <= 1e-9 * max(1.0, abs(wanted))
    return bool(held == wanted)
