"""What the pages say of the policy file, held against the settings models and the loader."""

from __future__ import annotations

import json
import re
import tomllib
import types
import typing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from bucketwise.config import PATH_VARIABLE
from bucketwise.config.amounts import format_size
from bucketwise.config.checks.locations import S3
from bucketwise.config.load import OVERRIDES, load
from bucketwise.config.models import LAYOUT_KEYS, MODELS, POLICY_FIELDS, fields_of
from bucketwise.config.policies import (
    Archive,
    Audit,
    Compact,
    Overflow,
    Policy,
    Retain,
    Rollup,
    RollupLevel,
    Rule,
    RuleRetain,
    StorageClass,
    ValueField,
)
from bucketwise.config.schema import DIRECTIVE, policy_file_schema
from bucketwise.config.tables import (
    Drill,
    Lake,
    MongoDB,
    Notify,
    ObjectLock,
    PolicyRedis,
    Redis,
    RunLedger,
    Store,
    StoreCopy,
    Table,
    Throttle,
    TopLevel,
    Workers,
)
from bucketwise.config.times import format_duration
from bucketwise.config.written import resolved
from tests.config.schemas import faults
from tests.docs.pages import ROOT, Block, blocks_in, code, rows, told

PAGE = ROOT / "docs" / "policies.md"
ENVIRONMENT = {"MONGODB_URI": "mongodb://127.0.0.1:27017/?replicaSet=rs0", "PWD": "/tmp/tutorial"}
#: What an excerpt leaves out.
HEAD = (
    '[mongodb]\nuri = "${MONGODB_URI}"\ndatabase = "market"\n\n[store]\nurl = "s3://acme-archive/market"\n\n'
)
TABLES: dict[str, type[Table]] = {
    "Keys above all tables": TopLevel,
    "`[mongodb]`": MongoDB,
    "`[store]`": Store,
    "`[store.object_lock]`": ObjectLock,
    "`[[store.copies]]`": StoreCopy,
    "`[work]`": Workers,
    "`[ledger]`": RunLedger,
    "`[notify]`": Notify,
    "`[drill]`": Drill,
    "`[lake]`": Lake,
    "`[publish.redis]`": Redis,
    "`[throttle]`": Throttle,
    "`[policies.NAME]`": Policy,
    "`[policies.NAME.rollup]`": Rollup,
    "`[[policies.NAME.rollup.levels]]`": RollupLevel,
    "`[policies.NAME.archive]`": Archive,
    "`[policies.NAME.archive.compact]`": Compact,
    "`[[policies.NAME.archive.storage_classes]]`": StorageClass,
    "`[policies.NAME.audit]`": Audit,
    "`[policies.NAME.throttle]`": Throttle,
    "`[policies.NAME.retain]`": Retain,
    "`[[policies.NAME.rules]]`": Rule,
    "`[policies.NAME.rules.retain]`": RuleRetain,
    "`[policies.NAME.overflow]`": Overflow,
    "`[policies.NAME.values.FIELD]`": ValueField,
    "`[policies.NAME.publish.redis]`": PolicyRedis,
}


@pytest.mark.parametrize("block", blocks_in("toml"), ids=str)
def test_policy_files_load(block: Block, tmp_path: Path) -> None:
    assert block.marks in ((), ("excerpt",), ("schema",))
    path = tmp_path / "bucketwise.toml"
    text = HEAD * ("excerpt" in block.marks) + block.text
    if "schema" in block.marks:
        assert text == f"{DIRECTIVE}\n"
        return
    path.write_text(text)
    settings = load(path, ENVIRONMENT)
    assert settings.policies
    assert faults(tomllib.loads(text)) == []
    assert faults(resolved(settings)) == [], "as `config show` prints it"


def test_the_schema_explains_every_key() -> None:
    schema = policy_file_schema()
    tables = [schema, *schema["definitions"].values()]
    bare = [key for it in tables for key, said in it["properties"].items() if "description" not in said]
    assert set(bare) <= {*schema["properties"], "redis"}, "tables have sections of their own"


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_explained(heading: str) -> None:
    model = TABLES[heading]
    found = list(rows(told(heading)))
    said = {code(key): default for key, default, _ in found}
    known = POLICY_FIELDS if model is Policy else model.model_fields
    fields = {it.alias or name: it for name, it in known.items()}
    keys = [name for name in fields if name != "name" or model is not Policy]
    assert list(said) == keys, "the keys of the page are those of the model, in its order"
    assert all(meaning for *_, meaning in found)
    for key in keys:
        is_of_some = model is Policy and key in _OF_MODELS
        assert said[key] == ("–" if is_of_some and fields[key].is_required() else _default(fields[key])), key


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default: Any = field.default
    if isinstance(default, Table):
        return "see below"
    lengths = timedelta in (field.annotation, *typing.get_args(field.annotation))
    if lengths and (default is not None or field.annotation is not timedelta):
        return f"`{format_duration(default)}`" if default is not None else _no_length(field)
    if default is None:
        return "–"
    if field.annotation is ByteSize:
        return f'`"{format_size(default)}"`'
    if isinstance(default, tuple) and default:
        return f"`{json.dumps(default)}`"
    if type(default) is int:
        return f"`{default}`"
    texts = {True: "true", False: "false", (): "[]"}
    if isinstance(default, dict):
        return "`{}`"
    return f"`{texts[default]}`" if isinstance(default, bool | tuple) else f'`"{default}"`'


def _no_length(field: FieldInfo) -> str:
    """None is forever where something is kept, and nothing elsewhere."""
    assert isinstance(field.annotation, types.UnionType)
    kept = any(field is it for it in Retain.model_fields.values())  # equal ones are elsewhere too
    return "`forever`" if kept else "–"


#: The keys that go with some models.
_OF_MODELS = POLICY_FIELDS.keys() - Policy.model_fields.keys() | {"time_field", "overflow"}


def test_what_goes_with_which_model() -> None:
    table = list(rows(told("Which key goes with which model")))
    said = {code(model): cells for model, *cells in table}
    assert set(said) == set(MODELS)
    for model, (needs, may_have) in said.items():
        own = {name: it for name, it in fields_of(MODELS[model]).items() if name in _OF_MODELS}
        needed = {name for name, it in own.items() if it.is_required()} | MODELS[model].alternatives.keys()
        assert _codes(needs) == needed
        assert _codes(may_have) == own.keys() - needed
    keys = {key for _, *cells in table for cell in cells for key in _codes(cell)}
    of_all = {"model", "series_fields", "value_fields", "values", "series_defaults", "timezone"}
    assert keys | of_all == LAYOUT_KEYS, "manifests record all of them"


@pytest.mark.parametrize("name", ["docs/policies-keeping.md", "config/example.toml"])
def test_every_storage_class_is_named(name: str) -> None:
    """In the line that explains the key."""
    told = re.finditer(r"(?m)^(\| `|# )storage_class\b.*", (ROOT / name).read_text(encoding="utf-8"))
    named = [set(re.findall(r"[A-Z_]{5,}", it[0].upper())) for it in told]
    assert any({*S3.classes, *S3.cold_classes} <= it for it in named)


def _codes(cell: str) -> set[str]:
    return {code(part.strip()) for part in cell.split(",")} if cell else set()


def test_every_variable_is_told() -> None:
    table = list(rows(told("How values are written")))
    assert {code(variable): code(key) for variable, key in table} == {
        variable: ".".join(key) for key, variable in OVERRIDES.items()
    }
    assert f"`{PATH_VARIABLE}`" in PAGE.read_text(encoding="utf-8")
