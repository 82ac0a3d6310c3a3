"""The same prices in each bucket model: what they take, beside a comparison that was published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from pydantic import SecretStr

from bench.report import AGE, MODELS, about, head, line
from bucketwise.buckets.bson.types import DOUBLE
from bucketwise.buckets.writing import ExactReadings, Losses
from bucketwise.config.models import make_policy
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.advise.candidates import SPANS, Extract, Measured, measured
from bucketwise.jobs.core import connect

#: Four weeks of weekdays, 9:30 to 16:00 in New York in summer.
_OPENING, _WEEKS = datetime(2018, 6, 4, 13, 30, tzinfo=UTC), 4
_SECONDS = 6 * 3600 + 1800
READINGS = _SECONDS * 5 * _WEEKS
_POLICY = make_policy(
    name="prices",
    collection="prices",
    model="reading",
    time_field="d",
    series_fields=("symbol",),
    value_fields=("p",),
)
#: A document a second, and buckets closed by size: data and indexes, MB.
_PUBLISHED = ((605.0, 103.0), (128.0, 1.86))


def prices(readings: int) -> Extract:
    """Returns a price a second of as many symbols as come nearest to so many readings, four weeks each."""
    symbols = max(1, round(readings / READINGS))
    rng = np.random.default_rng(7)
    days = [_OPENING + timedelta(days=day) for day in range(7 * _WEEKS)]
    starts = [int(day.timestamp()) * 1000 for day in days if day.weekday() < 5]
    time = np.concatenate([start + np.arange(_SECONDS, dtype=np.int64) * 1000 for start in starts])
    steps = rng.integers(-2, 3, size=(symbols, len(time)))
    values = np.round(50.0 + np.cumsum(steps, axis=1) / 100, 2).ravel()
    series = np.repeat(np.arange(symbols, dtype=np.int32), len(time))
    types = np.full(len(series), DOUBLE, dtype=np.uint8)
    exact = ExactReadings(series, np.tile(time, symbols), {"p": values.view(np.int64)}, {"p": types})
    return Extract(_POLICY, exact, [(f"SY{it:02}",) for it in range(symbols)], Losses(), "invented")


def measure(uri: str, readings: int) -> tuple[Extract, list[Measured]]:
    """Writes the prices in each model, and measures them."""
    extract = prices(readings)
    with connect.connect(MongoDB(uri=SecretStr(uri), database="bench")) as client:
        return extract, list(measured(client["bench"], extract, lambda: None))


def write(extract: Extract, found: Sequence[Measured], folder: Path) -> None:
    """Writes the section in place of what stands there."""
    path = folder / "RESULTS.md"
    text = path.read_text() if path.exists() else ""
    before, heading, after = text.partition(AGE)
    lines = "\n".join(_section(extract, {it.model: it for it in found}))
    path.write_text(before.partition(MODELS)[0] + lines + "\n" + heading + after)


def _section(extract: Extract, found: dict[str, Measured]) -> Iterator[str]:
    setup, readings = about(1), len(extract.exact)
    yield f"{MODELS}\n"
    yield f"`{setup['command']}`: one round. {setup['machine']}; {setup['versions']}.\n"
    symbols = len(extract.series)
    yield f"A price a second in market hours, four weeks; symbols: {symbols:,}; readings: {readings:,}. MB,"
    yield "thousand readings a second as whole documents and one by one, ms a query of one symbol.\n"
    heads = ("documents", "data", "on disk", "indexes", "inserts", "updates", "last", *SPANS)
    yield from head("model", *heads)
    for model in found.values():
        sizes = [_mb(size) for size in (model.data_bytes, model.storage_bytes, model.index_bytes)]
        speeds = ["–" if speed is None else f"{speed / 1000:.3g}" for speed in (model.inserts, model.updates)]
        queries = [f"{ms:.2f}" for ms in model.queries.values()]
        yield line(model.model, f"{model.documents:,}", *sizes, *speeds, *queries)
    yield ""
    yield "Beside a published comparison of prices a second: four weeks, a document a second against buckets"
    yield "closed by size. MB.\n"
    yield from head("", "data", "to", "ratio", "indexes", "to", "ratio")
    yield _compared("published", _PUBLISHED)
    single = found["reading"]
    for name in ("samples-200", "slots-minute"):
        pairs = [(it.data_bytes / 1e6, it.index_bytes / 1e6) for it in (single, found[name])]
        yield _compared(f"here: reading, {name}", pairs)
    yield ""
    yield from _why(single, found["samples-200"], found["slots-minute"], readings)


def _why(single: Measured, samples: Measured, slots: Measured, readings: int) -> Iterator[str]:
    sizes = [it.data_bytes / readings for it in (single, samples, slots)]
    yield "Why they differ: the ratio of data depends on what a document holds beside its reading, which a"
    yield f"bucket holds once. Here that is little: {sizes[0]:.0f} bytes a document with names of one letter."
    yield f"BSON repeats the names in each sample of an array, so it still takes {sizes[1]:.0f} bytes; a slot"
    yield f"takes {sizes[2]:.1f}: its key and its value. Longer names and more fields save more. Indexes"
    yield "shrink with the number of documents; here each has three: `_id`, series and time, and time.\n"


def _compared(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    cells = [
        f"{it:.3g}" for before, after in zip(*pairs, strict=True) for it in (before, after, before / after)
    ]
    return line(name, *cells)


def _mb(size: int | None) -> str:
    return "–" if size is None else f"{size / 1e6:.3g}"
