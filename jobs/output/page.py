"""Renders pages: one style, one security policy, and escaping of all text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from bucketwise.jobs.output.tables import number, number_range
from bucketwise.jobs.output.text import printable


def render(name: str, filters: dict[str, Callable[..., Any]], **variables: Any) -> tuple[str, str]:
    """Returns the page that a template gives, and its content security policy: no script, nothing from
    elsewhere, and no style but its own. `variables`: those of the template
    beside `style` and `policy`."""
    templates = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    templates.filters |= {"number": partial(number, none="?"), "through": number_range, **filters}
    style = Markup(_text("style.css"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page = templates.get_template(name).render(style=style, policy=Markup(policy), **variables)
    return page, policy


def _text(name: str) -> str:
    return files("bucketwise.jobs.output").joinpath(name).read_text(encoding="utf-8")


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def instant(value: str | None) -> str:
    """Returns an instant of the JSON as text, to the second."""
    return "–" if value is None else value[:19].replace("T", " ")
