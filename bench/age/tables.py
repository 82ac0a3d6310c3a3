"""The tables of age, as a section of bench/RESULTS.md that other benches leave alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

from bench.age.measuring import Column
from bench.age.receipts import ReceiptBytes
from bench.report import AGE, about, head, line, without_age

_WHAT = {
    "commits": "A commit an hour of two readings, before and after small commits are merged.",
    "series": "Three hours, a reading an hour of each series.",
    "policies": "A day of two series for each policy; what all of them cost together.",
}


def write(
    tables: Mapping[str, Sequence[Column]], receipts: Sequence[ReceiptBytes], today: date, folder: Path
) -> None:
    """Writes the measurements in place of the earlier ones."""
    path = folder / "RESULTS.md"
    path.write_text(without_age(path) + "\n".join(_section(tables, receipts, today)) + "\n")


def _section(
    tables: Mapping[str, Sequence[Column]], receipts: Sequence[ReceiptBytes], today: date
) -> Iterator[str]:
    setup = about(1)
    yield f"{AGE}\n"
    command, machine, versions = setup["command"], setup["machine"], setup["versions"]
    yield f"`{command}` on {today.isoformat()}: one round. {machine}; {versions}.\n"
    yield "In each cell: requests to the store / keys listed / commands to MongoDB / documents in its replies"
    yield "/ CPU seconds of bucketwise, without start-up. For DuckDB: CPU seconds.\n"
    for name, columns in tables.items():
        yield f"{_WHAT[name]}\n"
        yield from _table(columns)
        yield ""
    if receipts:
        yield "Receipts of deletes of 1,000 buckets each, in MongoDB (BSON) and moved to the store: kB.\n"
        yield from head("", "in MongoDB", "moved: files", "in files", "left in MongoDB")
        for size_of in receipts:
            sizes = (f"{size / 1000:,.0f}" for size in (size_of.in_mongodb, size_of.in_files, size_of.left))
            before, inside, left = sizes
            yield line(f"{size_of.deletes:,} deletes", before, f"{size_of.files:,}", inside, left)


def _table(columns: Sequence[Column]) -> Iterator[str]:
    yield from head("", *(column.name for column in columns))
    for name in columns[0].costs:
        costs = [column.costs[name] for column in columns]
        cells = [" / ".join([*(f"{it:,}" for it in cost[:4]), f"{cost.cpu:.2f}"]) for cost in costs]
        yield line(name, *cells)
    for name in columns[0].queries:
        yield line(name, *(f"{column.queries[name]:.3f}" for column in columns))
