"""The JSON Schema of the policy file, made of the models that read it and the pages about its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import ByteSize
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema, core_schema

from bucketwise.config.amounts import format_size
from bucketwise.config.deprecated import FORMER_KEYS
from bucketwise.config.load import OVERRIDES
from bucketwise.config.models import MODELS, POLICY_FIELDS, fields_of
from bucketwise.config.policies import Settings
from bucketwise.config.tables import Table, TopLevel
from bucketwise.config.times import format_duration

#: The one that editors of TOML read.
DIALECT = "http://json-schema.org/draft-07/schema#"
#: The file that the first line of a policy file names.
FILE_NAME = "bucketwise.schema.json"
DIRECTIVE = f"#:schema ./{FILE_NAME}"

#: The pages of the manual with the meaning of each key: they are installed with the program.
_PAGES = [Path(__file__).with_name(f"policies{part}.md") for part in ("", "-reading", "-keeping")]
_REFERENCE = "#/definitions/{model}"
#: Any text may have its value, or a part of it, from the environment.
_VARIABLE = r"\$\{"
#: Of a key that does not go with the model.
_NOTHING: dict[str, Any] = {"not": {}}
_DURATION = "[0-9]{1,15}[smhdwy]"

Schema = dict[str, Any]


def policy_file_schema() -> Schema:
    """Returns the JSON Schema (draft 7) of the policy file. It takes each file that is sound, and refuses
    unknown keys, keys of another bucket model, and values of a wrong type or form. What contradicts itself
    is found by `bucketwise check` alone."""
    tables = [it for it in Settings.model_fields if it not in ("path", "policies", *TopLevel.model_fields)]
    kinds: list[type[Table]] = [TopLevel, Settings, *MODELS.values()]
    told, made = models_json_schema(
        [(it, "validation") for it in kinds], ref_template=_REFERENCE, schema_generator=_Generator
    )
    definitions = made["$defs"]
    of = {kind: definitions.pop(told[kind, "validation"]["$ref"].rpartition("/")[2]) for kind in kinds}
    del definitions["Policy"]
    definitions["Policy"] = _policy({name: of[kind] for name, kind in MODELS.items()})
    settings = of[Settings]["properties"]
    schema = {
        "$schema": DIALECT,
        "title": "bucketwise policy file",
        "type": "object",
        "properties": {
            **of[TopLevel]["properties"],
            **{name: settings[name] for name in tables},
            "policies": {
                "type": "object",
                "description": "What happens to each source collection, by the name of the policy.",
                "additionalProperties": {"$ref": _REFERENCE.format(model="Policy")},
                "minProperties": 1,
            },
        },
        "required": ["policies"],
        "additionalProperties": False,
        "definitions": definitions,
    }
    _leave_to_environment(schema)
    _take_former_names(schema)
    _explain(schema)
    plain: Schema = _without_titles(schema)
    return plain


class _Generator(GenerateJsonSchema):
    """Values as TOML has them: durations and sizes are text, and nothing is null."""

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:  # noqa: ARG002
        """Returns the form of a duration."""
        return _text(_DURATION)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Returns what a key may have that can be left out: a duration then may be `forever`."""
        inner: CoreSchema = schema["schema"]
        if inner["type"] == "timedelta":
            return _text(f"{_DURATION}|forever")
        return self.generate_inner(inner)

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """Returns the choices, or a variable that holds one."""
        return _choice(schema["expected"])

    def encode_default(self, dft: Any) -> Any:
        """Returns a default as TOML has it."""
        if isinstance(dft, ByteSize):
            return format_size(dft)
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def _choice(values: list[Any]) -> Schema:
    return {"anyOf": [{"enum": values}, {"type": "string", "pattern": _VARIABLE}]}


def _text(pattern: str) -> Schema:
    """Returns the schema of a text that matches a pattern as a whole, once variables have their values."""
    return {"type": "string", "pattern": f"^({pattern})$|{_VARIABLE}"}


def _policy(kinds: dict[str, Schema]) -> Schema:
    """Returns the schema of a policy of any model: all keys, and for each model those that go with it."""
    keys = {field.alias or name: name for name, field in POLICY_FIELDS.items() if name != "name"}
    held = {
        key: [it["properties"][key] for name, it in kinds.items() if key in _keys_of(name)] for key in keys
    }
    # of the schemas of a key, the one that says most: that of another model may be narrower
    properties = {key: max(found, key=lambda it: len(str(it))) for key, found in held.items()}
    shared = [it for it in keys if all(it in kind["required"] for kind in kinds.values())]
    properties["model"] = _choice(list(kinds))
    return {
        "type": "object",
        "properties": properties,
        "required": shared,
        "additionalProperties": False,
        "allOf": [_of_model(name, kind, list(keys), shared) for name, kind in kinds.items()],
    }


def _of_model(model: str, kind: Schema, keys: list[str], shared: list[str]) -> Schema:
    own = _keys_of(model)
    return {
        "if": {"properties": {"model": {"const": model}}, "required": ["model"]},
        "then": {
            "required": [it for it in kind["required"] if it in keys and it not in shared],
            "properties": {it: _NOTHING for it in keys if it not in own},
        },
    }


def _keys_of(model: str) -> set[str]:
    return {field.alias or name for name, field in fields_of(MODELS[model]).items()}


def _leave_to_environment(schema: Schema) -> None:
    """Takes out of what is required the keys that variables of the environment may give."""
    for table, key in OVERRIDES:
        found = _below(schema, schema["properties"][table])
        found["required"] = [it for it in found.get("required", []) if it != key]


def _take_former_names(schema: Schema) -> None:
    """Adds the deprecated names of keys, which need not have the one of today beside them."""
    for (path, former), name in FORMER_KEYS.items():
        table = schema
        for part in path:
            table = _below(
                schema, table["additionalProperties"] if part == "*" else table["properties"][part]
            )
        told = {"deprecated": True, "description": f"Deprecated: it is called `{name}` now."}
        table["properties"][former] = {**table["properties"][name], **told}
        table["required"] = [it for it in table.get("required", []) if it != name]


def _explain(schema: Schema) -> None:
    """Adds to each key what the pages say of it."""
    for path, key, meaning in _meanings("\n".join(it.read_text(encoding="utf-8") for it in _PAGES)):
        table = schema
        for name in path:
            properties = table.get("properties", {})
            table = _below(schema, properties.get(name) or table.get("additionalProperties") or {})
        if (found := table.get("properties", {}).get(key)) is not None:
            found.setdefault("description", meaning)


def _below(schema: Schema, place: Schema) -> Schema:
    """Returns the table at a place: that of its reference, or of the items of its list."""
    for one in (place, *place.get("anyOf", []), *place.get("allOf", []), place.get("items", {})):
        if "$ref" in one:
            found: Schema = schema["definitions"][one["$ref"].rpartition("/")[2]]
            return found
    return place


_TABLE = re.compile(r"#+ `\[+([^\]`]+)\]+`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CELLS = re.compile(r"(?<!\\)\|")


def _meanings(page: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yields the path of a table, a key of it and its meaning, for each row of the pages' tables of keys."""
    path: tuple[str, ...] | None = None
    for line in page.splitlines():
        if line.startswith("#"):
            found = _TABLE.fullmatch(line)
            path = tuple(found[1].split(".")) if found else () if line == "## Keys above all tables" else None
        elif path is not None and line.startswith("| `"):
            key, _, meaning, *_ = [it.strip() for it in _CELLS.split(line.strip("|"))]
            yield path, key.strip("`"), _LINK.sub(r"\1", meaning).replace("\\|", "|")


def _without_titles(schema: Any) -> Any:
    """Returns the schema without what pydantic calls its parts, and without defaults that are whole tables:
    editors would offer them."""
    if isinstance(schema, list):
        return [_without_titles(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "definitions"):
            kept[key] = {name: _without_titles(it) for name, it in value.items()}
        elif (key != "title" or "$schema" in schema) and not (
            key == "default" and (value is None or isinstance(value, dict))
        ):
            kept[key] = _without_titles(value)
    return kept
