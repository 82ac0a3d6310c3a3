"""Every bad policy file is refused, and says place, value, fault and mend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from bucketwise.config.errors import BucketwiseError
from bucketwise.config.load import load, read_table, table_in
from bucketwise.config.models import MODELS
from bucketwise.config.policies import Settings
from bucketwise.config.problems import ConfigError, ProblemReport
from bucketwise.config.tables import Table
from tests.config.bad_configs import BAD_CONFIGS, GOOD, BadConfig, changed


def refused(path: Path, text: str, environ: dict[str, str] | None = None) -> ConfigError:
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(path, environ or {})
    return raised.value


@pytest.mark.parametrize("case", BAD_CONFIGS, ids=lambda case: case.id)
def test_message(case: BadConfig, tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    error = refused(path, case.text)
    said = str(error)
    for fragment in case.fragments:
        assert fragment in said, said
    expected = next((int(it.split()[0]) for it in case.fragments if re.fullmatch(r"\d+ problems", it)), 1)
    assert len(error.problems) == expected, said
    assert said.count(f"\n\n{path}") == expected
    assert "hunter2" not in said
    assert "hun/ter2" not in said


def test_cases_have_names_of_their_own() -> None:
    assert len({case.id for case in BAD_CONFIGS}) == len(BAD_CONFIGS) >= 30


def test_good_is_good(tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(GOOD)
    assert set(load(path, {}).policies) == {"ticks", "iot"}


MANY = changed(
    ('model = "slots"', 'model = "slot"'),
    ('settle = "10m"', 'settle = "10 minutes"'),
    ('timezone = "UTC"', 'timezone = "UTCC"'),
    ('after = "90d"', 'aftr = "90d"'),
    ('collection = "iot_archive"', 'collection = "ticks_hourly"'),
    ('flag_field = "has_extras"', 'flag_field = "$has"'),
    ('database = "market"', 'database = "${NOT_THERE}"'),
)


def test_all_problems_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    error = refused(tmp_path / "bucketwise.toml", MANY)
    assert [problem.key for problem in error.problems] == [
        "mongodb.database",
        "policies.ticks.model",
        "policies.ticks.rollup.timezone",
        "policies.ticks.rollup.settle",
        "policies.iot.overflow.flag_field",
        "policies.iot.archive.aftr",
        "policies.iot.archive.collection",
    ]
    assert str(error).startswith("7 problems in the policy file; nothing was changed\n\n")


def test_for_machines(tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    error = refused(path, changed(('settle = "10m"', 'setle = "10m"')))
    assert isinstance(error, BucketwiseError)
    assert error.exit_code == 2
    assert error.as_dicts() == [
        {
            "file": str(path),
            "key": "policies.ticks.rollup.setle",
            "value": '"10m"',
            "message": "there is no such key",
            "mend": "did you mean `settle`?",
            "line": 20,
        }
    ]


@pytest.mark.parametrize(
    "changes",
    [
        [('model = "slots"', "model = 3")],
        [('model = "samples"', "model = 3"), ('value_fields = ["val", "hum"]', 'value_fields = ["samples"]')],
        [('hourly = "ticks_hourly"', "hourly = 3")],
        [('hourly = "ticks_hourly"', "hourly = 3"), ('daily = "ticks_daily"', "")],
        [('hourly = "ticks_hourly"', 'hourly = ""'), ('daily = "ticks_daily"', "daily = 3")],
        [('collection = "ticks"', "collection = 3"), ('collection = "iot"', 'collection = ""')],
        [('collection = "ticks"', "collection = 3"), ('collection = "iot_archive"', 'collection = ""')],
        [('after = "30d"', 'after = "x"')],
        [('after = "30d"', 'after = "5m"'), ('settle = "10m"', "settle = 1")],
        [("[policies.ticks.rollup]", "[[policies.ticks.rollup]]")],
        [('url = "file:///var/lib/bucketwise"', "url = 3")],
        [('[store]\nurl = "file:///var/lib/bucketwise"', ""), ("[mongodb]", "store = 3\n[mongodb]")],
        [('to = "online"', 'to = "onlin"'), ('collection = "iot_archive"', "")],
        [('to = "offline"', 'to = "ofline"'), ('value_fields = ["p"]', 'value_fields = ["time"]')],
        [('to = "online"\ncollection = "iot_archive"', 'to = "non"\ndelete = false\ngrace = "1d"')],
        [('to = "offline"', 'to = "offline"\ndelete = 3'), ('collection = "iot"', 'collection = "ticks"')],
        [('value_fields = ["p"]', 'value_fields = "p"')],
        [
            ('value_fields = ["val", "hum"]', 'value_fields = "val"'),
            ('end_field = "last"', 'end_field = "last"\nsum_fields = {val = "s"}'),
        ],
    ],
)
def test_what_follows_from_a_broken_value_is_not_reported(
    changes: list[tuple[str, str]], tmp_path: Path
) -> None:
    error = refused(tmp_path / "bucketwise.toml", changed(*changes))
    explicit = sum(new.endswith('""') for _, new in changes if new)
    assert len(error.problems) == 1 + explicit, str(error)


def test_each_two_that_delete_from_one_collection_are_named(tmp_path: Path) -> None:
    def policy(name: str, delete: str) -> str:
        return f"""
            [policies.{name}]
            collection = "one"
            model = "reading"
            time_field = "t"
            series_fields = []
            value_fields = ["v"]
            archive = {{after = "1d", to = "offline", delete = {delete}}}
            """

    text = GOOD + policy("a", "false") + policy("b", "true") + policy("c", "true")
    (problem,) = refused(tmp_path / "bucketwise.toml", text).problems
    assert problem.key == "policies.c.collection"
    assert "policies.b.collection is this collection too" in problem.message


ODD_VALUES = [
    *(
        "3",
        "-1.5",
        "nan",
        "true",
        "1979-05-27",
        "07:32:00",
        '""',
        "[]",
        "[[]]",
        "{}",
        "[{}]",
        "{a = {b = 1}}",
    ),
    *(
        '"$where"',
        '".."',
        '"/"',
        '"\\u0000"',
        '"${"',
        '"${NOT_THERE}"',
        '"://@"',
        '"Ω"',
        '["", "$"]',
        '["${X}"]',
    ),
    *(
        f'"{"x" * 300}"',
        "99999999999999999999",
        f"[{10**400}]",
        '"s3://"',
        '"mongodb://"',
        '"http://[::1"',
        '"forever"',
        '"0s"',
    ),
]


@pytest.mark.parametrize("odd", ODD_VALUES)
def test_any_value_anywhere_is_taken_or_refused(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "bucketwise.toml"
    lines = GOOD.splitlines()
    refusals = 0
    for number, line in enumerate(lines):
        key, is_value, _ = line.partition(" = ")
        changed_line = f"{key} = {odd}" if is_value else f"{line.strip('[]') or 'x'} = {odd}"
        path.write_text("\n".join([*lines[:number], changed_line, *lines[number + 1 :]]))
        try:
            load(path, {})
        except ConfigError as error:
            refusals += 1
            assert all(problem.message and problem.remedy for problem in error.problems)
    assert refusals > len(lines) / 2


def _tables(table: type[Table]) -> Iterator[type[Table]]:
    """A table, and all that may be in it."""
    yield table
    annotations = [it.annotation for it in table.model_fields.values()]
    while annotations:
        annotation = annotations.pop()
        annotations += get_args(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Table):
            yield from _tables(annotation)


def test_each_table_may_be_empty() -> None:
    """What it needs is reported, and no error of ours."""
    of_file = filter(None, (table_in(it.annotation) for it in Settings.model_fields.values()))
    for table in {it for kind in (*MODELS.values(), *of_file) for it in _tables(kind)}:
        read_table(table, {}, ("x",), ProblemReport("bucketwise.toml", {}, {}, {}))
