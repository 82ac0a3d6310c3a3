"""`history`, `commits` and `config show`: what ran, what is archived, and by which settings."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from bucketwise.config.load import load
from bucketwise.config.written import resolved, settings_toml
from tests.config.bad_configs import GOOD
from tests.jobs.place import MINUTES, NOW, Place


def policies(told: Any) -> dict[str, Any]:
    return {it["policy"]: it for it in told.json["policies"]}


@pytest.mark.process
class TestHistory:
    def test_what_ran_the_newest_first(self, place: Place) -> None:
        assert place("history", "--json").json["policies"][0]["runs"] == []
        assert "2 policies: 0 runs" in place("history").out
        assert place("rollup").code == 0
        assert place("run").code == 0
        told = place("history", "--json")
        assert told.code == 0
        latest, first = policies(told)["ticks"]["runs"]
        assert (first["verb"], first["steps"], first["buckets"]) == ("rollup", ["rollup"], None)
        assert latest["steps"] == ["rollup", "archive", "compact", "archive_expiry", "expiry"]
        assert (latest["exit_code"], latest["buckets"], latest["bytes"] > 0) == (0, MINUTES, True)
        assert latest["started_at"] <= latest["ended_at"]
        assert latest["now_given"] == NOW
        assert {"run", "host", "user", "version"} <= latest.keys()
        assert [it["verb"] for it in policies(place("history", "--limit", "1", "--json"))["iot"]["runs"]] == [
            "run"
        ]
        text = place("history", "-p", "ticks").out
        assert "1 policy: 2 runs\n" in text

    @pytest.mark.after("run")
    def test_runs_that_failed_are_counted(self, place: Place) -> None:
        next(iter((place.folder / "store").rglob("manifests/*.json"))).unlink()
        assert place("run", "-p", "ticks").code == 5
        halted, done = policies(place("history", "--json"))["ticks"]["runs"]
        assert (halted["exit_code"], halted["outcome"], done["exit_code"]) == (5, "halted", 0)
        assert "manifest" in halted["error"]
        assert "2 policies: 3 runs; 1 of them failed, or did not come to the end" in place("history").out


@pytest.mark.process
class TestCommits:
    @pytest.mark.after("run")
    def test_what_each_holds(self, place: Place) -> None:
        told = place("commits", "--json")
        assert told.code == 0
        ((commit,), online) = (it["commits"] for it in told.json["policies"])
        assert online == []
        assert (commit["buckets"], commit["readings"]) == (MINUTES, MINUTES * 60)
        assert (commit["since"], commit["until"]) == ("2018-06-30T00:00:00Z", "2018-06-30T02:59:59Z")
        files = [it for it in place.folder.rglob(f"*{commit['commit']}*.parquet") if it.is_file()]
        assert commit["bytes"] >= sum(it.stat().st_size for it in files) > 0
        assert (commit["created_at"], commit["drilled_at"]) == (NOW, None)
        assert commit["verified_at"] == commit["created_at"]
        assert (commit["storage_class"], commit["copies"]) == (None, [])
        text = place("commits").out
        assert "ticks: 1 commit, 10,800 readings" in text
        assert "iot: there is no commit of an offline archive in this range" in text

    @pytest.mark.after("run")
    def test_of_a_range(self, place: Place) -> None:
        """That of the readings: the end does not belong to it."""
        for since, until, count in (
            ("2018-06-30T02:59:59", "2018-07-02", 1),
            ("2018-06-30T03:00", "2018-07-02", 0),
            ("2018-06-29", "2018-06-30T00:00", 0),
            ("2018-06-29", "2018-06-30T00:01", 1),
        ):
            told = place("commits", "-p", "ticks", "--since", since, "--until", until, "--json")
            assert len(told.json["policies"][0]["commits"]) == count, (since, until)


@pytest.mark.process
class TestDryRuns:
    @pytest.mark.after("run")
    @pytest.mark.parametrize("policy", ["ticks", "iot"])
    @pytest.mark.parametrize("span", [(), ("--since", "2018-06-30T01:00:30", "--until", "2018-06-30T02:00")])
    def test_a_restore_is_counted_and_nothing_is_written(
        self, place: Place, policy: str, span: tuple[str, ...]
    ) -> None:
        before = place.everything()
        counted = place("restore", "-p", policy, *span, "--dry-run", "--json")
        assert counted.code == 0
        assert place.everything() == before
        told = counted.policy(policy)
        done = place("restore", "-p", policy, *span, "--to", "back", "--json").policy(policy)
        assert [told[it] for it in ("buckets", "readings")] == [done[it] for it in ("buckets", "readings")]
        restored = sum(len(it.raw) for it in raw_of(place, "back"))
        assert (told["bytes"], told["commits"]) == (restored, int(policy == "ticks"))
        text = place("restore", "-p", policy, *span, "--dry-run").out
        assert (
            f"{policy}: would restore {told['buckets']:,} buckets with {told['readings']:,} readings" in text
        )
        assert text.rstrip().endswith("Nothing was written")

    def test_without_one_a_target_is_needed(self, untouched: Place) -> None:
        ran = untouched("restore", "-p", "ticks")
        assert (ran.code, "restore needs --to COLLECTION, or --dry-run" in ran.err) == (2, True)


def raw_of(place: Place, collection: str) -> list[Any]:
    raw = CodecOptions(document_class=RawBSONDocument)
    return list(place.database.get_collection(collection, codec_options=raw).find())


@pytest.mark.process
def test_schemas_are_told_without_a_policy_file(place: Place) -> None:
    place.config.unlink()
    of_files = place("config", "schema", "--json").json["json_schema"]
    assert {"mongodb", "store", "policies"} <= of_files["properties"].keys()
    assert json.loads(place("config", "schema").out) == of_files
    of_status = place("config", "schema", "status", "--json").json["json_schema"]
    assert of_status["properties"]["command"] == {"const": "status"}
    for arguments, remedy in (
        (("schema", "statuss"), "did you mean status?"),
        (("schema", "xyzzy"), "there are: "),
        (("show", "status"), "only `config schema` takes a command"),
    ):
        ran = place("config", *arguments)
        assert (ran.code, remedy in " ".join(ran.err.split())) == (2, True), ran


def test_the_settings_as_toml_are_what_is_told(tmp_path: Any) -> None:
    path = tmp_path / "bucketwise.toml"
    path.write_text(GOOD)
    settings = load(path, {})
    said = resolved(settings)
    assert tomllib.loads(settings_toml(said)) == said
    assert said["policies"]["ticks"]["archive"]["after"] == "30d"
