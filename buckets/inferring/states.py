"""Proposes texts as states, where documents hold no numbers that could be values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from bucketwise.buckets.inferring.fields import SERIES, hints, is_text, non_null, quoted, words_of
from bucketwise.buckets.inferring.proposal import Alternative, Proposal, grouped, repeated
from bucketwise.buckets.inferring.values import Columns
from bucketwise.buckets.sampling.fit import STATES, longest_step
from bucketwise.config.times import format_duration

_NAMES = words_of(
    "state status mode phase event position alarm level activity "
    "zustand modus betriebsart stufe etat état estado modo stato toestand tila stan"
)
#: Texts of one kind, on average, from which on they are no names of what happened once.
_EACH = 3
#: Share of the rows that may come to have series and time of another one, where a state names no series.
_FEW = 0.02


def choose_states(
    rows: Columns, times: Sequence[int | None], names: Mapping[str, str], proposal: Proposal
) -> None:
    """Puts texts of few kinds into the proposal as values, in place of series. `rows`: what may tell series
    apart; `times`: of each row; `names`: those of rows that may be values, as `value_fields` has them. Where
    several could be the state, each is an alternative, unless some are called like one. Beside prose, as in a
    log, nothing is a state."""
    series = proposal.keys["series_fields"]
    if any(path in rows and path not in series and _is_prose(rows[path]) for path in names):
        return
    allowed = repeated(series, rows, times) + _FEW * len(times)
    possible = [
        path
        for path in names
        if path in rows and _comes_and_goes(rows[path]) and not hints(path, SERIES)
        if repeated([it for it in series if it != path], rows, times) <= allowed
    ]
    called = [path for path in possible if hints(path, _NAMES)]
    ways = [
        _way(it, [one for one in series if one not in it], rows, times, names)
        for it in ([called] if called else [[path] for path in possible])
    ]
    if len(ways) == 1:
        proposal.notes.add_evidence("value_fields", ways[0].why)
    if ways:
        proposal.keys |= ways[0].keys
        proposal.combine(ways)


def _is_prose(held: Sequence[Any]) -> bool:
    return all(map(is_text, held)) and 2 * len(set(held)) > len(held) > STATES


def _comes_and_goes(held: Sequence[Any]) -> bool:
    texts = non_null(held)
    return all(map(is_text, texts)) and 1 < len(set(texts)) <= min(STATES, len(texts) // _EACH)


def _way(
    paths: list[str],
    series: list[str],
    rows: Columns,
    times: Sequence[int | None],
    names: Mapping[str, str],
) -> Alternative:
    steps = [
        later - at
        for some in grouped(series, rows, times).values()
        for at, later in pairwise(sorted(non_null(some)))
    ]
    gap = format_duration(timedelta(milliseconds=longest_step(steps)))
    fields = [names[path] for path in paths]
    keys = {
        "series_fields": series,
        "value_fields": fields,
        "nonnumeric_ok": fields,
        "values": {it: {"kind": "state", "max_gap": gap} for it in fields},
    }
    counts = ", ".join(f"{len(set(non_null(rows[it]))):,} of {quoted(names[it])}" for it in paths)
    return Alternative(keys, f"texts that come and go are states: {counts}")
