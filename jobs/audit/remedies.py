"""What to do about each finding of an audit, by its code."""

from __future__ import annotations

_EXIT_5 = "Follow “What to do at exit 5” in the operations manual."


_RECEIPTS = "Restore `bucketwise_receipts` from a backup. Find out who changed or removed them."


_FOREIGN = "Find out who put it there, and move it away. Readers of `data/` beside bucketwise see it."


REMEDIES = {
    "paused": "Once the reason is gone: `bucketwise resume`.",
    "overdue": "Run `bucketwise run`. If it stays: `bucketwise plan` says why.",
    "not-rolled-up": (
        "Run `bucketwise rollup`; where late readings are found by scan, with `--since` and `--until`."
    ),
    "readings-gone": (
        "Find out what deleted them, and restore it from a backup. If it was intended, `erase` removes "
        "the summaries of a series and range."
    ),
    "summaries-outdated": "Nothing, or put the settings back: nothing can make these summaries again.",
    "summaries-missing": "Run `bucketwise run`. Find out who removed them.",
    "summaries-lost": (
        "Restore them, or their readings, from a backup of MongoDB, if there is one: the next run then "
        "counts them again. Else this stays until they are past their `retain`. Find out who removed them."
    ),
    "summaries-past-retention": "Run `bucketwise run`.",
    "archive-past-retention": "Run `bucketwise run`.",
    "part-missing": _EXIT_5,
    "part-differs": _EXIT_5,
    "chain-broken": _EXIT_5,
    "checkpoint-missing": ("Find out who removed it. The next run makes another one, if the chain is whole."),
    "checkpoint-differs": (
        "Find out who changed it, and remove the file: the next run makes another one, if the chain is whole."
    ),
    "store-rolled-back": _EXIT_5,
    "copy-missing": "Restore the document from a backup of the collection.",
    "copy-differs": "Restore the document from a backup of the collection. Find out who changed it.",
    "copy-unknown": (
        "Find out who put it there, and move it away. Where receipts were lost, as by a backup: "
        "`bucketwise adopt`."
    ),
    "archive-baseline": "Nothing; it stays on record.",
    "archive-not-ours": "Follow “Whose archive it is” in the operations manual.",
    "archive-missing": (
        "Put the collection back, or correct `archive.collection`. Where it was restored or moved on "
        "purpose: `bucketwise adopt`."
    ),
    "archive-replaced": (
        "Put the collection back. Where it was restored from a backup on purpose: `bucketwise adopt`, then "
        "`bucketwise verify`."
    ),
    "archive-short": ("Restore them from a backup: `bucketwise verify` names each."),
    "signature-missing": "Follow “Signing” in the operations manual.",
    "signature-wrong": _EXIT_5,
    "receipt-missing": _RECEIPTS,
    "receipt-differs": _RECEIPTS,
    "hold-missing": ("Restore `bucketwise_holds` from a backup, or place it again. Find out who removed it."),
    "hold-differs": "Restore `bucketwise_holds` from a backup. Find out who changed it.",
    "receipts-rolled-back": (
        "If a backup was restored on purpose: `bucketwise adopt`, which records it. Otherwise restore "
        "`bucketwise_receipts` from a backup."
    ),
    "record-differs": _RECEIPTS,
    "commit-unregistered": (
        "If the database was restored from a backup on purpose: `bucketwise adopt`. Otherwise find out who "
        "wrote it."
    ),
    "commit-foreign": _FOREIGN,
    "file-foreign": _FOREIGN,
    "receipts-lost": "Nothing; it stays on record.",
    "version-differs": (
        "Restore it from a backup: of the collection with `_versions` appended to its name, or, "
        "offline, of the file under `meta/versions`."
    ),
    "part-unlisted": "The next run removes it.",
    "ttl-conflict": "Drop the TTL index, or make its period longer.",
    "overflow-orphaned": (
        "Restore their buckets into the source, so that the next run takes both together; or remove "
        "the documents."
    ),
    "quarantined": "Follow “Quarantine, and how to repair a bucket” in the operations manual.",
    "valueless": "Follow “Does the policy fit” in the operations manual.",
    "not-drilled": "Run `bucketwise drill`, or set `drill.schedule`.",
    "lake-behind": "Run `bucketwise lake sync`. If it stays: its message says why.",
    "lake-differs": "Find out who else writes to the table. Run `bucketwise lake sync`.",
    "publish-behind": "Once Redis works: `bucketwise publish`.",
    "hole": "Look at what writes the series.",
}
