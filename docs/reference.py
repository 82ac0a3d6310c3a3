"""Pages of reference for the site, made of the code: commands, keys, JSON, findings, metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bucketwise.config.schema import policy_file_schema
from bucketwise.jobs.cli import program
from bucketwise.jobs.core.metrics import Metrics
from bucketwise.jobs.settings import output_schema
from bucketwise.jobs.suite import GROUPS, all_jobs

Schema = Mapping[str, Any]


#: The pages, by the name of their file.
TITLES = {
    "commands": "All commands",
    "policy-keys": "Keys of the policy file",
    "json": "JSON of the commands",
    "findings": "All findings",
    "metrics": "All metrics",
}


def pages() -> dict[str, str]:
    """Returns the Markdown of each page, by its path in the site."""
    made = dict(zip(TITLES, (commands(), policy_keys(), outputs(), findings(), metrics()), strict=True))
    return {f"reference/{name}.md": text for name, text in made.items()}


def commands() -> str:
    """Returns the page of all commands with their options, in the groups of `--help`."""
    return "".join(_commands())


def _commands() -> Iterator[str]:
    command: Any = program()
    yield "# Commands\n\nMade of the program's own help; the [how-to guides](../operations.md) tell more.\n"
    for group, verbs in GROUPS.items():
        yield f"\n## {group}\n"
        for verb in verbs:
            one = command.commands[verb]
            shown = [it for it in one.params if it.name != "help" and not getattr(it, "hidden", False)]
            yield f"\n### `{verb}`\n\n{_paragraphs(one.help or '')}\n\n"
            yield _table(("option", "meaning"), ((_names(it), getattr(it, "help", "") or "") for it in shown))


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    return ", ".join(f"`{it}`" for it in parameter.opts)


def _paragraphs(text: str) -> str:
    return text.split("\f")[0].split("Examples:")[0].strip()


def policy_keys() -> str:
    """Returns the page of all keys of the policy file, from its schema."""
    schema = policy_file_schema()
    parts = [
        "# Keys of the policy file\n\nMade of its [JSON Schema](../begin.md#in-an-editor). [The policy file]"
    ]
    parts += ["(../policies.md) tells what they do together.\n"]
    plain = {key: it for key, it in schema["properties"].items() if "$ref" not in it and key != "policies"}
    parts += ["\n## Above all tables\n\n", _keys({"properties": plain}, schema)]
    for path, table in _tables(schema, schema, ()):
        parts += [f"\n## `{'.'.join(path)}`\n\n", _keys(table, schema)]
    return "".join(parts)


def _tables(table: Schema, whole: Schema, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yields each table inside one, with its path; of tables by name the name in capitals."""
    for key, it in table["properties"].items():
        for name, place in (
            (key, it),
            (key, it.get("items", {})),
            (f"{key}.NAME", it.get("additionalProperties", {})),
        ):
            if isinstance(place, dict) and "$ref" in place:
                inner = whole["definitions"][place["$ref"].rpartition("/")[2]]
                yield (*path, name), inner
                yield from _tables(inner, whole, (*path, name))


def _keys(table: Schema, whole: Schema) -> str:
    needed = table.get("required", [])
    rows = (
        (f"`{key}`", _type(it, whole), _default(it, key in needed), it.get("description", ""))
        for key, it in table["properties"].items()
    )
    return _table(("key", "type", "default", "meaning"), rows)


def _default(schema: Schema, is_required: bool) -> str:
    if is_required:
        return "required"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "–"


def _type(schema: Schema, whole: Schema) -> str:
    """Returns the type of a value, for people."""
    if "$ref" in schema:
        return "table"
    if "enum" in schema:
        return ", ".join(f"`{it}`" for it in schema["enum"])
    if "anyOf" in schema:
        kinds = [_type(it, whole) for it in schema["anyOf"] if it.get("pattern") != r"\$\{"]
        return " or ".join(dict.fromkeys(kinds))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}), whole)}"
    if "[smhdwy]" in schema.get("pattern", ""):
        return "duration"
    names = {"string": "text", "object": "table", "integer": "whole number"}
    kind = schema.get("type", "any")
    return names.get(kind, str(kind))


def outputs() -> str:
    """Returns the page of what each command prints with `--json`, from its schema."""
    parts = [
        "# JSON of the commands\n\nMade of their schemas: `bucketwise config schema COMMAND` prints one.\n"
    ]
    for job in all_jobs():
        schema = output_schema(job)
        policy = schema["properties"]["policies"]["items"]["properties"]
        beside = {key: it for key, it in schema["properties"].items() if key != "policies"}
        parts += [f"\n## `{job.name}`\n\n", _members(beside), "\nOf each policy:\n\n", _members(policy)]
    return "".join(parts) + "\n# Parts\n" + "".join(_parts())


def _parts() -> Iterator[str]:
    parts: dict[str, Any] = {}
    for job in all_jobs():
        parts |= output_schema(job)["$defs"]
    for name, part in sorted(parts.items()):
        yield f"\n## {name}\n\n{part.get('description', '')}\n\n{_members(part.get('properties', {}))}"


def _members(properties: Mapping[str, Any]) -> str:
    rows = (
        (f"`{key}`", _json_type(it), it.get("description", "").replace("\n", " "))
        for key, it in properties.items()
    )
    return _table(("key", "type", "meaning"), rows)


def _json_type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_json_type(it) for it in schema["anyOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(it)}`" for it in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_json_type(schema.get('items', {}))}"
    return str(schema.get("format", schema.get("type", "any")))


def findings() -> str:
    """Returns the page of the findings of `check` and `audit`, from the records of the jobs."""
    parts = [
        "# Findings\n\nMade of the jobs' records. They mean: [of check](../begin.md#findings-of-check), "
    ]
    parts += ["[of audit](../proving.md#findings-of-audit).\n"]
    for verb in ("check", "audit"):
        found = {
            it.code: it for job in all_jobs() for it in (job.checked if verb == "check" else job.audited)
        }
        rows = ((f"`{it.code}`", ", ".join(it.severities), it.remedy or "–") for it in found.values())
        parts += [f"\n## Of {verb}\n\n", _table(("code", "severity", "what to do"), rows)]
    return "".join(parts)


def metrics() -> str:
    """Returns the page of the metrics, as the service exposes them."""
    kinds: dict[str, list[str]] = {}
    for line in Metrics().text().decode().splitlines():
        if line.startswith("# "):
            _, what, name, text = line.split(" ", 3)
            kinds.setdefault(name, ["", ""])[["HELP", "TYPE"].index(what)] = text
    rows = ((f"`{name}`", kind, meaning) for name, (meaning, kind) in kinds.items())
    labels = "[metrics and health](../monitoring.md#metrics-and-health)"
    head = f"# Metrics\n\nMade of what the service exposes. Their labels: {labels}.\n\n"
    return head + _table(("metric", "type", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(' '.join(it.split()).replace('|', chr(92) + '|') for it in line)} |\n"
        for line in lines
    )
