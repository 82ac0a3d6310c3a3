"""Each job is killed at each of its steps: before it, after it, and after it with the reply lost.

Nothing is lost, nothing is double; clean runs finish the work; one more changes nothing. What the runs of
an offline archive did is a path of the model that `tests/explore` explores. `make soak` tries
all, `make proof` each step once, `make test` some. `BUCKETWISE_CRASH_SEEDS=5,6` chooses
other seeds: which of a step's jobs, which of its occurrences, whether the recovery is killed as well, whether
the world goes on before it.
"""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import bson
import pytest
from pymongo import MongoClient

from bucketwise.config.tables import Store
from bucketwise.jobs.core.ledger import Ledger, Run
from tests.faults.crashes.jobs import CHANGED, ENDING, JOBS, RETAIN, Job, changed
from tests.faults.crashes.points import Moment, counts, read_log
from tests.faults.crashes.steps import STEPS, Step
from tests.faults.crashes.traces import follow, is_modelled, verb_of
from tests.faults.scene import NOW, Scene
from tests.faults.stopping import set_parameter
from tests.faults.tally import Tally
from tests.jobs.command import CommandLine
from tests.tiers import tier

Document = dict[str, Any]
SEEDS = [int(seed) for seed in os.environ.get("BUCKETWISE_CRASH_SEEDS", "0,1,2").split(",")]
#: Of each a case is tried by `make test`, or by the proofs: they recover in different ways.
FIRST = ("offline", "online", "roll-up")
SAMPLE = [
    *("offline", "online", "amended", "roll-up", "compacted and dropped"),
    *("erased", "late", "clean-up", "expired archive", "restore"),
]
HOOKS = "tests.faults.crashes.points"
_KILLED = -9
Make = Callable[[Job], Scene]


@dataclass(frozen=True)
class Case:
    step: Step
    moment: Moment
    seed: int

    @property
    def job(self) -> str:
        return self.step.jobs[self.seed % len(self.step.jobs)]

    @property
    def waits(self) -> bool:
        """Whether the next run waits until MongoDB ends the transaction that was left open."""
        return self.seed % 3 == 2

    @property
    def place(self) -> Job:
        """The second seed has the other S3 server, unless it is about storage classes, which that has not."""
        job = JOBS[self.job]
        is_other = job.store == "moto" and self.seed % 3 == 1 and "storage_class" not in job.text
        return replace(job, store="rclone") if is_other else job

    def __str__(self) -> str:
        return f"{self.job}: {self.step.name}: {self.moment}: {self.seed}"

    @property
    def replay(self) -> str:
        test = f"tests/faults/proofs/test_crash_points.py::test_killed[{self}]"
        return f'BUCKETWISE_CRASH_SEEDS={self.seed} pytest -n 0 "{test}"'


def jobs() -> Iterator[Any]:
    for name in JOBS:
        yield pytest.param(name, marks=[pytest.mark.proof] * (name not in FIRST))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Thousands of cases are made only where they are not left out again."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(cases(all_="not soak" not in metafunc.config.option.markexpr)))


def cases(*, all_: bool) -> Iterator[Any]:
    """The proofs try each step, at one of its moments, with one of the seeds. `all_`: the others as well."""
    found = [Case(step, moment, seed) for seed in SEEDS for step in STEPS for moment in step.moments]
    few = sample(found)
    first = [it for it in few if it.job in FIRST or SEEDS != [0, 1, 2]]
    turns = {
        Case(it, it.moments[at % len(it.moments)], SEEDS[at % len(SEEDS)]) for at, it in enumerate(STEPS)
    }
    for case in found:
        is_proof = case in few or case in turns
        if all_ or is_proof:
            yield pytest.param(case, id=str(case), marks=tier(is_first=case in first, is_proof=is_proof))


def sample(found: list[Case]) -> list[Case]:
    """One case of each of these jobs; among them are all seeds and moments."""
    if SEEDS != [0, 1, 2]:
        return found
    moments, few = get_args(Moment), []
    for number, job in enumerate(SAMPLE):
        seed, moment = (0, 1, 0, 0, 2)[number % 5], moments[number % 4]
        fitting = [it for it in found if (it.job, it.seed, it.moment) == (job, seed, moment)]
        few.append(random.Random(job).choice(fitting))
    return few


@pytest.fixture
def make(
    request: pytest.FixtureRequest, tmp_path: Path, client: MongoClient[Document], bucketwise: CommandLine
) -> Iterator[Make]:
    """A scene with a database and a store of its own, in which all stands ready for the job."""
    names: list[str] = []

    def make(job: Job) -> Scene:
        names.append(f"test_{uuid.uuid4().hex[:12]}")
        folder = tmp_path / names[-1]
        folder.mkdir()
        if job.store == "file":
            (folder / "store").mkdir()
            store = Store(url=(folder / "store").as_uri())
        else:
            store = request.getfixturevalue(f"{job.store}_store")
            store = store.model_copy(update={"url": f"{store.url}/{names[-1]}"})
        uri = request.getfixturevalue("mongodb_uri")
        it = Scene(folder, client[names[-1]], uri, store, bucketwise, job.text)
        job.prepare(it)
        return it

    yield make
    for name in names:
        client.drop_database(name)


@pytest.fixture(scope="module")
def met() -> dict[str, Counter[str]]:
    """How often each step is met, by job."""
    return {}


@pytest.fixture
def short_transactions(client: MongoClient[Document], case: Case) -> Iterator[None]:
    """What a killed process leaves open keeps the next one waiting: a minute, where nobody says otherwise."""
    with set_parameter(client, "transactionLifetimeLimitSeconds", 3 if case.waits else 60):
        yield


def run(scene: Scene, job: Job, log: str, **given: Any) -> int:
    given = {**job.given(scene, log), **given}
    code = scene.run(*job.command, meddle=(HOOKS, given)).code
    if is_modelled(job.text, verb := verb_of(job.command)):
        follow(job.text, verb, scene.folder / log)
    return code


@pytest.mark.proof
@pytest.mark.parametrize("name", list(jobs()))
def test_every_step_is_reached_and_has_a_name(make: Make, name: str) -> None:
    job = JOBS[name]
    scene = make(job)
    assert run(scene, job, "log") == job.code
    found = counts(scene.folder / "log")
    assert {step.label for step in STEPS if name in step.jobs} - found.keys() == set()
    assert found.keys() - {step.label for step in STEPS} == set()
    if not name.startswith("erased"):  # which deletes what has no copy
        check_order(scene.folder / "log")


def test_the_table_names_what_there_is() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        module, _, path = step.where.partition(":")
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        assert callable(found)


@pytest.mark.proof
@pytest.mark.usefixtures("short_transactions")
def test_killed(
    make: Make,
    client: MongoClient[Document],
    met: dict[str, Counter[str]],
    tally: Tally,
    case: Case,
) -> None:
    sys.stdout.write(f"{case.replay}\n")  # shown where it fails
    job, chance = case.place, random.Random(str(case))
    if case.seed and case.job not in met:
        traced = make(job)
        run(traced, job, "log")
        met[case.job] = counts(traced.folder / "log")
    scene = make(job)
    entries = Ledger(scene.database).last_runs("it", 0)  # all
    nth = chance.randint(1, max(1, met[case.job][case.step.label])) if case.seed else 1
    ahead, times = chance.randint(0, 2), (1, 5)[case.seed % 2]
    code = run(scene, job, "log", at=case.step.label, nth=nth, moment=case.moment, times=times, ahead=ahead)
    runs = 1

    def settle() -> None:
        """What the application wrote meanwhile; then what is to be seen of it."""
        if case.job.startswith("erased"):
            job.after(scene)
        if CHANGED in scene.truth.units and is_live(scene, changed(scene)[0]):
            scene.truth.wrote(*changed(scene))
        found = scene.toll()
        tally("crash points", f"{case.job}: {case.step.name}, {case.moment}", runs=runs, **found._asdict())
        assert found[1:] == (0, 0)
        scene.truth.check_rolled_up()
        if not case.waits:
            client.admin.command("killAllSessions", [])

    job.after(scene)
    settle()
    if case.moment == "goes on":
        assert code in (job.code, 1)
    else:
        assert code == _KILLED, f"{case.step.label} was not reached"
    if not ahead and not case.job.startswith("erased"):
        check_order(scene.folder / "log")
    check_ledger(scene, case, code, entries)
    if case.seed % 2:
        given = {**job.watched(scene, "again"), "number": chance.randint(1, met[case.job].total())}
        assert scene.run("run", meddle=(HOOKS, given)).code in (_KILLED, 0, 3, 5 * job.halts)
        if is_modelled(job.text, "run", verb_of(job.command)):
            follow(job.text, "run", scene.folder / "again")
        settle()
    elif "slots" in job.text and job.store == "file" and "grace" not in job.text and ENDING not in job.text:
        take_identity(scene)  # with a grace it would wait for its own
    if job.recover:
        scene.well(*job.recover)
    job.recovered(scene)
    runs = scene.finish(meddle=(HOOKS, job.watched(scene, "clean")))
    if is_modelled(job.text, "run", verb_of(job.command)):
        follow(job.text, "run", scene.folder / "clean")
    job.finished(scene)
    now = NOW
    if case.job.startswith("compacted"):
        now = compact_and_finish(scene)
        runs += 5
    tally("crash points", f"{case.job}: {case.step.name}, {case.moment}", runs=runs)
    if "undelete" in job.command:
        assert (
            scene.database["bucketwise_receipts"].count_documents({"tombstone.due": {"$exists": True}}) == 0
        )
    if RETAIN in job.text:
        assert scene.database["it_hourly"].count_documents({}) == 0
    if job.store != "rclone":
        check_cleaned(scene, job, now)


def compact_and_finish(scene: Scene) -> datetime:
    """Each day becomes one commit, and what was replaced is dropped when its delay is over. Returns the time
    at which the last of its five runs was."""
    now = NOW + timedelta(days=1)
    scene.well("compact", now=now)
    days = Counter(it["first"][:10] for it in scene.truth.manifests())
    assert set(days.values()) == {1}, days
    assert scene.toll()[1:] == (0, 0)
    assert scene.policy.archive is not None
    now += scene.policy.archive.compact.delay
    scene.finish(now)
    assert scene.truth.merged_away(now) == []
    assert scene.well("verify", now=now)["bad"] == 0
    return now


def is_live(scene: Scene, raw: bytes) -> bool:
    return raw in scene.truth.raw("it")


def take_identity(scene: Scene) -> None:
    """The world goes on: where a bucket is gone, another takes its `_id`. Both have to be kept."""
    if scene.database["it"].count_documents({"_id": 0}):
        return
    units = scene.truth.units
    units["the first"] = units.pop(0)
    document = bson.decode(units["the first"][0])
    scene.write(bson.encode({**document, "p": {"1": 1000.0}}))


def check_order(log: Path) -> None:
    """Nothing is deleted but what was read back from where it lies, and then committed."""
    # A roll-up between the commit and the delete reads parts and manifests as well.
    last: dict[str, int] = {}
    before: dict[str, int] = {}  # `last` as it was at the last commit
    since: dict[str, int] = {}  # what was first after it
    for at, (mark, label, *_) in enumerate(read_log(log)):
        if mark == "<":
            what = _what(label)
            if what == "manifest put":
                before, since = dict(last), {}
            last[what] = at
            since.setdefault(what, at)
        elif label == "mongo delete it in transaction":
            order = ["copied", "copies read"] if "copied" in last else list(_ORDER)
            if "versions read" in last:
                order = [it for it in ("versions copied", "versions read") if it in last]
                assert [last[it] for it in order] == sorted(last[it] for it in order), last
                continue
            # of an earlier run's copies: no more than that they are read
            order = order if {"put", "copied"} & last.keys() else ["part read", "buckets read", "rebuilt"]
            places = [last.get(it, -1) for it in order]
            assert -1 not in places, (order, last)
            if "put" in last:
                reads, commit = [before[it] for it in order[:3]], [since[it] for it in order[3:]]
                assert before["put"] < min(reads), (before, since)
                assert max(reads) < commit[0] < commit[1] < commit[2], (before, since)
            elif "copied" in last:
                assert places == sorted(places), last


_ORDER = ("part read", "buckets read", "rebuilt", "manifest put", "manifest read", "receipt")
_WHAT = {
    "file put data": "put",
    "file put buckets": "put",
    "s3 PutObject data": "put",
    "s3 PutObject buckets": "put",
    "cloud put data": "put",
    "cloud put buckets": "put",
    "file read data": "part read",
    "s3 GetObject data": "part read",
    "cloud read data": "part read",
    "file read buckets": "buckets read",
    "s3 GetObject buckets": "buckets read",
    "cloud read buckets": "buckets read",
    "rebuild documents": "rebuilt",
    "file place manifests": "manifest put",
    "s3 PutObject manifests": "manifest put",
    "cloud put manifests": "manifest put",
    "file read manifests": "manifest read",
    "s3 GetObject manifests": "manifest read",
    "cloud read manifests": "manifest read",
    "mongo commit receipt": "receipt",
    "mongo commit exchange": "receipt",
    "mongo commit copy": "copied",
    "mongo commit copy of versions": "versions copied",
    "mongo find it_archive_versions": "versions read",
    "mongo find it_archive": "copies read",
}


def _what(label: str) -> str:
    return _WHAT.get(label, label)


def check_ledger(scene: Scene, case: Case, code: int, entries: list[Run]) -> None:
    """It says how the run ended, or that it died; no run counts twice in it."""
    found = Ledger(scene.database).last_runs("it", 0)
    assert sum(it.runs for it in found) <= sum(it.runs for it in entries) + 1
    if len(found) == len(entries) or case.step.name.startswith("ledger entry"):
        return
    ended = counts(scene.folder / "log")["mongo update bucketwise_runs"] > 0
    expected = {0: "done", 1: "failed", 3: "left something", _KILLED: "died"}
    assert found[0].outcome == expected[job_code(case) if ended and code == _KILLED else code]


def job_code(case: Case) -> int:
    return JOBS[case.job].code


def check_cleaned(scene: Scene, job: Job, now: datetime) -> None:
    """A day later a run removes what writes left unfinished, and nothing else."""
    if not unfinished(scene):
        return
    before = archived(scene)
    given = {**job.watched(scene, "later"), "abandons": True}
    assert scene.run("run", now=now, meddle=(HOOKS, given)).code == 0
    assert not unfinished(scene)
    assert archived(scene) == before


def archived(scene: Scene) -> Document:
    return {name: it for name, it in scene.everything().items() if not name.startswith(".tmp/")}


def unfinished(scene: Scene) -> list[str]:
    return [name for name in scene.truth.files.names() if name.startswith(".tmp/")]
