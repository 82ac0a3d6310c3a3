"""What an audit may find, and what to do about it."""

from __future__ import annotations

from bucketwise.jobs.core.job import Code
from bucketwise.jobs.core.lease import PAUSED

_EXIT_5 = "Follow “What to do at exit 5” in the operations manual."
_RECEIPTS = "Restore `bucketwise_receipts` from a backup. Find out who changed or removed them."
_FOREIGN = "Find out who put it there, and move it away. Readers of `data/` beside bucketwise see it."

AUDITED = (
    PAUSED,
    Code("overdue", ("error",), "Run `bucketwise run`. If it stays: `bucketwise plan` says why."),
    Code(
        "not-rolled-up",
        ("error",),
        "Run `bucketwise rollup`; where late readings are found by scan, with `--since` and `--until`.",
    ),
    Code(
        "readings-gone",
        ("error",),
        "Find out what deleted them, and restore it from a backup. If it was intended, `erase` removes "
        "the summaries of a series and range.",
    ),
    Code(
        "summaries-outdated",
        ("warning",),
        "Nothing, or put the settings back: nothing can make these summaries again.",
    ),
    Code("summaries-missing", ("error",), "Run `bucketwise run`. Find out who removed them."),
    Code(
        "summaries-lost",
        ("warning",),
        "Restore them, or their readings, from a backup of MongoDB, if there is one: the next run then "
        "counts them again. Else this stays until they are past their `retain`. Find out who removed them.",
    ),
    Code("summaries-past-retention", ("error",), "Run `bucketwise run`."),
    Code("archive-past-retention", ("error",), "Run `bucketwise run`."),
    Code("part-missing", ("error",), _EXIT_5),
    Code("part-differs", ("error",), _EXIT_5),
    Code("chain-broken", ("error",), _EXIT_5),
    Code(
        "checkpoint-missing",
        ("error",),
        "Find out who removed it. The next run makes another one, if the chain is whole.",
    ),
    Code(
        "checkpoint-differs",
        ("error",),
        "Find out who changed it, and remove the file: the next run makes another one, if the chain is "
        "whole.",
    ),
    Code("store-rolled-back", ("error",), _EXIT_5),
    Code("copy-missing", ("error",), "Restore the document from a backup of the collection."),
    Code(
        "copy-differs",
        ("error",),
        "Restore the document from a backup of the collection. Find out who changed it.",
    ),
    Code(
        "copy-unknown",
        ("error",),
        "Find out who put it there, and move it away. Where receipts were lost, as by a backup: "
        "`bucketwise adopt`.",
    ),
    Code("archive-baseline", ("ok",), "Nothing; it stays on record."),
    Code("archive-not-ours", ("error",), "Follow “Whose archive it is” in the operations manual."),
    Code(
        "archive-missing",
        ("error",),
        "Put the collection back, or correct `archive.collection`. Where it was restored or moved on "
        "purpose: `bucketwise adopt`.",
    ),
    Code(
        "archive-replaced",
        ("error",),
        "Put the collection back. Where it was restored from a backup on purpose: `bucketwise adopt`, then "
        "`bucketwise verify`.",
    ),
    Code("archive-short", ("error",), "Restore them from a backup: `bucketwise verify` names each."),
    Code("signature-missing", ("error",), "Follow “Signing” in the operations manual."),
    Code("signature-wrong", ("error",), _EXIT_5),
    Code("receipt-missing", ("error",), _RECEIPTS),
    Code("receipt-differs", ("error",), _RECEIPTS),
    Code(
        "hold-missing",
        ("error",),
        "Restore `bucketwise_holds` from a backup, or place it again. Find out who removed it.",
    ),
    Code("hold-differs", ("error",), "Restore `bucketwise_holds` from a backup. Find out who changed it."),
    Code(
        "receipts-rolled-back",
        ("error",),
        "If a backup was restored on purpose: `bucketwise adopt`, which records it. Otherwise restore "
        "`bucketwise_receipts` from a backup.",
    ),
    Code("record-differs", ("error",), _RECEIPTS),
    Code(
        "commit-unregistered",
        ("error",),
        "If the database was restored from a backup on purpose: `bucketwise adopt`. Otherwise find out who "
        "wrote it.",
    ),
    Code("commit-foreign", ("error",), _FOREIGN),
    Code("file-foreign", ("error",), _FOREIGN),
    Code("receipts-lost", ("warning",), "Nothing; it stays on record."),
    Code(
        "version-differs",
        ("error",),
        "Restore it from a backup: of the collection with `_versions` appended to its name, or, "
        "offline, of the file under `meta/versions`.",
    ),
    Code("part-unlisted", ("error",), "The next run removes it."),
    Code("ttl-conflict", ("error",), "Drop the TTL index, or make its period longer."),
    Code(
        "overflow-orphaned",
        ("error",),
        "Restore their buckets into the source, so that the next run takes both together; or remove "
        "the documents.",
    ),
    Code(
        "quarantined", ("error",), "Follow “Quarantine, and how to repair a bucket” in the operations manual."
    ),
    Code("valueless", ("error",), "Follow “Does the policy fit” in the operations manual."),
    Code("not-drilled", ("warning",), "Run `bucketwise drill`, or set `drill.schedule`."),
    Code("hole", ("warning",), "Look at what writes the series."),
)
