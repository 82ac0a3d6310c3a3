"""Does a policy know the series that `--series` names? If not, which are nearest?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection
from pymongo.errors import ExecutionTimeout

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.records.heads import HEADS
from bucketwise.buckets.fields.selectors import (
    Selector,
    check_selector,
    selector_query,
    series_text,
    summary_path,
    summary_query,
)
from bucketwise.config.errors import UsageError
from bucketwise.rollups.calendar.levels import levels_of

Document = dict[str, Any]

#: Without an index a collection is looked through for so long; what is not known by then may be there.
_MOST_MS = 2000
#: So many values on either side of the one that was asked for are compared with it, and so many are named.
_MOST_COMPARED, _MOST_NAMED = 16, 3


def require_known_series(context: ArchiveContext, selector: Selector) -> None:
    """Raises UsageError where neither summaries nor live or archived documents have a series that the
    selector names; the error names the nearest. A policy without a roll-up, whose offline archive alone may
    know the series, is not asked. Takes a few commands, each of which reads one document where there is an
    index."""
    policy = context.policy
    check_selector(policy, selector)
    if not selector or _is_known(context, selector):
        return
    asked = " ".join(f"{name}={text}" for name, text in selector.items())
    near = _nearest(context, selector)
    hint = f"The nearest: {', '.join(near)}" if near else "`bucketwise summarize` lists those that it has"
    raise UsageError(f"policy {policy.name}: --series {asked}: no such series is known. {hint}")


def _is_known(context: ArchiveContext, selector: Selector) -> bool:
    database, policy = context.database, context.policy
    levels = levels_of(policy)
    if policy.has_parts and (not levels or _was_archived_otherwise(context)):
        return True
    if any(_has(database[it.collection], summary_query(selector)) for it in levels):
        return True
    archive = policy.archive.collection if policy.archive else None
    stored = [policy.collection, *([archive] if archive else [])]
    return any(_has(database[it], selector_query(policy, selector)) for it in stored)


def _was_archived_otherwise(context: ArchiveContext) -> bool:
    """Returns whether some commits were archived under other series fields: their buckets alone may tell of
    a field that the policy has got since."""
    archived = (context.receipts.get(HEADS) or {}).get("types", [])
    return any({name for name, _ in pairs} != set(context.policy.series_names) for pairs in archived)


def _has(collection: Collection[Document], query: Mapping[str, Any]) -> bool:
    try:
        return collection.find_one(query, {"_id": 1}, max_time_ms=_MOST_MS) is not None
    except ExecutionTimeout:
        return True


def _nearest(context: ArchiveContext, selector: Selector) -> list[str]:
    """Returns the nearest values of the first field that has no such value, given those before it."""
    policy = context.policy
    collection, paths = _searched(context)
    given: Document = {}
    for name in policy.series_names:
        if name not in selector or name not in paths:
            continue
        one = {name: selector[name]}
        query = summary_query(one) if levels_of(policy) else selector_query(policy, one)
        if _has(collection, given | query):
            given |= query
            continue
        found: list[Any] = []
        with suppress(ExecutionTimeout):
            found += _neighbours(collection, given, paths[name], one[name])
        texts = list(dict.fromkeys(map(series_text, found)))
        near = difflib.get_close_matches(one[name], texts, n=_MOST_NAMED, cutoff=0)
        return [f"{name}={it}" for it in near]
    return []


def _searched(context: ArchiveContext) -> tuple[Collection[Document], Mapping[str, str]]:
    """Returns the collection whose series are compared, and the path of each series field in it: the coarsest
    summaries, else the live documents."""
    database, policy = context.database, context.policy
    if levels := levels_of(policy):
        return database[levels[-1].collection], {it: summary_path(it) for it in policy.series_names}
    paths = {name: it for name, it in policy.stored_series.items() if name not in policy.sample_series}
    return database[policy.collection], paths


def _neighbours(collection: Collection[Document], given: Document, path: str, text: str) -> Iterator[Any]:
    """Yields values beside this text in the order of MongoDB, or beside its number: one command each."""
    starts: list[Any] = [text]
    with suppress(ValueError):
        starts.append(float(text))
    for start in starts:
        for operator, order in (("$gte", ASCENDING), ("$lt", DESCENDING)):
            query = {**given, path: {operator: start}}
            for _ in range(_MOST_COMPARED):
                found = collection.find_one(query, {path: 1}, sort=[(path, order)], max_time_ms=_MOST_MS)
                if found is None:
                    break
                value = reduce(lambda held, part: held[part], path.split("."), found)
                yield value
                query = {**given, path: {"$gt" if order == ASCENDING else "$lt": value}}
