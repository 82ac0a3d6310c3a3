"""`bucketwise init`: a first policy file, from what the collections hold."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.fields.times import as_date
from bucketwise.config import DEFAULT_PATH
from bucketwise.config.errors import UsageError
from bucketwise.config.problems import ProblemReport
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.job import Job, collection_names
from bucketwise.jobs.core.turn import LEFT_SOMETHING, finding_body
from bucketwise.jobs.output.bodies import keeping
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report, Result
from bucketwise.jobs.output.streams import check_folder
from bucketwise.jobs.output.tables import counted, findings_table, fit_lines
from bucketwise.jobs.output.text import printable

if TYPE_CHECKING:
    from pymongo.database import Database

    from bucketwise.buckets.inferring.guess import Guess
    from bucketwise.buckets.inferring.ways import Way
    from bucketwise.config.policies import Settings
    from bucketwise.config.tables import MongoDB

Body = dict[str, Any]
Document = dict[str, Any]

URI = Annotated[
    str,
    typer.Argument(metavar="URI/DATABASE", help="URI of MongoDB, with the database: mongodb://host/market."),
]

Collections = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[COLLECTION…]", autocompletion=collection_names, help="Only these collections. Default: all."
    ),
]

Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The policy file to write; - for stdout.")
]


def init(call: Call, uri: URI, collections: Collections = None, *, output: Output = DEFAULT_PATH) -> Report:
    """Write a policy file for the collections of a database.

    Looks at a bounded sample of each collection and writes a policy with its bucket model, the reasons for
    it, and questions where documents don't tell. Nothing is deleted by what it writes: archive.delete is
    false. It needs no policy file, never writes over a file, and shows what `check` finds. Beside it lies the
    JSON Schema of policy files, for editors, if there is none yet.
    """
    from bucketwise.jobs.core.drafts import FROM_ENVIRONMENT, is_free_of_secrets

    if call.config is not None or call.names:
        raise UsageError(
            "init reads no policy file: leave out --config and --policy. --output names the new one"
        )
    mongodb = mongodb_at(call, uri)
    target = None if str(output) == "-" else free(output)
    typed = uri if is_free_of_secrets(uri) else FROM_ENVIRONMENT
    return survey(call, (mongodb, typed), collections or [], target)


JOB = Job(
    init,
    body=keeping.Check,
    beside=keeping.InitWhole,
    unused=("config", "policy"),
    examples=(
        "bucketwise init '${MONGODB_URI}'",
        "bucketwise init mongodb://localhost/market ticks iot --output market.toml",
        "bucketwise init mongodb://localhost/market --output -",
    ),
    answers=True,
)


def guess_body(guess: Guess) -> Body:
    """Returns the JSON of a collection."""
    from bucketwise.buckets.models import model_of

    return {
        "collection": guess.collection,
        "model": guess.policy and model_of(guess.policy).name,
        "evidence": guess.evidence,
        "questions": _questions(guess),
        "asked": guess.asked,
        "readings": [_way_body(it) for it in guess.ways],
    }


#: What a policy has that is no way to read documents.
_NO_LAYOUT = {"name", "collection", "rollup", "archive"}


def _way_body(way: Way) -> Body:
    """Returns the JSON of a way to read documents."""
    from bucketwise.config.written import as_written

    names = way.policy.series_names
    keys = as_written(way.policy.model_dump(exclude_unset=True, exclude=_NO_LAYOUT, by_alias=True))
    first = [
        {"series": dict(zip(names, it.series, strict=True)), "time": as_date(it.time), "value": it.values}
        for it in way.first
    ]
    return {"policy": keys, "why": way.why, "first": first}


def init_tables(
    guesses: Sequence[Guess], results: Sequence[Result], general: list[Body], text: str, output: Path | None
) -> list[RenderableType]:
    """Returns what `init` prints: with a file, what is in it and what comes next; without one, only its
    text."""
    from bucketwise.jobs.core.drafts import FROM_ENVIRONMENT

    if output is None:
        return [Text(text.rstrip("\n"))]
    heads = ("collection", "model", "questions", "evidence")
    table = Grid("Collections", heads)
    for guess in guesses:
        is_told = guess.policy is not None and not guess.asked
        model = Text(_model_name(guess), style="" if is_told else "yellow")
        seen = printable(guess.evidence[0])
        table.add_row(Text(printable(guess.collection)), model, str(len(_questions(guess))), Text(seen))
    asked_of = sum(line.startswith("# ?") for line in text.splitlines())
    findings = [*general, *(it for result in results for it in result.body["findings"])]
    policies = counted(sum(it.policy is not None and not it.asked for it in guesses), "policy")
    asked = [it.collection for it in guesses if it.asked]
    named = "" if str(output) == "bucketwise.toml" else f" --config {shlex.quote(str(output))}"
    lines: tuple[str, ...] = (
        f"{output}: {policies}, {counted(asked_of, 'question')}. Answer the lines that begin with `# ?`, and "
        "look at the others.",
        *([_SECRET] if FROM_ENVIRONMENT in text else []),
        "Make the directory that store.url names (mkdir), or name another place.",
        f"Then: bucketwise check{named}, and bucketwise plan{named}",
    )
    if asked:
        names = printable(", ".join(asked))
        text = f"Not decided, and so left commented out: {names}. Choose one of the ways that the file shows."
        lines = (text, *lines)
    return [
        table,
        findings_table("Check", findings),
        *fit_lines(results),
        *(Text(printable(it)) for it in lines),
    ]


_SECRET = (
    "The URI may hold a password, so the file takes it from the environment: set MONGODB_URI where "
    "bucketwise runs."
)


def _model_name(guess: Guess) -> str:
    """Returns the model of a collection, or in how many ways it can be read."""
    from bucketwise.buckets.models import model_of

    if guess.policy is None:
        return "none"
    name = model_of(guess.policy).name
    return f"{name}? {len(guess.ways):,} ways" if guess.asked else name


def _questions(guess: Guess) -> list[str]:
    ways = [f"{len(guess.ways):,} ways to read it fit. Which is meant?"] if guess.asked else []
    return ways + [f"{key}: {text}" for key, texts in guess.notes.questions.items() for text in texts]


_FORM = "write mongodb://host/DATABASE?replicaSet=rs0"


def mongodb_at(call: Call, uri: str) -> MongoDB:
    """Returns the connection and the database that a URI names; a `${NAME}` in it takes an environment
    variable. Raises UsageError."""
    from pydantic import SecretStr

    from bucketwise.config.checks.locations import check_mongodb
    from bucketwise.config.load import expand
    from bucketwise.config.tables import MongoDB
    from bucketwise.jobs.core import connect

    problems = ProblemReport("", {}, {}, {})
    expanded = expand({"mongodb": {"uri": uri}}, os.environ, {}, problems)
    if problems.problems:
        raise UsageError(f"URI: {problems.problems[0].message}; {problems.problems[0].remedy}")
    uri = expanded["mongodb"]["uri"]
    path = uri.partition("://")[2].partition("?")[0].rpartition("@")[2].partition("/")[2]
    mongodb = MongoDB(uri=SecretStr(uri), database=unquote(path))
    check_mongodb(mongodb, problems)
    wrong = {it.key: it for it in problems.problems}
    if found := wrong.get("mongodb.uri"):
        raise UsageError(f"URI: {found.message}; {found.remedy}")
    call.hosts = connect.hosts(mongodb)
    if not mongodb.database:
        raise UsageError(f"URI: it names no database; {_FORM}. {_databases(mongodb)}")
    if found := wrong.get("mongodb.database"):
        raise UsageError(f"URI: database {mongodb.database!r}: {found.message}; {found.remedy}")
    return mongodb


def _databases(mongodb: MongoDB) -> str:
    """Returns the names of the databases to choose from, if the server tells."""
    from pymongo.errors import PyMongoError

    from bucketwise.jobs.core import connect

    try:
        with connect.connect(mongodb) as client:
            names = [it for it in client.list_database_names() if it not in ("admin", "local", "config")]
    except PyMongoError:
        return "The server does not list its databases"
    return f"There are: {', '.join(names) or 'none'}"


def free(output: Path) -> Path:
    """Returns the path if a file can be made there. Raises UsageError."""
    if output.exists() or output.is_symlink():
        raise UsageError(
            f"--output {output}: it already exists, and is not overwritten. Name another one with --output"
        )
    check_folder("--output", output)
    return output


def survey(call: Call, at: tuple[MongoDB, str], names: Sequence[str], output: Path | None) -> Report:
    """Looks at collections, checks the policies for them, and writes these to the file; without one, to
    stdout. `at`: MongoDB, and the URI that the file names. Raises UsageError if there is nothing to write."""
    from bucketwise.config.schema import FILE_NAME
    from bucketwise.jobs.check.services import check_server
    from bucketwise.jobs.core import connect
    from bucketwise.jobs.core.drafts import config_text

    mongodb, typed = at
    with connect.connect(mongodb) as client:
        database = client[mongodb.database]
        guesses = _guesses(call, database, names)
        place = (output or DEFAULT_PATH).absolute()
        store = (place.parent / f"{mongodb.database}-archive").as_uri()
        text = config_text(guesses, (typed, mongodb.database), store, iso(call.now.replace(microsecond=0)))
        if all(it.policy is None for it in guesses):
            seen = "; ".join(f"{it.collection}: {'; '.join(it.evidence)}" for it in guesses)
            raise UsageError(
                f"no collection holds readings that bucketwise understands, so nothing was written. {seen}"
            )
        general = [finding_body(it) for it in check_server(database)]
        results = []
        if any(it.policy is not None and not it.asked for it in guesses):
            settings = _settings(text, output or DEFAULT_PATH, mongodb)
            results = [_checked(database, settings, name) for name in settings.policies]
    if output is not None:
        _write(output, text)
        _write_schema(output.with_name(FILE_NAME))
    left_out = [it for it in guesses if it.policy is None and it.collection in names]
    return Report(
        call.command,
        call.now,
        results,
        init_tables(guesses, results, general, text, output),
        error_code=LEFT_SOMETHING if left_out else 0,
        extra={
            "collections": [guess_body(it) for it in guesses],
            "config": text,
            "output": None if output is None else str(output),
            "findings": general,
        },
    )


def _guesses(call: Call, database: Database[Document], names: Sequence[str]) -> list[Guess]:
    from bucketwise.jobs.core.drafts import draft_policy, like_siblings, policy_names, without_overflows
    from bucketwise.jobs.core.subject import Inspector

    looker = Inspector(database)
    wanted = looker.wanted(names)
    called = policy_names(wanted)
    guesses = []
    progress = call.progress
    with progress.step(f"looking at {database.name}"):
        for name in wanted:
            call.stop.check()
            guesses.append(looker.look(name, called[name], is_named=name in names))
            progress("collections", 1)
    summaries = {it.collection for it in guesses if it.is_summaries}
    taken = set(looker.listed) - summaries
    found = like_siblings(without_overflows(guesses))
    return [draft_policy(it, database.name, taken) for it in found]


def _settings(text: str, path: Path, mongodb: MongoDB) -> Settings:
    """Returns the policy file as it is read later, in an environment that has its variable."""
    from bucketwise.config.load import OVERRIDES, settings_in

    environ = {name: it for name, it in os.environ.items() if name not in OVERRIDES.values()}
    return settings_in(text, path, environ | {"MONGODB_URI": mongodb.uri.get_secret_value()})


def _checked(database: Database[Document], settings: Settings, name: str) -> Result:
    """Returns what `check` says of a policy."""
    from bucketwise.jobs.check.checks import check_policy
    from bucketwise.jobs.check.verb import OWN_COLLECTIONS
    from bucketwise.jobs.core.fit import fit_body

    policy = settings.policies[name]
    found = check_policy(database, policy, OWN_COLLECTIONS)
    fit = None if found.fit is None else fit_body(found.fit, policy, found.misfits)
    return Result(name, body={"findings": [finding_body(it) for it in found.findings], "fit": fit})


def _write_schema(path: Path) -> None:
    """Makes the file that the policy file names for editors; one that is there stays."""
    from bucketwise.config.schema import policy_file_schema

    if not path.exists() and not path.is_symlink():
        _write(path, json.dumps(policy_file_schema(), indent=2, ensure_ascii=False) + "\n")


def _write(output: Path, text: str) -> None:
    """Makes the file, whole or not at all. Raises UsageError if there is one by now, or none can be made."""
    try:
        with output.open("x", encoding="utf-8", newline="\n") as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                output.unlink()
                raise
    except FileExistsError:
        free(output)
    except PermissionError as error:
        raise UsageError(
            f"--output {output}: {error.strerror}. Name a file in a folder that you may write to"
        ) from error
