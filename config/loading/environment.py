"""Values from the environment: overrides of connection keys, and `${NAME}` in strings."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

from bucketwise.config.problems import Fault, Key, ProblemReport

OVERRIDES: Final[Mapping[Key, str]] = {
    ("mongodb", "uri"): "BUCKETWISE_MONGODB_URI",
    ("mongodb", "database"): "BUCKETWISE_MONGODB_DATABASE",
    ("store", "url"): "BUCKETWISE_STORE_URL",
    ("store", "endpoint_url"): "BUCKETWISE_STORE_ENDPOINT_URL",
    ("store", "region"): "BUCKETWISE_STORE_REGION",
    ("store", "signing_key"): "BUCKETWISE_STORE_SIGNING_KEY",
    ("work", "workers"): "BUCKETWISE_WORK_WORKERS",
    ("work", "executor"): "BUCKETWISE_WORK_EXECUTOR",
    ("work", "memory"): "BUCKETWISE_WORK_MEMORY",
}
_NUMBERS: Final = {("work", "workers")}

# `$${` is a literal `${`; an opening that no name follows is caught by the last branch.
_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{[^}]*\}?")


class Unexpanded:
    """Stands in for a string that names a variable which is not set."""


UNEXPANDED: Final = Unexpanded()


def override(document: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Key, str]]:
    """Returns the document with the environment's own values in place, and which variable each came from.

    An empty variable overrides nothing."""
    document = copy.deepcopy(document)
    variables = {key: name for key, name in OVERRIDES.items() if environ.get(name)}
    for (table, key), name in list(variables.items()):
        if isinstance(document.setdefault(table, {}), dict):
            text = environ[name]
            is_number = (table, key) in _NUMBERS and text.isascii() and text.isdecimal()
            document[table][key] = int(text) if is_number else text
        else:
            del variables[table, key]
    return document, variables


def expand(
    document: dict[str, Any], environ: Mapping[str, str], literal: Mapping[Key, str], report: ProblemReport
) -> dict[str, Any]:
    """Returns the document with every `${NAME}` replaced, but at the keys in `literal`.

    What cannot be replaced is reported, and UNEXPANDED stands in its place."""

    def of(value: Any, key: Key) -> Any:
        if isinstance(value, dict):
            return {name: of(it, (*key, name)) for name, it in value.items()}
        if isinstance(value, list):
            items = [of(it, key) for it in value]
            return UNEXPANDED if any(it is UNEXPANDED for it in items) else items
        if isinstance(value, str):
            return _checked(
                value if key in literal else _expand_text(value, environ, key, report), key, report
            )
        return value

    return {name: of(value, (name,)) for name, value in document.items()}


def _checked(text: str | Unexpanded, key: Key, report: ProblemReport) -> str | Unexpanded:
    # Python hands over bytes of the environment that are not UTF-8 as lone surrogates.
    if isinstance(text, str) and re.search("[\ud800-\udfff]", text):
        report.add(key, Fault("its value in the environment is not UTF-8", "set it to UTF-8 text"))
        return UNEXPANDED
    return text


def _expand_text(text: str, environ: Mapping[str, str], key: Key, report: ProblemReport) -> str | Unexpanded:
    faults: list[Fault] = []

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if not found[2]:
            remedy = "write `${NAME}` with a name of letters, digits and `_`; a literal `${` is written `$${`"
            faults.append(Fault("`${` is not followed by the name of an environment variable", remedy))
        elif found[2] not in environ:
            remedy = f"set {found[2]} in the environment, or write the value here"
            faults.append(Fault(f"the environment variable {found[2]} is not set", remedy))
        else:
            return environ[found[2]]
        return ""

    expanded = _REFERENCE.sub(replace, text)
    for fault in dict.fromkeys(faults):
        report.add(key, fault)
    if faults:
        return UNEXPANDED
    if expanded != text:
        report.expanded(expanded, text)
    return expanded
