"""The selection of verbs that answer a question: one policy, some of its series."""

from __future__ import annotations

from typing import Annotated

import typer

from config.errors import UsageError
from config.policies import Policy
from jobs.call import Call

Series = Annotated[
    list[str] | None,
    typer.Option("--series", metavar="FIELD=VALUE", help="Only series with this value. Can be repeated."),
]


def one_policy(call: Call) -> Policy:
    """Returns the policy of the call. Raises UsageError where --policy does not name exactly one, and there
    are more."""
    if len(call.policies) != 1:
        known = ", ".join(call.settings.policies)
        raise UsageError(f"{call.command} works on one policy: name it with --policy. There are: {known}")
    return call.policies[0]


def parse_series(pairs: list[str] | None) -> dict[str, str]:
    """Returns series fields and their values, as given. Raises UsageError."""
    parsed: dict[str, str] = {}
    for pair in pairs or []:
        field, equals, value = pair.partition("=")
        if not equals or not field:
            raise UsageError(f"--series {pair}: write FIELD=VALUE, such as --series symbol=MDB")
        if field in parsed:
            raise UsageError(f"--series {pair}: the field {field} was given before")
        parsed[field] = value
    return parsed
