"""The output of `init`, as JSON and as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.inferring.guess import Guess
from bucketwise.jobs.output.report import Result
from bucketwise.jobs.output.text.cells import plain_table, printable
from bucketwise.jobs.output.text.tables import findings_table, fit_lines

Body = dict[str, Any]


def guess_body(guess: Guess) -> Body:
    """Returns the JSON of a collection."""
    return {
        "collection": guess.collection,
        "model": guess.policy and guess.policy.model,
        "evidence": guess.evidence,
        "questions": _questions(guess),
    }


def init_tables(
    guesses: Sequence[Guess], results: Sequence[Result], general: list[Body], text: str, output: Path | None
) -> list[RenderableType]:
    """Returns what `init` prints: with a file, what is in it and what comes next; without one, only its
    text."""
    if output is None:
        return [Text(text.rstrip("\n"))]
    heads = ("collection", "model", "questions", "evidence")
    table = plain_table("Collections", *heads, right=["questions"])
    for guess in guesses:
        model = Text(guess.policy.model if guess.policy else "none", style="" if guess.policy else "yellow")
        seen = printable(guess.evidence[0])
        table.add_row(Text(printable(guess.collection)), model, str(len(_questions(guess))), Text(seen))
    findings = [*general, *(it for result in results for it in result.body["findings"])]
    count = sum(it.policy is not None for it in guesses)
    named = "" if str(output) == "bucketwise.toml" else f" --config {shlex.quote(str(output))}"
    policies = "1 policy" if count == 1 else f"{count:,} policies"
    lines = (
        f"{output}: {policies}. Answer the lines that begin with `# ?`, and look at the others.",
        "The URI is not in the file: it may hold a password. Set it in the environment: export MONGODB_URI=…",
        "Make the directory that store.url names (mkdir), or name another place.",
        f"Then: bucketwise check{named}, and bucketwise plan{named}",
    )
    return [
        table,
        findings_table("Check", findings),
        *fit_lines(results),
        *(Text(printable(it)) for it in lines),
    ]


def _questions(guess: Guess) -> list[str]:
    return [f"{key}: {text}" for key, texts in guess.notes.questions.items() for text in texts]
