"""Input by grammar: sound documents of a JSON Schema, and what is broken in a document."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
#: What nobody expects, at any place.
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([-1, 0, 1, 2**31, 2**53 + 1, 2**63])
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["", "a.b", "$x", "..", "\0", "/", "9" * 400 + "d", "٣d", "${A}", "é\U0001f600", "true"]
    )
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def documents(schema: Document, root: Document) -> st.SearchStrategy[Any]:
    """Returns documents of a JSON Schema, as far as its types, choices and patterns say."""
    if "$ref" in schema:
        return st.deferred(lambda: documents(root["definitions"][schema["$ref"].rpartition("/")[2]], root))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    if "anyOf" in schema:
        return st.one_of([documents(it, root) for it in schema["anyOf"]])
    if "pattern" in schema:
        return st.from_regex(
            schema["pattern"].partition("|\\$")[0], fullmatch=True, alphabet="0123smhdwy$forev{A}"
        )
    simple = {
        "string": st.sampled_from(["a", "b.c", "ticks", "UTC", "s3://b/x", "file:///x", "0 0 * * *"]),
        "integer": st.integers(0, 100),
        "number": st.floats(0, 100),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        return st.one_of([documents({**schema, "type": it}, root) for it in kind])
    if kind == "array":
        return st.lists(documents(schema.get("items", {}), root), max_size=3)
    if kind != "object":
        return simple[kind]
    known = {key: documents(it, root) for key, it in schema.get("properties", {}).items() if it is not False}
    required = {key: known.pop(key) for key in schema.get("required", ()) if key in known}
    tables = st.fixed_dictionaries(required, optional=known)
    others = schema.get("additionalProperties")
    if not isinstance(others, dict):
        return tables
    named = st.dictionaries(st.sampled_from(["a", "b", "c d"]), documents(others, root), max_size=2)
    return st.builds(lambda mine, more: more | mine, tables, named)


@st.composite
def broken(draw: st.DrawFn, sound: st.SearchStrategy[Any]) -> Any:
    """Returns a document in which up to three things are left out, replaced, doubled or put elsewhere."""
    document = [deepcopy(draw(sound))]
    for _ in range(draw(st.integers(1, 3))):
        where: Any = document
        key: Any = 0
        while isinstance(where[key], dict | list) and where[key] and draw(st.integers(0, 4)):
            where = where[key]
            key = draw(st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where))))
        change = draw(st.sampled_from(["replace", "remove", "wrap", "rename"]))
        if change == "wrap":
            where[key] = draw(st.sampled_from([[where[key]], {"x": where[key]}, str(where[key])]))
        elif change == "replace" or where is document:
            where[key] = draw(VALUES)
        else:
            value = where.pop(key)
            if change == "rename" and isinstance(where, dict):
                where[draw(st.text(max_size=8))] = value
    return document[0]


def toml(value: Any, *, is_top: bool = False) -> str:
    """Returns a value as TOML; what TOML does not have is left out."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)} = {toml(it)}" for key, it in value.items() if it is not None]
        return "\n".join(pairs) if is_top else "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(it) for it in value if it is not None) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return value.isoformat() if isinstance(value, datetime) else repr(value)
