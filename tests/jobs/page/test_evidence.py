"""What an audit tells beside its findings, from outside, held against what is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from bucketwise.archivers.stores import open_store
from bucketwise.config.load import load
from bucketwise.config.policies import Policy
from bucketwise.jobs.audit.evidence import evidence_body
from bucketwise.jobs.core.turn import Step, StepResult
from tests.acceptance.readings import NAB, as_slots
from tests.jobs.asking.test_coverage import POLICY
from tests.jobs.counting import CountingStore, run_counted
from tests.jobs.page.browser import Browser
from tests.jobs.page.reports import text_of
from tests.jobs.place import MINUTES, NOW, POLICIES, Place
from tests.jobs.states import after

Body = dict[str, Any]
NOWHERE = {"readings": 0, "bytes": 0}
KEY = "4e1f" * 16


def audited(place: Place, policy: str, now: str = NOW) -> Body:
    return place("audit", "--json", "-p", policy, now=now).policy(policy)


def size_of(place: Place, *collections: str) -> int:
    """Bytes of BSON, as they come."""
    raw: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
    found: list[Any] = [place.database.get_collection(name, codec_options=raw).find() for name in collections]
    return sum(len(it.raw) for documents in found for it in documents)


def size_of_files(place: Place, policy: str) -> int:
    folder = place.folder / "store" / policy
    files = (it for part in ("data", "meta/buckets") for it in (folder / part).rglob("*") if it.is_file())
    return sum(it.stat().st_size for it in files)


def test_what_is_live_is_told_before_a_run(place: Place) -> None:
    found = audited(place, "ticks")
    live = {"readings": MINUTES * 60, "bytes": size_of(place, "ticks")}
    month = {"month": "2018-06", "live": live, "archived": NOWHERE, "online": NOWHERE}
    assert found["months"] == [{**month, "summaries": {"count": 0, "bytes": 0}}]
    run = {"first": "2018-06-30", "last": "2018-06-30", "days": 1, "state": "live", "readings": MINUTES * 60}
    assert found["coverage"] == {"states": {"live": 1}, "runs": [run]}
    assert found["deleted_by_month"] == []
    assert found["proof"] == {
        "heads": [],
        "checkpoint": None,
        "receipt": None,
        "events": [],
        "ownership": None,
        "key": None,
        "drills": {"days": 0, "drilled": 0, "oldest": None, "last": None},
    }
    assert found["untold"] == []


@pytest.mark.proof
@after("run")
def test_what_is_archived_is_told_after_it(place: Place) -> None:
    assert place("drill", "-p", "ticks").code == 0
    told = place("audit", "--json")
    ticks, iot = told.policy("ticks"), told.policy("iot")
    archived = {"readings": MINUTES * 60, "bytes": size_of_files(place, "ticks")}
    summaries = {
        "count": place.database.ticks_hourly.count_documents({}) + 1,
        "bytes": size_of(place, "ticks_hourly", "ticks_daily"),
    }
    month = {"month": "2018-06", "live": NOWHERE, "archived": archived, "online": NOWHERE}
    assert ticks["months"] == [{**month, "summaries": summaries}]
    assert ticks["coverage"]["states"] == {"archived": 1}
    (head,) = place.folder.rglob("meta/manifests/*.json")
    manifest = json.loads(head.read_text())
    assert ticks["proof"]["heads"] == [{key: manifest[key] for key in ("sequence", "commit", "sha256")}]
    assert ticks["proof"]["drills"] == {"days": 1, "drilled": 1, "oldest": NOW, "last": NOW}
    assert iot["coverage"]["states"] == {"online": 1}
    assert iot["months"][0]["online"] == {"readings": MINUTES // 10, "bytes": size_of(place, "iot_archive")}
    receipts = place("receipts", "--json")
    for policy, found in (("ticks", ticks), ("iot", iot)):
        deletes = receipts.policy(policy)["deletes"]
        assert found["deleted_by_month"] == [
            {
                "month": "2018-09",
                "receipts": len(deletes),
                "buckets": sum(it["buckets"] for it in deletes),
                "first": 1,
                "last": len(deletes),
            }
        ]
        assert found["proof"]["receipt"] == {
            key: deletes[-1][key] for key in ("sequence", "sha256", "at", "done_at", "host", "user")
        }
        assert found["policy_sha256"] == deletes[-1]["policy_sha256"]


#: Two months lie between them; of each, a reading every twenty minutes.
TWO_SERIES = ("24ae8d", "257a54")


@pytest.mark.proof
def test_months_sum_what_coverage_counts_by_day(place: Place) -> None:
    """Of real readings of months: live, archived, and a day of both."""
    some = [list(islice((it for it in NAB.read() if name in it.series), 0, None, 4)) for name in TWO_SERIES]
    documents = as_slots([*some[0], *some[1]], "minute")
    place.database.metrics.insert_many([it | {"_id": number} for number, it in enumerate(documents)])
    place.database.metrics.create_index("at")
    archive = POLICY + 'to = "offline"\ngrace = "3d"\n'
    place.write_config(archive)
    now = "2014-03-25T12:00:00Z"
    for at in ("2014-03-20T00:00:00Z", now):
        assert place("run", now=at).code == 0
    found = audited(place, "metrics", now)
    days = place("coverage", "--json", now=now).policy("metrics")["days"]
    months = {it["day"][:7] for it in days}
    assert len(months) >= 2
    assert {"archived", "both", "live"} <= found["coverage"]["states"].keys()
    for month in found["months"]:
        for kind in ("live", "archived", "online"):
            counts = [it[kind] for it in days if it["day"].startswith(month["month"])]
            assert month[kind]["readings"] == sum(counts), (month["month"], kind)
    assert sum(it["live"]["bytes"] for it in found["months"]) == size_of(place, "metrics")
    assert sum(it["archived"]["bytes"] for it in found["months"]) == size_of_files(place, "metrics")
    summaries = [place.database[it].count_documents({}) for it in ("metrics_hourly", "metrics_daily")]
    assert sum(it["summaries"]["count"] for it in found["months"]) == sum(summaries)
    told = {
        datetime.fromisoformat(run["first"]).date() + timedelta(days=n): run["state"]
        for run in found["coverage"]["runs"]
        for n in range(run["days"])
    }
    assert {day.isoformat(): state for day, state in told.items()} == {it["day"]: it["state"] for it in days}


@pytest.mark.proof
@after("run")
def test_only_who_asks_for_evidence_waits_for_it(place: Place) -> None:
    assert "months" in audited(place, "ticks")
    assert "Where each day is" not in place("audit").out


@after("run")
def test_evidence_reads_no_part(place: Place, mongodb_uri: str) -> None:
    settings = load(place.config, {"MONGODB_URI": mongodb_uri})
    assert settings.store is not None
    store: Any = _Named(open_store(settings.store))
    policy: Policy = settings.policies["ticks"]
    step = Step("evidence", lambda turn: StepResult(evidence_body(turn.context)))
    now = datetime.fromisoformat(NOW)
    found, counts = run_counted(
        mongodb_uri,
        place.database.name,
        [step],
        [policy],
        store,
        now,
        dry_run=True,
    )
    assert found[0].error is None
    assert found[0].body["months"][0]["archived"]["readings"] == MINUTES * 60
    assert store.keys and not [key for key in store.keys if key.endswith(".parquet")]
    assert counts.commands.total() < 60


class _Named(CountingStore):
    """Notes the names of what is read."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        self.keys.append(key)
        return bytes(self.inner.get_bytes(key, size))

    def get_sound(self, key: str, _is_sound: Callable[[bytes], bool], size: int | None = None) -> bytes:
        return self.get_bytes(key, size)


@after("run")
def test_where_the_archive_is_not_all_there_the_rest_is_told(place: Place) -> None:
    (manifest,) = place.folder.rglob("meta/manifests/*.json")
    manifest.unlink()
    ran = place("audit", "--json", "--html", "audit.html")
    assert ran.code == 4
    found = ran.policy("ticks")
    assert found["coverage"] is None and found["months"] is None
    assert manifest.name in found["untold"][0]
    assert found["deleted_by_month"][0]["buckets"] == MINUTES
    assert ran.policy("iot")["untold"] == []
    told = text_of((place.folder / "audit.html").read_text(encoding="utf-8"))
    assert f"Not told: {found['untold'][0]}" in told
    assert "Follow “What to do at exit 5” in the operations manual." in told


@pytest.mark.proof
def test_a_file_of_old_receipts_that_is_gone_is_told(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "offline"', 'to = "offline"\nmove_receipts = "1d"'))
    late = "2018-09-20T00:00:00Z"
    for now in (NOW, late):
        assert place("run", "-p", "ticks", now=now).code == 0
    whole = audited(place, "ticks", late)
    assert whole["deleted_by_month"][0]["buckets"] == MINUTES
    (file,) = (it for it in place.folder.rglob("meta/receipts/*") if it.is_file())
    file.unlink()
    found = audited(place, "ticks", late)
    assert found["deleted_by_month"] is None
    assert "missing" in found["untold"][0]
    assert found["months"] == whole["months"]


def test_too_long_a_time_is_told_and_the_audit_goes_on(place: Place) -> None:
    for year in (1000, 2017):
        at = datetime(year, 1, 1, tzinfo=UTC)
        place.database.ticks.insert_one({"symbol": "MDB", "d": at, "p": {"0": 1.5}})
    ran = place("audit", "--json", "-p", "ticks", "--html", "audit.html")
    assert ran.code == 4
    assert ran.policy("ticks")["months"] is None
    assert "rows" in ran.policy("ticks")["untold"][0]
    assert ran.policy("ticks")["findings"]


@pytest.mark.proof
def test_the_page_has_what_the_json_has(place: Place, browser: Browser) -> None:
    """With a key, after a drill, at a desk."""
    place.config.write_text(place.config.read_text().replace("[store]", f'[store]\nsigning_key = "{KEY}"'))
    place("run")
    place("drill")
    place("hold", "add", "case-17", "-p", "ticks", "--reason", "Litigation", "--until", "2018-07-01")
    ran = place("audit", "--json", "--html", "audit.html")
    assert ran.code == 0
    page = (place.folder / "audit.html").read_text(encoding="utf-8")
    assert KEY not in page + ran.out
    browser.show(page)
    told = browser.ask("document.body.innerText")
    top, found = ran.json, ran.policy("ticks")
    for text in (top["by"], top["version"], top["database"], top["hosts"], top["config"], top["now"]):
        assert text in told
    proof = found["proof"]
    assert proof["key"] and f"the key {proof['key']}" in told
    (hold,) = found["holds"]
    assert hold["name"] in told and f"{hold['placed_at']} by {hold['by']}" in told
    receipt = proof["receipt"]
    for text in (*proof["heads"][0].values(), *receipt.values(), proof["drills"]["last"]):
        assert str(text) in told
    assert f"{found['words'][:1].upper()}{found['words'][1:]}." in told
    assert found["settings"] in told
    rows = browser.ask(
        "[...document.querySelectorAll('#policy-1-months ~ .beside tbody tr')]"
        ".map(row => [...row.cells].map(it => it.innerText))"
    )
    size = size_of_files(place, "ticks")
    assert rows[0][:3] == ["2018-06", f"{MINUTES * 60:,}", f"{size / 1000:.1f} kB"]
    assert rows[1][:3] == ["2018-09", str(MINUTES), str(found["deleted_by_month"][0]["receipts"])]
    strip = "document.querySelectorAll('section:nth-of-type(1) .strip path title')[0].textContent"
    assert browser.ask(strip) == "2018-06-30: archived, 10,800 readings"
    assert browser.complaints() == []


@pytest.mark.proof
def test_a_page_appears_once_it_is_whole(place: Place, tmp_path: Path) -> None:
    """And what was there before is replaced; a pipe is written to."""
    page = tmp_path / "audit.html"
    page.write_text("old")
    place("audit", "--html", str(page), "-p", "iot")
    assert page.read_text().endswith("</html>\n")
    assert list(tmp_path.glob(".audit*")) == []
    link = tmp_path / "link.html"
    link.symlink_to(page)
    page.write_text("old")
    place("audit", "--html", str(link), "-p", "iot")
    assert link.is_symlink()
    assert page.read_text().endswith("</html>\n")
