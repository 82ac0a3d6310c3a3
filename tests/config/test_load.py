"""Good policy files, where they are found, and what the environment adds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

import bucketwise.config
from bucketwise.config.amounts import format_size, parse_size
from bucketwise.config.load import load
from bucketwise.config.models import MODELS, fields_of, make_policy
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
    ValueField,
)
from bucketwise.config.problems import ConfigError
from bucketwise.config.tables import MongoDB, PolicyRedis, Redis, RunLedger, Store, Table, Workers
from tests.config.bad_configs import GOOD, changed

EXAMPLE = Path(bucketwise.config.__file__).with_name("example.toml")
URI = "mongodb://127.0.0.1:27017/?replicaSet=rs0"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "bucketwise.toml"
    path.write_text(GOOD)
    return path


def test_example_loads() -> None:
    settings = load(EXAMPLE, {"MONGODB_URI": URI})
    assert settings.mongodb.uri.get_secret_value() == URI
    assert {policy.model for policy in settings.policies.values()} == {
        "reading",
        "slots",
        "samples",
        "timeseries",
    }
    ticks = settings.policies["ticks"]
    assert ticks.name == "ticks"
    assert ticks.rollup == Rollup(
        hourly="ticks_hourly",
        daily="ticks_daily",
        timezone="America/New_York",
        settle=timedelta(minutes=10),
        late_data="auto",
        recheck=timedelta(days=2),
        percentiles=(50, 95, 99),
        levels=(
            RollupLevel(name="15m", collection="ticks_15m"),
            RollupLevel(name="monthly", collection="ticks_monthly"),
        ),
    )
    assert ticks.archive == Archive(
        after=timedelta(days=30),
        to="offline",
        grace=timedelta(0),
        delete=True,
        batch=timedelta(days=1),
    )
    assert ticks.retain is not None
    kept = {"15m": timedelta(days=90), "hourly": timedelta(days=730), "daily": None, "monthly": None}
    assert ticks.retain.by_level == kept
    assert settings.policies["iot"].sums == {"val": "sum_val"}
    assert (ticks.expected_interval, ticks.max_hole) == (timedelta(seconds=1), timedelta(minutes=10))


def test_example_explains_every_key() -> None:
    text = EXAMPLE.read_text()
    models: tuple[type[Table], ...] = (
        MongoDB, Store, Workers, RunLedger, Redis, PolicyRedis, *MODELS.values(), Rollup, RollupLevel,
        Archive, Compact, Audit, Retain, Rule, Overflow, ValueField,
    )  # fmt: skip
    for model in models:
        fields = fields_of(model) if issubclass(model, Policy) else model.model_fields
        for key in {it.alias or name for name, it in fields.items()} - {"name"}:
            assert f"{key} = " in text or f".{key}]" in text or f".{key}." in text, key


def test_a_policy_needs_no_more_than_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "least.toml"
    path.write_text(
        f"""
        [mongodb]
        uri = "{URI}"
        database = "db"
        [policies.weather]
        collection = "weather"
        model = "timeseries"
        time_field = "at"
        series_fields = []
        value_fields = ["t"]
        """
    )
    settings = load(path, {})
    assert settings.store is None
    assert settings.policies["weather"] == make_policy(
        name="weather",
        collection="weather",
        model="timeseries",
        time_field="at",
        series_fields=(),
        value_fields=("t",),
    )


def test_the_zone_of_the_clock_is_that_of_days(path: Path) -> None:
    path.write_text(changed(('model = "slots"', 'model = "slots"\ntimezone = "Asia/Tokyo"')))
    ticks = load(path, {}).policies["ticks"]
    assert ticks.rollup and (ticks.timezone, ticks.rollup.timezone) == ("Asia/Tokyo", "UTC")
    path.write_text(
        changed(('model = "slots"', 'model = "slots"\ntimezone = "Asia/Tokyo"'), ('timezone = "UTC"', ""))
    )
    ticks = load(path, {}).policies["ticks"]
    assert ticks.rollup and ticks.rollup.timezone == "Asia/Tokyo"


def test_models_built_in_python() -> None:
    archive = Archive(after=None, to="none")
    assert archive.delete
    with pytest.raises(ValidationError, match="frozen"):
        archive.delete = False


@pytest.mark.parametrize(
    "change",
    [
        ('after = "30d"', 'after = "10m"'),  # as long as settle
        ('hourly = "730d"', 'hourly = "30d"'),  # as long as after
        ('hourly = "730d"', 'hourly = "forever"'),
        ('to = "offline"', 'to = "offline"\ncollection = "ticks_archive"'),
        ('to = "offline"', 'to = "offline"\ngrace = "1d"'),
        ('to = "offline"', 'to = "offline"\nbatch = "31d"'),
        (
            'value_fields = ["val", "hum"]',
            'value_fields = ["start", "time_", "count"]',
        ),  # no rollup, not offline
        ('series_fields = ["symbol"]', 'series_fields = ["meta.a", "meta.b"]'),
        ('slot = "second"', 'slot = "minute"\nschedule = "@daily"'),
        ('url = "file:///var/lib/bucketwise"', 'url = "s3://acme.archive-1/a/b"\nregion = "eu-west-1"'),
        ('url = "file:///var/lib/bucketwise"', 'url = "s3://acme"\nendpoint_url = "http://[::1]:9000"'),
        ("127.0.0.1:1/", "bob:p%40ss@[::1]:1,other:2/admin"),
        ("mongodb://127.0.0.1:1/?replicaSet=rs0", "mongodb+srv://bob:x@cluster.example.net/?appName=a"),
    ],
)
def test_is_taken(change: tuple[str, str], path: Path) -> None:
    path.write_text(changed(change))
    assert load(path, {}).path == path


def test_two_policies_may_read_one_collection_where_one_deletes(path: Path) -> None:
    path.write_text(
        changed(
            ('collection = "iot"', 'collection = "ticks"'), ('to = "online"', 'to = "online"\ndelete = false')
        )
    )
    assert load(path, {}).policies["iot"].collection == "ticks"


def test_last_slash_of_the_store_goes(path: Path) -> None:
    path.write_text(changed(("file:///var/lib/bucketwise", "file:///var/lib/bucketwise/")))
    store = load(path, {}).store
    assert store is not None
    assert store.url == "file:///var/lib/bucketwise"


class TestPath:
    def test_flag_before_environment(self, path: Path) -> None:
        assert load(path, {"BUCKETWISE_CONFIG": "/nowhere/else.toml"}).path == path

    def test_environment_before_working_directory(
        self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other.toml"
        other.write_text(GOOD)
        monkeypatch.chdir(path.parent)
        assert load(None, {"BUCKETWISE_CONFIG": str(other)}).path == other

    @pytest.mark.parametrize("environ", [{}, {"BUCKETWISE_CONFIG": ""}])
    def test_working_directory(
        self, environ: dict[str, str], path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(path.parent)
        assert load(None, environ).path == Path("bucketwise.toml")

    def test_no_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(
            ConfigError, match=r"bucketwise.toml\n  error: there is no such file\n  fix:   .*--config"
        ):
            load(None, {})

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
            load(tmp_path, {})

    def test_not_text(self, path: Path) -> None:
        path.write_bytes(b'a = "\xff"')
        with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 5\)"):
            load(path, {})

    def test_byte_order_mark(self, path: Path) -> None:
        path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
        assert load(path, {}).mongodb.database == "market"


class TestEnvironment:
    def test_overrides(self, path: Path) -> None:
        settings = load(
            path,
            {
                "BUCKETWISE_MONGODB_URI": "mongodb://other:1",
                "BUCKETWISE_MONGODB_DATABASE": "elsewhere",
                "BUCKETWISE_STORE_URL": "s3://bucket/p",
                "BUCKETWISE_STORE_ENDPOINT_URL": "http://127.0.0.1:9000",
                "BUCKETWISE_STORE_REGION": "eu-west-1",
            },
        )
        assert settings.mongodb.uri.get_secret_value() == "mongodb://other:1"
        assert settings.mongodb.database == "elsewhere"
        assert settings.store is not None
        others = {"signing_key", "encryption_key", "key_command", "copies"}
        assert settings.store.model_dump(exclude=others) == {
            "url": "s3://bucket/p",
            "endpoint_url": "http://127.0.0.1:9000",
            "region": "eu-west-1",
            "object_lock": None,
        }

    def test_override_makes_the_table(self, path: Path) -> None:
        path.write_text(changed(('[store]\nurl = "file:///var/lib/bucketwise"\n', "")))
        store = load(path, {"BUCKETWISE_STORE_URL": "file:///data"}).store
        assert store is not None
        assert store.url == "file:///data"

    def test_override_goes_before_a_variable_that_is_not_there(self, path: Path) -> None:
        path.write_text(changed(('database = "market"', 'database = "${NOT_THERE}"')))
        assert load(path, {"BUCKETWISE_MONGODB_DATABASE": "db"}).mongodb.database == "db"

    def test_empty_override_is_none(self, path: Path) -> None:
        assert load(path, {"BUCKETWISE_MONGODB_DATABASE": ""}).mongodb.database == "market"

    def test_override_is_taken_as_it_is(self, path: Path) -> None:
        with pytest.raises(ConfigError, match="it is not a valid MongoDB database name"):
            load(path, {"BUCKETWISE_MONGODB_DATABASE": "${NAME}", "NAME": "db"})

    def test_bad_override_names_its_variable(self, path: Path) -> None:
        with pytest.raises(ConfigError) as raised:
            load(path, {"BUCKETWISE_MONGODB_URI": "mysql://bob:hunter2@db"})
        (problem,) = raised.value.problems
        assert problem.file == "environment variable BUCKETWISE_MONGODB_URI"
        assert (problem.key, problem.line) == ("mongodb.uri", None)
        assert problem.value == '"mysql://***@db"'

    def test_names_are_replaced_everywhere(self, path: Path) -> None:
        path.write_text(
            changed(
                ('database = "market"', 'database = "${DB}"'),
                ('series_fields = ["symbol"]', 'series_fields = ["${A}.${B}"]'),
                ('after = "30d"', 'after = "${DAYS}d"'),
                ('end_field = "last"', 'end_field = "last"\nsum_fields = {val = "sum_${A}"}'),
            )
        )
        settings = load(path, {"DB": "db", "A": "x", "B": "y", "DAYS": "31"})
        assert settings.mongodb.database == "db"
        assert settings.policies["ticks"].series_fields == ("x.y",)
        archive = settings.policies["ticks"].archive
        assert archive is not None
        assert archive.after == timedelta(days=31)
        assert settings.policies["iot"].sums == {"val": "sum_x"}

    def test_what_is_replaced_is_not_looked_at_again(self, path: Path) -> None:
        path.write_text(changed(('series_fields = ["symbol"]', 'series_fields = ["${A}"]')))
        assert load(path, {"A": "x${B}"}).policies["ticks"].series_fields == ("x${B}",)

    def test_literal(self, path: Path) -> None:
        path.write_text(changed(('series_fields = ["symbol"]', 'series_fields = ["a$${B}c", "d$"]')))
        assert load(path, {}).policies["ticks"].series_fields == ("a${B}c", "d$")

    def test_every_missing_variable_is_named(self, path: Path) -> None:
        path.write_text(changed(('series_fields = ["symbol"]', 'series_fields = ["${A}", "${B}${C}${A}"]')))
        with pytest.raises(ConfigError) as raised:
            load(path, {"C": "there"})
        said = {problem.message for problem in raised.value.problems}
        assert said == {"the environment variable A is not set", "the environment variable B is not set"}

    @pytest.mark.parametrize("variable", ["BUCKETWISE_MONGODB_DATABASE", "NAME"])
    def test_bytes_that_are_no_text(self, variable: str, path: Path) -> None:
        path.write_text(changed(('database = "market"', 'database = "${NAME}"')))
        with pytest.raises(ConfigError, match="its value in the environment is not UTF-8") as raised:
            load(path, {"NAME": "db", variable: "db\udcff"})
        assert str(raised.value).encode()

    def test_values_from_the_environment_are_not_shown(self, path: Path) -> None:
        path.write_text(
            changed(
                ("mongodb://127.0.0.1:1/?replicaSet=rs0", "${URI}"),
                ('value_fields = ["p"]', 'value_fields = ["${FIELD}"]'),
                ('hourly = "ticks_hourly"', 'hourly = "${TARGET}"'),
                ('daily = "ticks_daily"', 'daily = "${TARGET}"'),
            )
        )
        environ = {"URI": "mongodb://bob:hunter2", "FIELD": "count", "TARGET": "topsecret"}
        with pytest.raises(ConfigError) as raised:
            load(path, environ)
        shown = {problem.key: problem.value for problem in raised.value.problems}
        assert shown == {
            "mongodb.uri": '"${URI}"',
            "policies.ticks.value_fields": '"${FIELD}"',
            "policies.ticks.rollup.daily": '"${TARGET}"',
        }
        assert "hunter2" not in str(raised.value)
        assert "topsecret" not in str(raised.value)


class TestWork:
    @pytest.mark.parametrize(
        ("table", "environ", "workers", "executor", "memory"),
        [
            ("", {}, 1, None, 400_000_000),
            ('workers = 4\nmemory = "2GB"', {}, 4, None, 2_000_000_000),
            ('executor = "dask://10.0.0.7:8786"', {}, 1, "dask://10.0.0.7:8786", 400_000_000),
            ('executor = "tls://[::1]:8786"', {}, 1, "tls://[::1]:8786", 400_000_000),
            ("workers = 4", {"BUCKETWISE_WORK_WORKERS": "2"}, 2, None, 400_000_000),
            ("", {"BUCKETWISE_WORK_EXECUTOR": "dask://h:1"}, 1, "dask://h:1", 400_000_000),
            ('memory = "2GB"', {"BUCKETWISE_WORK_MEMORY": "50MB"}, 1, None, 50_000_000),
        ],
    )
    def test_who_works(
        self, path: Path, table: str, environ: dict[str, str], workers: int, executor: str | None, memory: int
    ) -> None:
        path.write_text(f"{GOOD}\n[work]\n{table}\n")
        work = load(path, environ).work
        assert (work.workers, work.executor, work.memory) == (workers, executor, memory)

    @pytest.mark.parametrize("text", ["two", "-1", "1.5", "٣", "0", "1000"])
    def test_a_variable_that_is_no_count(self, path: Path, text: str) -> None:
        with pytest.raises(ConfigError, match="variable BUCKETWISE_WORK_WORKERS"):
            load(path, {"BUCKETWISE_WORK_WORKERS": text})

    @pytest.mark.parametrize("size", [50_000_000, 400_000_000, 2_000_000_000, 999_999 * 10**9])
    def test_sizes_read_back(self, size: int) -> None:
        assert parse_size(format_size(size)) == size
