"""What the command line refuses, before it connects to anything, and what it tells of itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bucketwise import __version__
from bucketwise.jobs.suite import ENTRIES, load
from tests.config.bad_configs import BAD_CONFIGS, GOOD, BadConfig
from tests.jobs.command import ROOT, CommandLine

VERBS = list(ENTRIES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bucketwise.toml").write_text(GOOD)
    return tmp_path


#: What each says is tried without the command line; `make proof` tries all with it.
A_FEW = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id, marks=[pytest.mark.proof] * (at % 12 > 0))
        for at, case in enumerate(BAD_CONFIGS)
    ],
)


@pytest.mark.in_turn(4)
@A_FEW
def test_a_bad_config_is_refused(case: BadConfig, tmp_path: Path, bucketwise: CommandLine) -> None:
    (tmp_path / "bucketwise.toml").write_text(case.text)
    ran = bucketwise("run", cwd=tmp_path)
    assert ran.code == 2
    assert ran.connected == []
    assert ran.out == ""
    for fragment in case.fragments:
        assert fragment in ran.err
    assert "hunter2" not in ran.err
    assert "Traceback" not in ran.err
    assert {path.name for path in tmp_path.iterdir()} == {"bucketwise.toml"}


@pytest.mark.in_turn(4)
@A_FEW
def test_a_bad_config_is_told_to_machines(case: BadConfig, tmp_path: Path, bucketwise: CommandLine) -> None:
    (tmp_path / "bucketwise.toml").write_text(case.text)
    ran = bucketwise("run", "--json", cwd=tmp_path)
    assert ran.code == 2
    assert ran.connected == []
    assert ran.json["command"] == "run"
    assert ran.json["policies"] == []
    for fragment in case.fragments:
        assert fragment in ran.json["error"]
    assert {"file", "key", "value", "message", "mend", "line"} == set(ran.json["problems"][0])
    assert "hunter2" not in ran.out + ran.err


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["rnu"], ["rnu", "Did you mean", "run"]),
        (["run", "--jsn"], ["--jsn", "--json", "See: bucketwise run --help"]),
        (["run", "extra"], ["extra"]),
        (["run", "--now", "noon"], ["--now", "'noon'", "2018-06-30T12:00:00Z"]),
        (["run", "-p", "tick"], ["--policy tick", "Did you mean ticks?", "bucketwise.toml"]),
        (["run", "-p", "ticks", "-p", "zzz"], ["--policy zzz", "There are: ticks, iot"]),
        (["run", "-c", "nowhere.toml"], ["nowhere.toml", "no such file", "--config"]),
        (["rollup", "--since", "2018-13-01"], ["--since", "'2018-13-01'"]),
        (["archive", "--until", "x"], ["--until", "'x'"]),
        (["verify", "--since", "2018-07-01", "--until", "2018-07-01"], ["--since 2018-07-01", "not before"]),
        (["restore", "-p", "ticks"], ["--to"]),
        (["restore", "--to", "back"], ["one policy", "--policy", "ticks, iot"]),
        (["restore", "-p", "ticks", "--to", "b", "--series", "MDB"], ["--series MDB", "FIELD=VALUE"]),
        (
            ["restore", "-p", "ticks", "--to", "b", "--series", "a=1", "--series", "a=2"],
            ["--series a=2", "given before"],
        ),
        (
            ["restore", "-p", "ticks", "--to", "b", "--keep-for", "2d"],
            ["--keep-for 2d: ", "own collection", "--to ticks"],
        ),
        (
            ["restore", "-p", "ticks", "--to", "ticks", "--keep-for", "2"],
            ["--keep-for 2: ", "not a duration", "30d"],
        ),
        (
            ["restore", "-p", "ticks", "--to", "ticks", "--keep-for", "36500d", "--now", "9999-01-01"],
            ["--keep-for 36500d: ", "year 9999"],
        ),
        (["run", "--now", "0001-01-01"], ["--now", "'0001-01-01'", "the year 300"]),
        (["unpin", "--since", "x"], ["--since", "'x'"]),
        (["coverage", "--by", "week"], ["Invalid value for '--by': 'week' is not one of 'day', 'hour'"]),
        (["pause"], ["--reason TEXT"]),
        (["pause", "--reason", " \n"], ["--reason TEXT"]),
        (["resume", "-p", "tick"], ["--policy tick", "Did you mean ticks?"]),
        (["resume", "--time"], ["resume --time", "--reason TEXT"]),
        (["resume", "--time", "--reason", "x", "--now", "2018-09-01"], ["resume --time", "leave --now out"]),
        (["schedule"], ["no policy", "schedule", "bucketwise.toml"]),
        (["schedule", "--now", "2018-07-01"], ["--now", "bucketwise run --now"]),
        (["schedule", "--metrics-port", "x"], ["--metrics-port"]),
        (["run", "--metrics-file", "metrics.txt"], ["--metrics-file", "metrics.txt", "end with .prom"]),
        (["schedule", "--metrics-file", ".prom"], ["--metrics-file", "end with .prom"]),
        (["plan", "--metrics-file", "m.prom"], ["--metrics-file"]),
        (["audit", "--html", "nowhere/audit.html"], ["--html nowhere/audit.html", "no folder nowhere"]),
    ],
    ids=" ".join,
)
def test_bad_usage_is_refused(
    arguments: list[str], fragments: list[str], folder: Path, bucketwise: CommandLine
) -> None:
    plain = bucketwise(*arguments, cwd=folder)
    told = bucketwise(*arguments, "--json", cwd=folder)
    assert (plain.code, told.code) == (2, 2)
    assert plain.connected == told.connected == []
    for fragment in fragments:
        assert fragment in plain.err
        assert fragment in told.json["error"]
    assert "Traceback" not in plain.err


def test_json_is_one_object_also_where_the_option_stands_first(folder: Path, bucketwise: CommandLine) -> None:
    ran = bucketwise("--json", "run", "-p", "tick", cwd=folder)
    assert ran.code == 2
    assert ran.json["command"] == "run"
    assert ran.json["now"].endswith("Z")


def test_options_count_before_the_verb_too(folder: Path, bucketwise: CommandLine) -> None:
    (folder / "bucketwise.toml").rename(folder / "other.toml")
    ran = bucketwise(
        "-c", "other.toml", "--now", "2018-07-01", "-p", "ticks", "run", "-p", "no", "--json", cwd=folder
    )
    assert ran.json["now"] == "2018-07-01T00:00:00Z"
    assert "--policy no: other.toml has no such policy" in ran.json["error"]


def test_the_file_is_named_by_flag_then_environment(folder: Path, bucketwise: CommandLine) -> None:
    by_environment = bucketwise("run", cwd=folder, BUCKETWISE_CONFIG="from-environment.toml")
    assert "from-environment.toml" in by_environment.err
    by_flag = bucketwise("run", "-c", "from-flag.toml", cwd=folder, BUCKETWISE_CONFIG="from-environment.toml")
    assert "from-flag.toml" in by_flag.err
    assert "from-environment.toml" not in by_flag.err


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_with_examples(verb: str, tmp_path: Path, bucketwise: CommandLine) -> None:
    ran = bucketwise(verb, "--help", cwd=tmp_path)
    assert ran.code == 0
    assert f"Usage: bucketwise {verb}" in ran.out
    assert f"bucketwise {verb}" in ran.out.partition("Examples:")[2]
    job = load(verb)
    unshown = {*job.unused, *(() if job.asks else ("yes",))}
    for option in ("config", "policy", "now", "json", "quiet", "yes"):
        assert (f"--{option} " in ran.out.replace(",", " ").partition("Examples:")[0]) == (
            option not in unshown
        )


def test_help_lists_the_verbs_and_the_exit_codes(tmp_path: Path, bucketwise: CommandLine) -> None:
    asked, bare = bucketwise("--help", cwd=tmp_path), bucketwise(cwd=tmp_path)
    assert (asked.code, bare.code) == (0, 2)
    assert asked.out == bare.out
    assert re.findall(r"(?m)^  ([a-z]+)  +[A-Z]", asked.out) == VERBS
    assert "130 interrupted" in asked.out


def test_version(tmp_path: Path, bucketwise: CommandLine) -> None:
    ran = bucketwise("--version", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, f"bucketwise {__version__}\n")
    assert version("bucketwise") == __version__


def test_the_shell_completes_verbs_and_options(tmp_path: Path, bucketwise: CommandLine) -> None:
    verbs = bucketwise(
        cwd=tmp_path, _BUCKETWISE_COMPLETE="complete_bash", COMP_WORDS="bucketwise ro", COMP_CWORD="1"
    )
    assert verbs.out.split() == ["rollup"]
    options = bucketwise(
        cwd=tmp_path, _BUCKETWISE_COMPLETE="complete_bash", COMP_WORDS="bucketwise run --j", COMP_CWORD="2"
    )
    assert options.out.split() == ["--json"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bucketwise run -p ", ["iot", "ticks"]),
        ("bucketwise run -p t", ["ticks"]),
        ("bucketwise run -c elsewhere.toml -p ", []),
    ],
)
def test_the_shell_completes_policies(
    words: str, expected: list[str], folder: Path, bucketwise: CommandLine
) -> None:
    count = str(len(words.split(" ")) - 1)
    told = bucketwise(cwd=folder, _BUCKETWISE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count)
    assert sorted(told.out.split()) == expected


def test_a_policy_without_its_option_is_told_of_it(folder: Path, bucketwise: CommandLine) -> None:
    ran = bucketwise("run", "ticks", cwd=folder)
    assert ran.code == 2
    assert "A policy is named with -p: bucketwise run -p ticks. See: bucketwise run --help" in ran.err


def test_a_server_out_of_reach_is_told_in_a_line(folder: Path, bucketwise: CommandLine) -> None:
    uri = "mongodb://me:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50"
    ran = bucketwise("status", "--json", "-q", cwd=folder, BUCKETWISE_MONGODB_URI=uri)
    assert ran.code == 1
    for policy in ("ticks", "iot"):
        error = ran.policy(policy)["error"]
        assert error.startswith("cannot reach MongoDB at 127.0.0.1:1: ")
        assert "\n" not in error
        assert "Topology" not in error
    assert "hunter2" not in ran.out + ran.err


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize("before", [[], ["--json"]])
def test_the_module_is_the_program_and_imports_what_is_named(before: list[str], folder: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bucketwise", *before, "run", "-p", "tick", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["exit_code"] == 2
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "bucketwise.jobs.rollup" in imported
    assert not imported & {
        "boto3",
        "apscheduler",
        "bucketwise.jobs.erase.verb",
        "bucketwise.jobs.status",
    }


def test_a_verb_that_is_also_the_name_of_a_policy(folder: Path, bucketwise: CommandLine) -> None:
    nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
    ran = bucketwise("-p", "run", "status", "--json", cwd=folder, BUCKETWISE_MONGODB_URI=nowhere)
    assert ran.json["command"] == "status"
    assert "  status " in bucketwise("-p", "run", "--help", cwd=folder).out
    assert "  status " in bucketwise("-h", "run", cwd=folder).out
    for before in ((), ("-p", "run")):
        assert "'status'" in bucketwise(*before, "statu", cwd=folder).err
    for words in (("-p", "run", "statu"), ("statu", "-p", "run")):
        refused = bucketwise(*words, "--json", cwd=folder).json
        assert refused["error"].endswith("See: bucketwise --help")
        assert refused["command"] is None


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("content", [b"\xff\xfe", b'[mongodb]\nuri = "\xff"', b"\0", b"[" * 5000, None])
def test_what_is_no_config(content: bytes | None, tmp_path: Path, bucketwise: CommandLine) -> None:
    """None: a folder."""
    path = tmp_path / "bucketwise.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    ran = bucketwise("check", "--json", cwd=tmp_path)
    assert (ran.code, ran.connected) == (2, [])
    assert "Traceback" not in ran.err and "defect" not in ran.err
    assert path.name in ran.json["error"]
