"""Each method of `bucketwise.Suite` once, against the database of the demo:

    bucketwise demo --keep
    python every_method.py FOLDER_OF_THE_DEMO/bucketwise.toml

It prints a line for each. What it restores goes into a collection of its own.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import bucketwise
from bucketwise import Suite, errors
from bucketwise.suite import Progress


def tell(progress: Progress) -> None:
    """Is called from the thread that works."""
    if progress.share == 1:
        print(f"         {progress.what}: done", file=sys.stderr)


def main(config: str, now: str | None = None) -> None:
    """Calls them in the order in which one gets to know them."""
    suite = Suite(config, now=now, progress=tell)

    checked = suite.check()
    print("check    ", checked.exit_code, [it["code"] for it in checked["ticks"].findings])

    planned = suite.plan()
    print("plan     ", {it.policy: it.body["archive"]["buckets"] for it in planned.policies})

    rolled = suite.rollup()
    print("rollup   ", {it.policy: it.readings for it in rolled.check().policies})

    archived = suite.archive()
    print("archive  ", {it.policy: it.body["buckets"] for it in archived.policies})

    ran = suite.run()
    print("run      ", ran.exit_code, {it.policy: list(it.body) for it in ran.policies}["ticks"][2:])

    ticks = Suite(config, ["ticks"], now=now)
    covered = ticks.coverage()["ticks"]
    print("coverage ", covered.states)
    day = next(it["day"] for it in covered.days if it["archived"])

    since = datetime.fromisoformat(f"{day}T00:00+00:00")
    until = since + timedelta(days=1)
    told = ticks.summarize(since, until)["ticks"]
    print("summarize", [(it["series"], it["count"]) for it in told.series][:2])

    with tempfile.TemporaryDirectory() as folder:
        found = ticks.readings(Path(folder) / "readings.parquet", since, until)["ticks"]
        print("readings ", found.readings)
        audited = suite.audit(html=Path(folder) / "audit.html")
    print("audit    ", audited.exit_code, {it.policy: len(it.findings) for it in audited.policies})

    verified = suite.verify()
    print("verify   ", {it.policy: it.parts for it in verified.check().policies})

    would = ticks.restore(since=since, until=until, dry_run=True)["ticks"]
    back = ticks.restore("ticks_again", since, until)["ticks"]
    print("restore  ", would.buckets, back.buckets)

    try:
        ticks.restore("ticks_again", "yesterdy")
    except errors.UsageError as error:
        print("refused  ", str(error).split(":")[0])

    with bucketwise.connect(config) as connection:
        (count,) = connection.execute("SELECT count(*) FROM ticks").fetchone()
    print("connect  ", count)
    first = next(iter(bucketwise.scan("ticks", since, until, config=config)))
    print("scan     ", first.num_rows > 0)


if __name__ == "__main__":
    main(*sys.argv[1:3])
