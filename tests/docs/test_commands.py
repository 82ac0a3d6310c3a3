"""Every `bucketwise …` line of the pages is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from bucketwise.jobs.cli import program
from bucketwise.jobs.suite import ENTRIES, GROUPS, load
from tests.docs.pages import PAGES, blocks, name, prose, rows, told

_SHELLS = {"console", "sh", "crontab", "yaml", "dockerfile"}
_CALL = re.compile(r"(?:^|[\s/])bucketwise((?: +(?:-[\w-]+|[^\s#;|&>]+))+)")
_INLINE = re.compile(r"`bucketwise ([^`]+)`")
_WORDS = {"VERB", "…"}


def _calls() -> list[tuple[str, str]]:
    found = []
    for page in (it for it in PAGES if it.name != "CHANGELOG.md"):  # which tells of what was
        for block in blocks(page):
            if block.language in _SHELLS:
                text = block.text.replace("\\\n", " ")
                for line in text.splitlines():
                    if "docker build" not in line and line.strip() and not line.lstrip().startswith("#"):
                        found += [(str(block), match[1]) for match in _CALL.finditer(line)]
        found += [(name(page), call) for call in _INLINE.findall(prose(page))]
    return found


def test_there_are_some() -> None:
    assert len(_calls()) > 20
    assert {call.split()[0] for _, call in _calls()} >= set(ENTRIES)


@pytest.mark.parametrize(("place", "call"), _calls())
def test_the_command_line_takes_it(place: str, call: str) -> None:
    arguments = shlex.split(call)
    if arguments[0] in ("--help", "--version", "--install-completion") or set(arguments) & _WORDS:
        return
    command: Any = program()
    verb, *rest = arguments
    assert verb in command.commands, f"{place}: there is no verb {verb}"
    rest = [*rest, "--to", "x"] if verb == "restore" and "--to" not in rest else rest
    try:
        command.commands[verb].make_context(verb, rest)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        pytest.fail(f"{place}: bucketwise {call}: {error.format_message()}")


@pytest.mark.parametrize("verb", ENTRIES)
def test_every_verb_and_option_is_explained(verb: str) -> None:
    command: Any = program()
    text = told(f"`{verb}`")
    common = told("Commands")
    for parameter in command.commands[verb].params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            option = str(parameter.metavar)
            assert re.search(rf"`{verb} [^`]*{re.escape(option)}", text), option
            continue
        option = next(name for name in parameter.opts if name.startswith("--"))
        assert f"`{option}" in text + common, f"no page explains {option} of {verb}"


def test_the_page_of_commands_lists_them_in_the_groups_of_the_help() -> None:
    listed = {group: re.findall(r"\[`([\w-]+)`\]", cell) for group, cell in rows(told("All commands"))}
    assert list(listed.items()) == [(group, list(verbs)) for group, verbs in GROUPS.items()]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_list_tells_each_job_as_it_tells_itself(name: str) -> None:
    assert ENTRIES[name].summary == str(load(name).verb.__doc__).partition("\n")[0]
