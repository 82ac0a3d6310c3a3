"""Every step of the jobs, by name: where it is in the product, in which jobs it is met, and by which label
`points` knows it. A step that its job does not reach fails a test, and so does an operation
without a name.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.faults.crashes.points import Moment


class Step(NamedTuple):
    name: str
    label: str
    where: str  # module:function
    jobs: tuple[str, ...]

    @property
    def moments(self) -> tuple[Moment, ...]:
        """Work inside the process has no reply that could be lost; nothing is changed by a lost answer."""
        if self.label.split()[0] not in ("mongo", "s3", "file", "cloud", "copy"):
            return "before", "after"
        return ("before", "after", "lost", "goes on") if self.changes else ("before", "after", "lost")

    @property
    def changes(self) -> bool:
        operation = self.label.split()[1]
        return operation not in _READS and not operation.startswith(("Get", "List", "Head"))


_READS = {"find", "count", "aggregate", "getMore", "read", "list", "look", "listCollections", "listIndexes"}
_BINDING, _MARKERS = (
    "bucketwise.archivers.binding:Binding.",
    "bucketwise.archivers.markers:Markers.",
)
_ALL = ("roll-up", "offline", "online")
_ROLL_UP = ("roll-up", "first run")
_RECOVERS = ("offline", "amended", "first run")
_FILE = ("offline", "amended", "clean-up")
_S3 = ("offline s3", "amended s3", "clean-up s3")
_FIRST_IN_GOOGLE, _CLEARS_IN_GOOGLE = ("offline google", "amended google"), ("clean-up google",)
_GOOGLE, _AMENDS_IN_GOOGLE = (*_FIRST_IN_GOOGLE, *_CLEARS_IN_GOOGLE), _FIRST_IN_GOOGLE[1:]
_COPIES = ("offline", "offline s3", "amended")
_DELETES = ("offline", "amended", "grace", "online", "online changed")
_OVERFLOW = ("offline s3", "online", "online changed")
_ONLINE = ("online", "online changed")
_ENDS_ONLINE = ("tombstones online", "expired archive online")
_HEADS = "bucketwise.archivers.records.online_heads:OnlineHeads."
_LATE = ("late", "late and grace")
_IDLE = ("nothing to do",)
_AMENDS = ("amended", "amended s3")
_MERGES, _DROPS = ("compacted", "compacted s3"), ("compacted and dropped", "compacted and dropped s3")
_COMPACTS = (*_MERGES, "nothing to do")

_REMODELS, _RESUMES = ("remodelled", "remodelled natively"), ("remodelled further",)
_MARK, _REMODEL = (
    "bucketwise.jobs.remodel.rewriting:RemodelRecord.",
    "bucketwise.jobs.remodel.rewriting:Remodel.",
)
_LOOKS = "bucketwise.jobs.core.subject:Inspector."
_HOLD, _HELD = ("hold",), ("held",)
_BURIES, _LIFTS = ("tombstones", "tombstones online"), ("undelete", "undelete online")
_BURIES_SUMMARIES = ("tombstones of summaries",)
_ENDS = ("expired archive", "expired archive s3", "expired archive online")
_EXPIRE_OFF, _EXPIRE_ON = (
    "bucketwise.archivers.expiring.offline:OfflineExpiry.",
    "bucketwise.archivers.expiring.online:OnlineExpiry.",
)
_PAUSE, _RESUME = ("pause",), ("resume",)
_ERASES_FILES, _ERASES_S3 = ("erased", "erased and live"), ("erased s3",)
_ERASES = (*_ERASES_FILES, *_ERASES_S3, "erased online")
_REWRITES = (*_ERASES_FILES, *_ERASES_S3)
_TABLES, _TABLE, _SYNC = (
    ("registered", "registered s3"),
    "bucketwise.archivers.lake.catalog:LakeTable.",
    "bucketwise.archivers.lake.sync:",
)
_ERASING, _EVERYWHERE, _ERASER = (
    "bucketwise.archivers.erasing.",
    "bucketwise.jobs.erase.erasing:",
    "bucketwise.archivers.erasing.online:CollectionEraser.",
)
_ERASURES = "bucketwise.archivers.erasing.erasure:Erasures."
_ASK = ("expiry", "offline", "online", *_HOLD, *_HELD, *_DROPS)
_CHECKS = ("checkpoint", "checkpoint s3")
_MOVES = ("old receipts", "old receipts s3")
_HOLD_FILES = "bucketwise.archivers.records.holds:HoldFiles."
_HOLDS, _NOTE = "bucketwise.rollups.holds:Holds.", "bucketwise.archivers.records.holds:note_held"
_STANDING, _REMAKING = "bucketwise.rollups.standing:", "bucketwise.rollups.rolling.rollup:roll_up"
_EXPIRY = "bucketwise.rollups.rolling.expiry:expire_summaries"
_MOVED = "bucketwise.archivers.records.receipt_files:"
_DAYS = "bucketwise.archivers.records.pins:CommitDays."
_CHECKPOINTING = "bucketwise.archivers.recovering.checkpoints:"
_LEASE, _LEDGER = "bucketwise.jobs.core.lease:Lease.", "bucketwise.jobs.core.ledger:Ledger."
_REGISTRY, _OFFLINE = (
    "bucketwise.archivers.recovering.commits:CommitRegistry.",
    "bucketwise.archivers.format.archive:OfflineArchive.",
)
_WRITER = "bucketwise.archivers.format.writing:CommitWriter."
_TAKE_BACK = "bucketwise.archivers.writes:take_back"
_ONLINE_RUN, _RECEIPTS = (
    "bucketwise.archivers.moving.online:OnlineRun.",
    "bucketwise.archivers.records.receipts:Receipts.",
)
_MERGING, _KEPT = (
    "bucketwise.archivers.versions.merging:Merging.",
    "bucketwise.archivers.versions.kept:KeptVersions.",
)
_SUPERSEDED = "bucketwise.archivers.versions.superseded:Superseded."
_CHAIN, _DELETIONS = (
    "bucketwise.archivers.format.chain:Chain.",
    "bucketwise.archivers.records.deletions:Deletions.",
)
_POLICIES = "bucketwise.archivers.records.policies:PolicyRecords."
_BACKFILL = "bucketwise.rollups.rolling.plan:Backfill."
_PROGRESS, _DRAIN = "bucketwise.rollups.progress:", "bucketwise.rollups.changes.drain:"
_QUARANTINE, _TARGETS = (
    "bucketwise.rollups.rolling.quarantine:Quarantine.",
    "bucketwise.rollups.summaries.targets:",
)
_FILES, _OBJECTS = "bucketwise.archivers.stores.file:", "bucketwise.archivers.stores.s3:S3Store."
_COPIED, _REPAIRED = ("copied", "encrypted"), ("repaired", "repaired and encrypted")
_JOURNAL, _COPY = (
    "bucketwise.archivers.records.changes:StoreJournal.",
    "bucketwise.archivers.stores.copied:put_compared",
)
_MENDED, _FILLED = (*_REPAIRED, "looked after"), ("filled",)
#: What is done in the copy of a store, to which objects, in which jobs.
_IN_COPY = (
    ("put", ("data", "manifests"), (*_COPIED, *_FILLED, *_MENDED)),
    ("place", ("data", "manifests"), (*_COPIED, *_FILLED, *_MENDED)),
    ("put", ("buckets", "marker", "lineage", "owner"), (*_COPIED, *_FILLED)),
    ("place", ("buckets", "marker", "lineage", "owner"), (*_COPIED, *_FILLED)),
    ("make folder", ("data", "buckets", "manifests", "lineage", "other", ".tmp"), (*_COPIED, *_FILLED)),
    ("read", ("data", "buckets", "manifests", "marker", "owner"), (*_COPIED, *_FILLED, *_MENDED)),
    ("read", ("lineage",), (*_COPIED, *_FILLED)),
    ("remove", (".tmp",), (*_COPIED, *_FILLED, *_MENDED)),
    ("put", ("keyring",), ("encrypted",)),
    ("place", ("keyring",), ("encrypted",)),
    ("read", ("keyring",), ("encrypted", "repaired and encrypted")),
    ("look at", ("manifests",), _MENDED),
    ("list", ("manifests", "lineage", "versions", "holds"), _REPAIRED),
    ("list", ("data", "buckets"), ("looked after",)),
    ("list", ("other",), _FILLED),
    ("remove", ("lineage",), ("moved",)),
)
#: Changes of which kinds of objects the journal of copies has, in which jobs.
_CHANGES = (
    *((kind, _COPIED) for kind in ("data", "buckets", "manifests", "marker", "lineage", "owner")),
    ("keyring", ("encrypted",)),
)
_ENCRYPTED = "bucketwise.archivers.stores.encrypted:EncryptedStore."
_REPAIR, _MOVER = (
    "bucketwise.archivers.copying.repairing:Repair.",
    "bucketwise.archivers.classes:Mover.",
)

STEPS = (
    # Every job
    Step("config read", "read config", "bucketwise.config.load:load", _ALL),
    Step("lease taken", "mongo findAndModify bucketwise_lease take", _LEASE + "_take", _ALL),
    Step("lease renewed", "mongo findAndModify bucketwise_lease renew", _LEASE + "_renew_once", _ALL),
    Step("lease asked", "mongo update bucketwise_lease guard in transaction", _LEASE + "guard", _ALL),
    Step("ledger's index", "mongo createIndexes bucketwise_runs", _LEDGER + "start", ("first run",)),
    Step("the dead marked", "mongo update bucketwise_runs died", _LEDGER + "_mark_died", _ALL),
    Step("ledger entry begun", "mongo insert bucketwise_runs", _LEDGER + "start", _ALL),
    Step("earlier ones closed", "mongo update bucketwise_runs closed", _LEDGER + "_close_earlier", _ALL),
    Step("ledger entry ended", "mongo update bucketwise_runs", _LEDGER + "finish", _ALL),
    Step(
        "entry before read",
        "mongo find bucketwise_runs in transaction",
        _LEDGER + "_merge_previous",
        _IDLE,
    ),
    Step(
        "entries joined",
        "mongo update bucketwise_runs in transaction",
        _LEDGER + "_merge_previous",
        _IDLE,
    ),
    Step(
        "joined entry removed",
        "mongo delete bucketwise_runs in transaction",
        _LEDGER + "_merge_previous",
        _IDLE,
    ),
    Step(
        "entries compared",
        "mongo commit entries compared",
        _LEDGER + "_merge_previous",
        ("checkpoint", "checkpoint s3"),
    ),
    Step("joined entry committed", "mongo commit entries joined", _LEDGER + "_merge_previous", _IDLE),
    Step("old entries looked for", "mongo find bucketwise_runs", _LEDGER + "remove_old", _IDLE),
    Step("old entries removed", "mongo delete bucketwise_runs", _LEDGER + "remove_old", _IDLE),
    Step("lease released", "mongo update bucketwise_lease release", _LEASE + "__exit__", _ALL),
    Step("report", "report", "bucketwise.jobs.core.execution:emit", _ALL),
    Step("others looked for", "mongo distinct bucketwise_receipts", _POLICIES + "departed", ("first run",)),
    Step(
        "policy noted",
        "mongo update bucketwise_progress policy",
        _POLICIES + "note",
        ("first run", "first run online"),
    ),
    # Roll-up
    Step("progress read", "mongo find bucketwise_progress", _PROGRESS + "records_of", ("roll-up", "offline")),
    Step(
        "collections told apart",
        "mongo listCollections stream",
        "bucketwise.rollups.changes.drain:collections_of",
        _ROLL_UP,
    ),
    Step("stream opened", "mongo aggregate stream", _DRAIN + "open_stream", ("roll-up", "offline", "grace")),
    Step("mark left", "mongo update bucketwise_progress mark", _PROGRESS + "leave_mark", _ALL),
    Step("stream read", "mongo getMore stream", _DRAIN + "Drain._events", _ALL),
    Step(
        "source read",
        "mongo find it",
        "bucketwise.buckets.source:Source.batches",
        ("roll-up", "offline", "restore"),
    ),
    Step(
        "overflow read",
        "mongo find it_more",
        "bucketwise.buckets.source:Source.by_ids",
        ("online", "offline s3"),
    ),
    Step(
        "collations of the archive's indexes",
        "mongo listIndexes it_archive",
        "bucketwise.buckets.collations:Comparison.of",
        ("erased online",),
    ),
    Step(
        "TTL of the source",
        "mongo listIndexes it",
        "bucketwise.rollups.rolling.outlived:deletes_before_archive",
        ("roll-up",),
    ),
    Step("quarantine read", "mongo find bucketwise_quarantine", _QUARANTINE + "recheck", _ROLL_UP),
    Step("quarantine written", "mongo update bucketwise_quarantine", _QUARANTINE + "add", ("roll-up",)),
    Step(
        "quarantine forgotten",
        "mongo delete bucketwise_quarantine",
        _QUARANTINE + "remove_healed",
        ("roll-up",),
    ),
    Step("summary made", "make summary", "bucketwise.rollups.summaries.documents:summary", _ROLL_UP),
    Step("hourly summaries read", "mongo find it_hourly", _TARGETS + "SummaryDiff.compare", _ROLL_UP),
    Step("daily summaries read", "mongo find it_daily", _TARGETS + "SummaryDiff.compare", _ROLL_UP),
    Step("hourly indexes looked at", "mongo listIndexes it_hourly", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("daily indexes looked at", "mongo listIndexes it_daily", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("hourly indexes", "mongo createIndexes it_hourly", _TARGETS + "SummaryDiff.apply", ("first run",)),
    Step("daily indexes", "mongo createIndexes it_daily", _TARGETS + "SummaryDiff.apply", ("first run",)),
    Step("hourly written", "mongo update it_hourly in transaction", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("daily written", "mongo update it_daily in transaction", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("hourly committed", "mongo commit hourly summaries", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("daily committed", "mongo commit daily summaries", _TARGETS + "SummaryDiff.apply", _ROLL_UP),
    Step("progress stored", "mongo update bucketwise_progress through", _PROGRESS + "store", _ROLL_UP),
    Step("backfill looked up", "mongo find bucketwise_progress", _BACKFILL + "__init__", ("backfill",)),
    Step("backfill noted", "mongo update bucketwise_progress backfill", _BACKFILL + "reach", ("backfill",)),
    # What is missing of summaries
    Step("hourly summaries estimated", "mongo count it_hourly", _REMAKING, _ROLL_UP),
    Step("daily summaries estimated", "mongo count it_daily", _REMAKING, _ROLL_UP),
    Step("daily summaries counted", "mongo aggregate it_daily", _STANDING + "months_in", ("first run",)),
    Step(
        "count of summaries stored",
        "mongo update bucketwise_progress summaries",
        _STANDING + "store_counts",
        ("first run",),
    ),
    # Expiry of summaries
    Step("summaries to expire counted", "mongo aggregate it_hourly", _EXPIRY, ("expiry", *_BURIES_SUMMARIES)),
    Step(
        "tombstones of summaries looked at",
        "mongo find bucketwise_progress in transaction",
        "bucketwise.rollups.standing:load_standing",
        ("expiry", *_BURIES_SUMMARIES),
    ),
    Step(
        "tombstones of summaries placed",
        "mongo update bucketwise_progress summaries in transaction",
        "bucketwise.rollups.standing:store_tombstones",
        _BURIES_SUMMARIES,
    ),
    Step("these committed", "mongo commit tombstones of summaries", _EXPIRY, _BURIES_SUMMARIES),
    Step(
        "expiry noted",
        "mongo update bucketwise_progress gone in transaction",
        _PROGRESS + "note_gone",
        ("expiry",),
    ),
    Step(
        "end of expiry noted", "mongo update bucketwise_progress gone", _PROGRESS + "note_gone", ("expiry",)
    ),
    Step(
        "holds before expiry",
        "mongo find bucketwise_holds",
        _HOLDS + "active",
        ("expiry", *_BURIES_SUMMARIES),
    ),
    Step("holds asked", "mongo find bucketwise_holds in transaction", _HOLDS + "active", _ASK),
    Step(
        "summaries to remove found",
        "mongo find it_hourly in transaction",
        _STANDING + "delete_summaries",
        ("expiry",),
    ),
    Step(
        "daily ones to remove found",
        "mongo find it_daily in transaction",
        _STANDING + "delete_summaries",
        ("erased online",),
    ),
    Step("summaries expired", "mongo delete it_hourly in transaction", _EXPIRY, ("expiry",)),
    Step("expiry committed", "mongo commit expired summaries", _EXPIRY, ("expiry",)),
    # A collection is rewritten in another model
    Step("collection to rewrite sampled", "mongo aggregate kept", _LOOKS + "sample", _REMODELS),
    Step("more of that sample", "mongo getMore kept", _LOOKS + "sample", _REMODELS),
    Step("its indexes looked at", "mongo listIndexes kept", _LOOKS + "look", _REMODELS),
    Step("other collections sampled", "mongo aggregate it", _LOOKS + "sample", _REMODELS),
    Step("more of their samples", "mongo getMore it", _LOOKS + "sample", _REMODELS),
    Step(
        "readings to rewrite read",
        "mongo find kept",
        "bucketwise.buckets.writing:readings_in",
        _REMODELS,
    ),
    Step("target looked for", "mongo listCollections stream", _MARK + "check", _REMODELS),
    Step("task written down", "mongo update bucketwise_remodel begun", _MARK + "begin", _REMODELS),
    Step("target made", "mongo create other", _REMODEL + "write", _REMODELS),
    Step("target written down", "mongo update bucketwise_remodel made", _MARK + "made", _REMODELS),
    Step("target's indexes", "mongo createIndexes other", _REMODEL + "write", _REMODELS),
    Step("target written", "mongo insert other", _REMODEL + "write", (*_REMODELS, *_RESUMES)),
    Step(
        "how far it came", "mongo update bucketwise_remodel reached", _MARK + "set", (*_REMODELS, *_RESUMES)
    ),
    Step("rewrite is done", "mongo update bucketwise_remodel done", _MARK + "set", (*_REMODELS, *_RESUMES)),
    Step("task looked up", "mongo find bucketwise_remodel", _MARK + "check", _RESUMES),
    Step("what is written read", "mongo find other", _REMODEL + "differing", (*_REMODELS, *_RESUMES)),
    Step("what is written counted", "mongo aggregate other", _REMODEL + "differing", _REMODELS),
    # A pause begins and ends
    Step(
        "paused",
        "mongo findAndModify bucketwise_lease pause",
        "bucketwise.jobs.pause:pause_step",
        _PAUSE,
    ),
    Step(
        "resumed",
        "mongo update bucketwise_lease resume",
        "bucketwise.jobs.pause:resume_step",
        _RESUME,
    ),
    # A hold is placed; what a compaction has replaced stays
    Step(
        "lease made for a hold",
        "mongo update bucketwise_lease made",
        "bucketwise.jobs.core.lease:touching",
        _HOLD,
    ),
    Step("files of holds listed", "file list holds", _HOLD_FILES + "standing", (*_HOLD, *_HELD)),
    Step(
        "files of holds listed, S3",
        "s3 ListObjectsV2 holds",
        _HOLD_FILES + "standing",
        ("compacted and dropped s3", "erased s3", "expired archive s3"),
    ),
    Step("folder of holds made", "file make folder holds", _FILES + "_make_folders", _HOLD),
    Step("file of a hold put", "file put holds", _HOLD_FILES + "put", _HOLD),
    Step("file of a hold in place", "file place holds", _FILES + "_place", _HOLD),
    Step("file of a hold read", "file read holds", _HOLD_FILES + "standing", (*_HOLD, *_HELD)),
    Step("hold put", "mongo insert bucketwise_holds in transaction", _HOLDS + "put", _HOLD),
    Step(
        "receipt of a hold",
        "mongo insert bucketwise_receipts in transaction",
        _DELETIONS + "record_event",
        _HOLD,
    ),
    Step("hold committed", "mongo commit hold", "bucketwise.archivers.records.holds:HoldWriter.place", _HOLD),
    Step("commits noted as held", "mongo update bucketwise_receipts held in transaction", _NOTE, _HELD),
    Step("held commits committed", "mongo commit held commits", _NOTE, _HELD),
    Step("no commit is held", "mongo commit question for holds", _NOTE, _DROPS),
    # The end of an archive
    Step("past commits looked for", "mongo aggregate bucketwise_receipts", _EXPIRE_OFF + "run", _BURIES[:1]),
    Step(
        "tombstones placed",
        "mongo update bucketwise_receipts tombstone in transaction",
        _EXPIRE_OFF + "_place_tombstones",
        _BURIES,
    ),
    Step("tombstones committed", "mongo commit tombstones", _EXPIRE_OFF + "_place_tombstones", _BURIES),
    Step(
        "end noted", "mongo update bucketwise_progress ended in transaction", _PROGRESS + "note_ended", _ENDS
    ),
    Step("noted end committed", "mongo commit noted end", _PROGRESS + "note_ended", _ENDS),
    Step(
        "commit ended", "mongo update bucketwise_receipts ended in transaction", _REGISTRY + "end", _ENDS[:2]
    ),
    Step("end committed", "mongo commit end of a commit", _EXPIRE_OFF + "_decide", _ENDS[:2]),
    Step("what had left looked for", "file list versions", _SUPERSEDED + "clear", _ENDS[:1]),
    Step("what had left looked for, S3", "s3 ListObjectsV2 versions", _SUPERSEDED + "clear", _ENDS[1:2]),
    Step("what had left removed", "file remove versions", _SUPERSEDED + "clear", _ENDS[:1]),
    Step("what had left removed, S3", "s3 DeleteObjects versions", _SUPERSEDED + "clear", _ENDS[1:2]),
    Step(
        "buckets' folder removed", "file remove folder buckets", _FILES + "FileStore._remove_empty", _ENDS[:1]
    ),
    Step(
        "manifests' folder removed",
        "file remove folder manifests",
        _FILES + "FileStore._remove_empty",
        _ENDS[:1],
    ),
    Step("past buckets counted", "mongo aggregate it_archive", _EXPIRE_ON + "run", _BURIES[1:]),
    Step(
        "versions of ended buckets",
        "mongo delete it_archive_versions in transaction",
        _KEPT + "clear",
        _ENDS[2:],
    ),
    Step(
        "ended buckets counted",
        "mongo update bucketwise_receipts expired in transaction",
        _EXPIRE_ON + "_delete",
        _ENDS[2:],
    ),
    Step("end of buckets committed", "mongo commit end of buckets", _EXPIRE_ON + "_delete", _ENDS[2:]),
    Step(
        "tombstone removed",
        "mongo delete bucketwise_receipts tombstone in transaction",
        _EXPIRE_ON + "_settle",
        _ENDS[2:],
    ),
    Step("end of a day committed", "mongo commit end of a day", _EXPIRE_ON + "_settle", _ENDS[2:]),
    Step(
        "tombstones lifted",
        "mongo update bucketwise_receipts lifted in transaction",
        "bucketwise.jobs.undelete:lift_archived",
        _LIFTS,
    ),
    Step(
        "lifted ones committed",
        "mongo commit lifted tombstones",
        "bucketwise.jobs.undelete:lift_archived",
        _LIFTS,
    ),
    # A series is erased
    Step(
        "erasure written down",
        "mongo insert bucketwise_receipts in transaction",
        _ERASURES + "begin",
        _ERASES,
    ),
    Step("erasure begun", "mongo commit erasure begun", _EVERYWHERE + "erase_series", _ERASES),
    Step("bucket to erase found", "mongo find it", _ERASER + "_pass", _ERASES),
    Step("bucket to erase looked at", "mongo find it in transaction", _ERASER + "_delete", _ERASES),
    Step(
        "holds on it asked for",
        "mongo find bucketwise_holds in transaction",
        _ERASING + "erasure:holds_on",
        _ERASES,
    ),
    Step("bucket erased", "mongo delete it in transaction", _ERASER + "_delete", _ERASES),
    Step("its pin released", "mongo delete bucketwise_pins in transaction", _ERASER + "_delete", _ERASES),
    Step(
        "its quarantine lifted",
        "mongo delete bucketwise_quarantine in transaction",
        "bucketwise.rollups.rolling.quarantine:Quarantine.drop",
        _ERASES,
    ),
    Step(
        "what is erased counted",
        "mongo update bucketwise_receipts erased in transaction",
        _ERASURES + "count",
        _ERASES,
    ),
    Step("erasure from the source committed", "mongo commit delete", _ERASER + "_delete", _ERASES),
    Step(
        "archived bucket erased", "mongo delete it_archive in transaction", _ERASER + "_delete", _ERASES[3:]
    ),
    Step(
        "erasure online committed", "mongo commit erasure from the archive", _ERASER + "_delete", _ERASES[3:]
    ),
    Step("commit to rewrite read", "file read data", _OFFLINE + "load", _ERASES_FILES),
    Step("commit to rewrite read, S3", "s3 GetObject data", _OFFLINE + "load", _ERASES_S3),
    Step("rewritten part put", "file put data", _WRITER + "write", _ERASES_FILES),
    Step("rewritten part put, S3", "s3 PutObject data", _WRITER + "write", _ERASES_S3),
    Step("rewritten buckets file put", "file put buckets", _WRITER + "write", _ERASES_FILES),
    Step("rewritten buckets file put, S3", "s3 PutObject buckets", _WRITER + "write", _ERASES_S3),
    Step(
        "rewritten documents rebuilt",
        "rebuild documents",
        "bucketwise.buckets.packing:unpacks_to",
        _REWRITES,
    ),
    Step("rewritten manifest put", "file place manifests", _CHAIN + "commit", _ERASES_FILES),
    Step("rewritten manifest put, S3", "s3 PutObject manifests", _CHAIN + "commit", _ERASES_S3),
    Step(
        "commit exchanged for the rewritten one",
        "mongo update bucketwise_receipts replaced in transaction",
        _REGISTRY + "erase",
        _REWRITES,
    ),
    Step("rewriting committed", "mongo commit exchange", _REGISTRY + "erase", _REWRITES),
    Step("erased manifest becomes a link", "file place superseded", _CHAIN + "drop", _ERASES_FILES),
    Step("erased manifest becomes a link, S3", "s3 PutObject superseded", _CHAIN + "drop", _ERASES_S3),
    Step("erased manifest removed", "file remove manifests", _OFFLINE + "drop", _ERASES_FILES),
    Step("erased manifest removed, S3", "s3 DeleteObjects manifests", _OFFLINE + "drop", _ERASES_S3),
    Step("erased part removed", "file remove data", _OFFLINE + "drop", _ERASES_FILES),
    Step("erased part removed, S3", "s3 DeleteObjects data", _OFFLINE + "drop", _ERASES_S3),
    Step("erased buckets file removed", "file remove buckets", _OFFLINE + "drop", _ERASES_FILES),
    Step(
        "erased receipt buried",
        "mongo update bucketwise_receipts dropped",
        _RECEIPTS + "mark_dropped",
        _REWRITES,
    ),
    Step("files of versions listed", "file list versions", _SUPERSEDED + "files", _ERASES_FILES),
    Step("files of versions listed, S3", "s3 ListObjectsV2 versions", _SUPERSEDED + "files", _ERASES_S3),
    Step(
        "file of versions removed", "file remove versions", _ERASING + "offline:erase_versions", ("erased",)
    ),
    Step(
        "folder of versions removed",
        "file remove folder versions",
        _FILES + "FileStore._remove_empty",
        ("erased",),
    ),
    Step("what left listed", "file list superseded", _ERASING + "offline:removed_files_of", _ERASES_FILES),
    Step(
        "what left listed, S3",
        "s3 ListObjectsV2 superseded",
        _ERASING + "offline:removed_files_of",
        _ERASES_S3,
    ),
    Step("what left removed", "file remove superseded", _ERASING + "offline:erase_removed", ("erased",)),
    Step(
        "erased files counted",
        "mongo commit erased files counted",
        _ERASING + "erasure:ErasureWork.count",
        ("erased",),
    ),
    Step("pins of copies released", "mongo commit unpin", _ERASING + "erasure:ErasureWork.forget", _REWRITES),
    Step(
        "daily summary erased",
        "mongo delete it_daily in transaction",
        _EVERYWHERE + "erase_summaries",
        _ERASES,
    ),
    Step(
        "hourly summary erased",
        "mongo delete it_hourly in transaction",
        _EVERYWHERE + "erase_summaries",
        _ERASES,
    ),
    Step(
        "summaries that holds keep forgotten",
        "mongo update bucketwise_progress held in transaction",
        "bucketwise.rollups.progress:forget_held",
        _ERASES,
    ),
    Step("hourly erased", "mongo commit expired summaries", _EVERYWHERE + "erase_summaries", _ERASES),
    Step("daily erased", "mongo commit erased summaries", _EVERYWHERE + "erase_summaries", _ERASES),
    Step("own collections searched", "mongo find bucketwise_lease", _EVERYWHERE + "remaining", _ERASES),
    Step("files beside listed", "file list other", _EVERYWHERE + "remaining", _ERASES_FILES),
    Step("files beside listed, S3", "s3 ListObjectsV2 other", _EVERYWHERE + "remaining", _ERASES_S3),
    Step(
        "older versions asked for",
        "s3 GetBucketVersioning other",
        _OBJECTS + "older_versions",
        _ERASES_S3,
    ),
    Step(
        "erasure no longer under way",
        "mongo delete bucketwise_receipts in transaction",
        _ERASURES + "end",
        _ERASES,
    ),
    Step("erasure ended", "mongo commit erasure ended", _EVERYWHERE + "erase_series", _ERASES),
    # Clean-up and recovery
    Step("temporary removed", "file remove .tmp", _FILES + "FileStore.put_bytes", _FILE),
    Step("receipts' index", "mongo createIndexes bucketwise_receipts", _RECEIPTS + "prepare", _RECOVERS),
    Step("receipts read", "mongo find bucketwise_receipts", _RECEIPTS + "in_state", _RECOVERS),
    Step("marker agreed on", "mongo findAndModify bucketwise_receipts", _MARKERS + "taken", _RECOVERS),
    Step("owner's folder", "file make folder other", _FILES + "_make_folders", ("first run",)),
    Step("folder for temporaries", "file make folder .tmp", _FILES + "_make_folders", ("first run",)),
    Step("owner put", "file put owner", _BINDING + "claim", ("first run",)),
    Step("owner in place", "file place owner", _BINDING + "claim", ("first run",)),
    Step("owner read", "file read owner", _BINDING + "look", _FILE),
    Step("owner fetched", "s3 GetObject owner", _BINDING + "look", _S3),
    Step("owner looked for, S3", "s3 HeadObject owner", _BINDING + "claim", ("amended s3",)),
    Step("owner put, S3", "s3 PutObject owner", _BINDING + "claim", ("amended s3",)),
    Step(
        "replica set known",
        "mongo replSetGetConfig stream",
        "bucketwise.archivers.markers:present_deployment",
        ("offline", "online"),
    ),
    Step(
        "manifest announced",
        "mongo update bucketwise_receipts begun",
        "bucketwise.archivers.records.registry:begin",
        ("offline",),
    ),
    Step("archive claimed", "mongo commit claim", _BINDING + "claim", ("offline", "amended s3", "online")),
    Step(
        "claim recorded",
        "mongo update bucketwise_receipts owner in transaction",
        _BINDING + "claim",
        ("offline",),
    ),
    Step(
        "lineage moved", "mongo update bucketwise_receipts lineage", _BINDING + "claim", ("offline", "grace")
    ),
    Step("store remembered", "mongo update bucketwise_receipts store", _MARKERS + "taken", ("first run",)),
    Step("lineage listed", "file list lineage", _BINDING + "check_lineage", _FILE),
    Step("lineage's folder", "file make folder lineage", _FILES + "_make_folders", ("first run",)),
    Step("step put", "file put lineage", _BINDING + "claim", ("offline", "grace")),
    Step("step in place", "file place lineage", _BINDING + "claim", ("offline", "grace")),
    Step("step read", "file read lineage", _BINDING + "claim", ("offline",)),
    Step("old step removed", "file remove lineage", _BINDING + "claim", ("grace",)),
    Step("marker read", "file read marker", _MARKERS + "check", ("offline", "grace")),
    Step("marker put", "file put marker", _MARKERS + "taken", ("first run",)),
    Step("marker in place", "file place marker", _MARKERS + "taken", ("first run",)),
    Step("lineage listed, S3", "s3 ListObjectsV2 lineage", _BINDING + "check_lineage", ("amended s3",)),
    Step("step looked for, S3", "s3 HeadObject lineage", _BINDING + "claim", ("amended s3",)),
    Step("step put, S3", "s3 PutObject lineage", _BINDING + "claim", ("amended s3",)),
    Step("step read, S3", "s3 GetObject lineage", _BINDING + "claim", ("amended s3",)),
    Step("old step removed, S3", "s3 DeleteObjects lineage", _BINDING + "claim", ("clean-up s3",)),
    Step("marker read, S3", "s3 GetObject marker", _MARKERS + "check", ("amended s3",)),
    Step("marker looked for, S3", "s3 HeadObject marker", _MARKERS + "taken", ("amended s3",)),
    Step("marker put, S3", "s3 PutObject marker", _MARKERS + "taken", ("amended s3",)),
    Step("manifests listed", "file list manifests", "bucketwise.archivers.format.names:commits", _FILE),
    Step("parts listed", "file list data", _OFFLINE + "unlisted", ("clean-up",)),
    Step("buckets files listed", "file list buckets", _OFFLINE + "unlisted", ("clean-up",)),
    Step(
        "manifests listed, S3", "s3 ListObjectsV2 manifests", "bucketwise.archivers.format.names:commits", _S3
    ),
    Step("parts listed, S3", "s3 ListObjectsV2 data", _OFFLINE + "unlisted", ("clean-up s3",)),
    Step("buckets files listed, S3", "s3 ListObjectsV2 buckets", _OFFLINE + "unlisted", ("clean-up s3",)),
    Step("leftover part removed", "file remove data", _OFFLINE + "clear", ("clean-up",)),
    Step(
        "part's folder removed", "file remove folder data", _FILES + "FileStore._remove_empty", ("clean-up",)
    ),
    Step("leftovers deleted, S3", "s3 DeleteObjects data", _OFFLINE + "clear", ("clean-up s3", "amended s3")),
    # Offline: plan, encode, upload, read back, commit
    Step(
        "pins read",
        "mongo find bucketwise_pins",
        "bucketwise.archivers.records.pins:Pins.of",
        ("offline", "online"),
    ),
    Step(
        "fit noted",
        "mongo update bucketwise_progress fit",
        _PROGRESS + "note_fit",
        ("first run", "first run online"),
    ),
    Step(
        "planned",
        "sort into what goes",
        "bucketwise.archivers.moving.sweep:Sweep.sort",
        ("offline", "online"),
    ),
    Step("encoded", "encode", "bucketwise.buckets.packing:pack", _COPIES),
    Step("part made", "make part", "bucketwise.archivers.format.parquet:write_part", _COPIES),
    Step(
        "buckets file made", "make buckets file", "bucketwise.archivers.format.parquet:write_buckets", _COPIES
    ),
    Step("part's folder made", "file make folder data", _FILES + "_make_folders", _FILE),
    Step("buckets files' folder made", "file make folder buckets", _FILES + "_make_folders", ("offline",)),
    Step("manifests' folder made", "file make folder manifests", _FILES + "_make_folders", ("offline",)),
    Step("part put", "file put data", _WRITER + "write", _FILE),
    Step("part in place", "file place data", _FILES + "_place", _FILE),
    Step("buckets file put", "file put buckets", _WRITER + "write", _FILE),
    Step("buckets file in place", "file place buckets", _FILES + "_place", _FILE),
    Step("part put, S3", "s3 PutObject data", _WRITER + "write", _S3),
    Step("buckets file put, S3", "s3 PutObject buckets", _WRITER + "write", _S3),
    Step("part read back", "file read data", _OFFLINE + "_read_back", _FILE),
    Step("buckets file read back", "file read buckets", _OFFLINE + "_read_back", _FILE),
    Step("part read back, S3", "s3 GetObject data", _OFFLINE + "_read_back", _S3),
    Step("buckets file read back, S3", "s3 GetObject buckets", _OFFLINE + "_read_back", _S3),
    Step("documents rebuilt", "rebuild documents", "bucketwise.buckets.packing:unpacks_to", _COPIES),
    Step("part seen", "file look at data", _OFFLINE + "commit", _FILE),
    Step("buckets file seen", "file look at buckets", _OFFLINE + "commit", _FILE),
    Step("part seen, S3", "s3 HeadObject data", _OFFLINE + "commit", _S3),
    Step("buckets file seen, S3", "s3 HeadObject buckets", _OFFLINE + "commit", _S3),
    Step("manifest looked for, S3", "s3 HeadObject manifests", _OBJECTS + "put_bytes", _S3),
    Step("manifest put", "file put manifests", _CHAIN + "commit", _FILE),
    Step("manifest in place", "file place manifests", _FILES + "_place", _FILE),
    Step("manifest put, S3", "s3 PutObject manifests", _CHAIN + "commit", _S3),
    Step("manifest read back", "file read manifests", _CHAIN + "_holds", _FILE),
    Step("manifest read back, S3", "s3 GetObject manifests", _CHAIN + "_holds", _S3),
    # The same in Google's store
    Step("owner read, Google", "cloud read owner", _BINDING + "look", _GOOGLE),
    Step("owner put, Google", "cloud put owner", _BINDING + "claim", _FIRST_IN_GOOGLE),
    Step("marker read, Google", "cloud read marker", _MARKERS + "check", _GOOGLE),
    Step("marker put, Google", "cloud put marker", _MARKERS + "taken", _FIRST_IN_GOOGLE),
    Step("lineage listed, Google", "cloud list lineage", _BINDING + "check_lineage", _GOOGLE),
    Step("step put, Google", "cloud put lineage", _BINDING + "claim", _GOOGLE),
    Step("step read, Google", "cloud read lineage", _BINDING + "claim", _GOOGLE),
    Step("old step removed, Google", "cloud delete lineage", _BINDING + "claim", _CLEARS_IN_GOOGLE),
    Step(
        "manifests listed, Google",
        "cloud list manifests",
        "bucketwise.archivers.format.names:commits",
        _GOOGLE,
    ),
    Step("parts listed, Google", "cloud list data", _OFFLINE + "unlisted", _CLEARS_IN_GOOGLE),
    Step("buckets files listed, Google", "cloud list buckets", _OFFLINE + "unlisted", _CLEARS_IN_GOOGLE),
    Step("versions listed, Google", "cloud list versions", _SUPERSEDED + "files", _CLEARS_IN_GOOGLE),
    Step("files removed, Google", "cloud delete data", _OFFLINE + "clear", _GOOGLE[1:]),
    Step("part put, Google", "cloud put data", _WRITER + "write", _GOOGLE),
    Step("buckets file put, Google", "cloud put buckets", _WRITER + "write", _GOOGLE),
    Step("part read back, Google", "cloud read data", _OFFLINE + "_read_back", _GOOGLE),
    Step("buckets file read back, Google", "cloud read buckets", _OFFLINE + "_read_back", _GOOGLE),
    Step("part seen, Google", "cloud look data", _OFFLINE + "commit", _GOOGLE),
    Step("buckets file seen, Google", "cloud look buckets", _OFFLINE + "commit", _GOOGLE),
    Step("manifest looked for, Google", "cloud look manifests", _CHAIN + "commit", _GOOGLE),
    Step("manifest put, Google", "cloud put manifests", _CHAIN + "commit", _GOOGLE),
    Step("manifest read back, Google", "cloud read manifests", _CHAIN + "_holds", _GOOGLE),
    Step("what leaves put, Google", "cloud put superseded", _OFFLINE + "set_aside", _AMENDS_IN_GOOGLE),
    Step("what leaves read back, Google", "cloud read superseded", _CHAIN + "drop", _AMENDS_IN_GOOGLE),
    Step("version put, Google", "cloud put versions", _SUPERSEDED + "put", _AMENDS_IN_GOOGLE),
    Step("version read back, Google", "cloud read versions", _SUPERSEDED + "put", _AMENDS_IN_GOOGLE),
    Step("buckets file removed, Google", "cloud delete buckets", _OFFLINE + "drop", _AMENDS_IN_GOOGLE),
    Step("old manifest removed, Google", "cloud delete manifests", _OFFLINE + "drop", _AMENDS_IN_GOOGLE),
    Step(
        "receipt and chain's heads written",
        "mongo update bucketwise_receipts live in transaction",
        _RECEIPTS + "set_live",
        _COPIES,
    ),
    Step("receipt committed", "mongo commit receipt", _REGISTRY + "register", _COPIES),
    # Delete
    Step("manifest seen", "file look at manifests", _OFFLINE + "check_present", (*_FILE, "grace")),
    Step("policy's text kept", "mongo update bucketwise_receipts policy", _DELETIONS + "_append", _ALL[1:]),
    Step(
        "fingerprints forgotten",
        "mongo update bucketwise_receipts known no more",
        "bucketwise.archivers.moving.copies:KnownCopies.forget",
        ("grace",),
    ),
    Step(
        "receipt of the delete",
        "mongo insert bucketwise_receipts in transaction",
        _DELETIONS + "record",
        ("offline", "online", "grace"),
    ),
    Step(
        "originals compared",
        "mongo find it in transaction",
        "bucketwise.archivers.writes:compare",
        _DELETES,
    ),
    Step(
        "overflow compared",
        "mongo find it_more in transaction",
        "bucketwise.archivers.writes:compare",
        _OVERFLOW,
    ),
    Step(
        "batch deleted",
        "mongo delete it in transaction",
        "bucketwise.archivers.writes:guarded_delete",
        _DELETES,
    ),
    Step(
        "overflow deleted",
        "mongo delete it_more in transaction",
        "bucketwise.archivers.writes:guarded_delete",
        _OVERFLOW,
    ),
    Step(
        "receipt read",
        "mongo find bucketwise_receipts in transaction",
        _REGISTRY + "record",
        ("offline", "grace"),
    ),
    Step(
        "delete committed",
        "mongo commit delete",
        "bucketwise.archivers.writes:guarded_delete",
        _DELETES,
    ),
    # A commit without what has changed since
    Step("folder for what leaves", "file make folder superseded", _FILES + "_make_folders", ("amended",)),
    Step("what leaves put aside", "file put superseded", _OFFLINE + "set_aside", ("amended",)),
    Step("what leaves in place", "file place superseded", _FILES + "_place", ("amended",)),
    Step("what leaves put aside, S3", "s3 PutObject superseded", _OFFLINE + "set_aside", ("amended s3",)),
    Step("what leaves read back", "file read superseded", _CHAIN + "drop", ("amended",)),
    Step("what leaves read back, S3", "s3 GetObject superseded", _CHAIN + "drop", ("amended s3",)),
    Step("folder of versions", "file make folder versions", _FILES + "_make_folders", ("amended",)),
    Step("version put", "file put versions", _SUPERSEDED + "put", ("amended",)),
    Step("version in place", "file place versions", _FILES + "_place", ("amended",)),
    Step("version read back", "file read versions", _SUPERSEDED + "put", ("amended",)),
    Step("version put, S3", "s3 PutObject versions", _SUPERSEDED + "put", ("amended s3",)),
    Step("version read back, S3", "s3 GetObject versions", _SUPERSEDED + "put", ("amended s3",)),
    Step(
        "exchange", "mongo update bucketwise_receipts replaced in transaction", _REGISTRY + "amend", _AMENDS
    ),
    Step("exchange committed", "mongo commit exchange", _REGISTRY + "amend", _AMENDS),
    Step("old manifest removed", "file remove manifests", _OFFLINE + "drop", ("amended",)),
    Step("old part removed", "file remove data", _OFFLINE + "drop", ("amended",)),
    Step("old buckets file removed", "file remove buckets", _OFFLINE + "drop", ("amended",)),
    Step("old manifest removed, S3", "s3 DeleteObjects manifests", _OFFLINE + "drop", ("amended s3",)),
    Step(
        "old receipt removed", "mongo update bucketwise_receipts dropped", _RECEIPTS + "mark_dropped", _AMENDS
    ),
    # The commits of a day become one
    Step("days asked for", "mongo aggregate bucketwise_receipts", _DAYS + "to_compact", _COMPACTS),
    Step("commits of a day read", "mongo find bucketwise_receipts", _DAYS + "commits_of", _MERGES),
    Step("manifest to merge read", "file read manifests", _OFFLINE + "manifest", _MERGES[:1]),
    Step("manifest to merge read, S3", "s3 GetObject manifests", _OFFLINE + "manifest", _MERGES[1:]),
    Step("part to merge read", "file read data", _OFFLINE + "load", _MERGES[:1]),
    Step("part to merge read, S3", "s3 GetObject data", _OFFLINE + "load", _MERGES[1:]),
    Step("buckets file to merge read", "file read buckets", _OFFLINE + "load", _MERGES[:1]),
    Step("buckets file to merge read, S3", "s3 GetObject buckets", _OFFLINE + "load", _MERGES[1:]),
    Step("merged documents packed", "encode", "bucketwise.buckets.packing:pack", _MERGES),
    Step("merged part put", "file put data", _WRITER + "write", _MERGES[:1]),
    Step("merged part in place", "file place data", _FILES + "_place", _MERGES[:1]),
    Step("merged part put, S3", "s3 PutObject data", _WRITER + "write", _MERGES[1:]),
    Step("merged buckets file put", "file put buckets", _WRITER + "write", _MERGES[:1]),
    Step("merged buckets file in place", "file place buckets", _FILES + "_place", _MERGES[:1]),
    Step("merged buckets file put, S3", "s3 PutObject buckets", _WRITER + "write", _MERGES[1:]),
    Step(
        "merged documents rebuilt",
        "rebuild documents",
        "bucketwise.buckets.packing:unpacks_to",
        _MERGES,
    ),
    Step("merged part seen", "file look at data", _OFFLINE + "commit", _MERGES[:1]),
    Step("merged part seen, S3", "s3 HeadObject data", _OFFLINE + "commit", _MERGES[1:]),
    Step("merged manifest put", "file put manifests", _CHAIN + "commit", _MERGES[:1]),
    Step("merged manifest in place", "file place manifests", _FILES + "_place", _MERGES[:1]),
    Step("merged manifest put, S3", "s3 PutObject manifests", _CHAIN + "commit", _MERGES[1:]),
    Step(
        "lease asked before the exchange",
        "mongo update bucketwise_lease guard in transaction",
        _LEASE + "guard",
        _MERGES,
    ),
    Step(
        "receipts of a day read",
        "mongo find bucketwise_receipts in transaction",
        _REGISTRY + "_exchange",
        _MERGES,
    ),
    Step(
        "merged receipt and chain's head written",
        "mongo update bucketwise_receipts live in transaction",
        _RECEIPTS + "set_live",
        _MERGES,
    ),
    Step(
        "replaced by the merged one",
        "mongo update bucketwise_receipts replaced in transaction",
        _REGISTRY + "_exchange",
        _MERGES,
    ),
    Step("merge of commits committed", "mongo commit exchange", _REGISTRY + "merge", _MERGES),
    Step(
        "fingerprints of the merged commit written",
        "mongo update bucketwise_receipts known",
        "bucketwise.archivers.moving.copies:KnownCopies.note",
        _MERGES[1:],
    ),
    Step("day noted", "mongo update bucketwise_receipts compacted", _DAYS + "note_compacted", _MERGES),
    Step("compaction told", "mongo update bucketwise_runs", _LEDGER + "finish", _MERGES),
    Step("lease released at last", "mongo update bucketwise_lease release", _LEASE + "__exit__", _MERGES),
    # What changed is registered in an Iceberg table
    Step("table's metadata read", "file read iceberg", _TABLE + "_open", _TABLES[:1]),
    Step("table's metadata read, S3", "s3 GetObject iceberg", _TABLE + "_open", _TABLES[1:]),
    Step("table's files put", "file put iceberg", _TABLE + "commit", _TABLES[:1]),
    Step("table's files in place", "file place iceberg", _FILES + "_place", _TABLES[:1]),
    Step("table's files put, S3", "s3 PutObject iceberg", _TABLE + "commit", _TABLES[1:]),
    Step("table's file looked for, S3", "s3 HeadObject iceberg", _OBJECTS + "put_bytes", _TABLES[1:]),
    Step(
        "table noted",
        "mongo update bucketwise_receipts lake in transaction",
        "bucketwise.archivers.lake.records:LakeRecords.note",
        _TABLES,
    ),
    Step(
        "commits in the table noted",
        "mongo update bucketwise_receipts in lake in transaction",
        "bucketwise.archivers.lake.records:LakeRecords.note",
        _TABLES,
    ),
    Step("note of the table committed", "mongo commit note of the table", _SYNC + "_Sync._register", _TABLES),
    Step("table's old files removed", "file remove iceberg", _TABLE + "tidy", _TABLES[:1]),
    Step("table's old files removed, S3", "s3 DeleteObjects iceberg", _TABLE + "tidy", _TABLES[1:]),
    # What was replaced is dropped, when its delay is over
    Step("successor seen", "file look at manifests", _OFFLINE + "is_there", _DROPS[:1]),
    Step("successor seen, S3", "s3 HeadObject manifests", _OFFLINE + "is_there", _DROPS[1:]),
    Step("replaced receipt due", "mongo update bucketwise_receipts due", _REGISTRY + "drop_replaced", _DROPS),
    Step("replaced manifest read", "file read manifests", _CHAIN + "drop", _DROPS[:1]),
    Step("replaced manifest read, S3", "s3 GetObject manifests", _CHAIN + "drop", _DROPS[1:]),
    Step("replaced manifests' folder", "file make folder superseded", _FILES + "_make_folders", _DROPS[:1]),
    Step("replaced manifest put aside", "file put superseded", _CHAIN + "drop", _DROPS[:1]),
    Step("replaced manifest in place", "file place superseded", _FILES + "_place", _DROPS[:1]),
    Step("replaced manifest put aside, S3", "s3 PutObject superseded", _CHAIN + "drop", _DROPS[1:]),
    Step("replaced manifest read back", "file read superseded", _CHAIN + "drop", _DROPS[:1]),
    Step("replaced manifest read back, S3", "s3 GetObject superseded", _CHAIN + "drop", _DROPS[1:]),
    Step("replaced manifest removed", "file remove manifests", _OFFLINE + "drop", _DROPS[:1]),
    Step("replaced manifest removed, S3", "s3 DeleteObjects manifests", _OFFLINE + "drop", _DROPS[1:]),
    Step("replaced part removed", "file remove data", _OFFLINE + "drop", _DROPS[:1]),
    Step("replaced buckets file removed", "file remove buckets", _OFFLINE + "drop", _DROPS[:1]),
    Step("replaced files removed, S3", "s3 DeleteObjects data", _OFFLINE + "drop", _DROPS[1:]),
    Step(
        "replaced receipt removed",
        "mongo update bucketwise_receipts dropped",
        _RECEIPTS + "mark_dropped",
        _DROPS,
    ),
    # A checkpoint
    Step("checkpoint looked for", "file look at checkpoints", _CHECKPOINTING + "is_gone", _CHECKS[:1]),
    Step("checkpoint looked for, S3", "s3 HeadObject checkpoints", _CHECKPOINTING + "is_gone", _CHECKS[1:]),
    Step("checkpoint read", "file read checkpoints", _CHAIN + "put", _CHECKS[:1]),
    Step("checkpoint read, S3", "s3 GetObject checkpoints", _CHAIN + "put", _CHECKS[1:]),
    Step("checkpoint put", "file put checkpoints", _CHAIN + "put", _CHECKS[:1]),
    Step("checkpoint in place", "file place checkpoints", _FILES + "_place", _CHECKS[:1]),
    Step("checkpoint put, S3", "s3 PutObject checkpoints", _CHAIN + "put", _CHECKS[1:]),
    Step(
        "checkpoint recorded",
        "mongo update bucketwise_receipts checkpoint in transaction",
        "bucketwise.archivers.records.heads:write_checkpoint_record",
        _CHECKS,
    ),
    Step("checkpoint committed", "mongo commit checkpoint", _CHECKPOINTING + "make_due_checkpoint", _CHECKS),
    Step("other checkpoints listed", "file list checkpoints", _CHECKPOINTING + "drop_others", _CHECKS[:1]),
    Step(
        "other checkpoints listed, S3",
        "s3 ListObjectsV2 checkpoints",
        _CHECKPOINTING + "drop_others",
        _CHECKS[1:],
    ),
    Step("other checkpoint removed", "file remove checkpoints", _CHECKPOINTING + "drop_others", _CHECKS[:1]),
    Step(
        "other checkpoint removed, S3",
        "s3 DeleteObjects checkpoints",
        _CHECKPOINTING + "drop_others",
        _CHECKS[1:],
    ),
    # Receipts of old deletes
    Step("folder of receipts", "file make folder receipts", _FILES + "_make_folders", _MOVES[:1]),
    Step("file of receipts put", "file put receipts", _MOVED + "ReceiptFiles.write", _MOVES[:1]),
    Step("file of receipts in place", "file place receipts", _FILES + "_place", _MOVES[:1]),
    Step("file of receipts put, S3", "s3 PutObject receipts", _MOVED + "ReceiptFiles.write", _MOVES[1:]),
    Step("file of receipts read back", "file read receipts", _MOVED + "ReceiptFiles.write", _MOVES[:1]),
    Step(
        "file of receipts read back, S3", "s3 GetObject receipts", _MOVED + "ReceiptFiles.write", _MOVES[1:]
    ),
    Step(
        "file of receipts named",
        "mongo update bucketwise_receipts moved in transaction",
        _MOVED + "ReceiptFiles.add",
        _MOVES,
    ),
    Step(
        "old receipts removed",
        "mongo delete bucketwise_receipts in transaction",
        _RECEIPTS + "remove",
        _MOVES,
    ),
    Step("old receipts moved", "mongo commit move of receipts", _MOVED + "move_old", _MOVES),
    # Online
    Step(
        "heads written",
        "mongo update bucketwise_receipts collections in transaction",
        _HEADS + "_write",
        ("first run online",),
    ),
    Step(
        "heads recorded",
        "mongo commit heads of collections",
        _HEADS + "_write",
        ("first run online",),
    ),
    Step(
        "heads moved",
        "mongo update bucketwise_receipts collections in transaction",
        _DELETIONS + "_append",
        ("online", "expired archive online", "erased online"),
    ),
    Step("archive counted", "mongo count it_archive", _HEADS + "_check_count", _ENDS_ONLINE),
    Step(
        "overflow archive counted", "mongo count it_archive_overflow", _HEADS + "_check_count", _ENDS_ONLINE
    ),
    Step("archive made", "mongo create it_archive", _ONLINE_RUN + "_make_collections", ("first run online",)),
    Step(
        "overflow's archive made",
        "mongo create it_archive_overflow",
        _ONLINE_RUN + "_make_collections",
        ("first run online",),
    ),
    Step("archive's indexes", "mongo createIndexes it_archive", _ONLINE_RUN + "_make_collections", _ONLINE),
    Step(
        "overflow archive's index",
        "mongo createIndexes it_archive_overflow",
        _ONLINE_RUN + "_make_collections",
        _ONLINE,
    ),
    Step("copies read", "mongo find it_archive", _ONLINE_RUN + "_named_in_archive", _ONLINE),
    Step(
        "copied overflow read", "mongo find it_archive_overflow", _ONLINE_RUN + "_named_in_archive", _ONLINE
    ),
    Step("copied", "mongo insert it_archive in transaction", _ONLINE_RUN + "_copy", _ONLINE),
    Step(
        "overflow copied", "mongo insert it_archive_overflow in transaction", _ONLINE_RUN + "_copy", _ONLINE
    ),
    Step(
        "copies named",
        "mongo update bucketwise_receipts copied in transaction",
        _ONLINE_RUN + "_copy",
        _ONLINE,
    ),
    Step("copies asked for", "mongo find it_archive in transaction", _ONLINE_RUN + "_record", _ONLINE),
    Step(
        "copied overflow asked for",
        "mongo find it_archive_overflow in transaction",
        _ONLINE_RUN + "_record",
        _ONLINE,
    ),
    Step("copy committed", "mongo commit copy", _ONLINE_RUN + "_copy", _ONLINE),
    Step(
        "old copy taken back",
        "mongo delete it_archive in transaction",
        _TAKE_BACK,
        _ONLINE,
    ),
    Step(
        "old overflow taken back",
        "mongo delete it_archive_overflow in transaction",
        _TAKE_BACK,
        _ONLINE,
    ),
    Step(
        "delete told",
        "mongo update bucketwise_receipts deleted in transaction",
        _ONLINE_RUN + "_record",
        _ONLINE,
    ),
    Step(
        "copies forgotten",
        "mongo update bucketwise_receipts pull in transaction",
        _RECEIPTS + "pull",
        _ONLINE,
    ),
    Step(
        "receipt closed",
        "mongo update bucketwise_receipts closed in transaction",
        _RECEIPTS + "pull",
        _ONLINE,
    ),
    # Online: later versions of what is archived
    Step("versions' collection", "mongo create it_archive_versions", _KEPT + "make", ("late",)),
    Step("versions' index", "mongo createIndexes it_archive_versions", _KEPT + "make", ("late",)),
    Step("versions read", "mongo find it_archive_versions", _KEPT + "of", _LATE),
    Step(
        "versions copied",
        "mongo insert it_archive_versions in transaction",
        _KEPT + "put",
        ("late",),
    ),
    Step(
        "versions named",
        "mongo update bucketwise_receipts merging in transaction",
        _MERGING + "_copy",
        ("late",),
    ),
    Step("copy of versions committed", "mongo commit copy of versions", _MERGING + "_copy", ("late",)),
    Step(
        "versions asked for",
        "mongo find it_archive_versions in transaction",
        _KEPT + "of",
        (*_LATE, "online changed"),
    ),
    Step("late bucket deleted", "mongo delete it in transaction", _MERGING + "_merge", _LATE),
    Step("archived one taken back", "mongo delete it_archive in transaction", _MERGING + "_replace", _LATE),
    Step("merged one put", "mongo insert it_archive in transaction", _MERGING + "_replace", _LATE),
    Step(
        "receipt of the merge", "mongo insert bucketwise_receipts in transaction", _MERGING + "_record", _LATE
    ),
    Step("merge committed", "mongo commit delete", _MERGING + "_merge", _LATE),
    Step(
        "what is hidden told",
        "mongo update bucketwise_receipts merged in transaction",
        _MERGING + "_record",
        _LATE,
    ),
    Step(
        "merged windows followed", "mongo commit merged windows followed", _MERGING + "roll_up_merged", _LATE
    ),
    Step(
        "TTL of the overflow",
        "mongo listIndexes it_more",
        "bucketwise.rollups.rolling.outlived:deletes_before_archive",
        _LATE,
    ),
    # Restore into the source, and back
    Step(
        "restored",
        "mongo insert it in transaction",
        "bucketwise.archivers.restoring.restore:restore",
        ("restore",),
    ),
    Step(
        "overflow restored",
        "mongo insert it_more in transaction",
        "bucketwise.archivers.restoring.restore:restore",
        ("restore",),
    ),
    Step(
        "pinned",
        "mongo update bucketwise_pins in transaction",
        "bucketwise.archivers.records.pins:Pins",
        ("restore",),
    ),
    Step(
        "restore committed",
        "mongo commit restore",
        "bucketwise.archivers.restoring.restore:restore",
        ("restore",),
    ),
    Step(
        "unpinned",
        "mongo delete bucketwise_pins in transaction",
        "bucketwise.jobs.restore.unpin:release_pins",
        ("unpin",),
    ),
    Step("unpin committed", "mongo commit unpin", "bucketwise.jobs.restore.unpin:release_pins", ("unpin",)),
    # Copies of the store, and what is encrypted
    Step("keyring put", "file put keyring", _ENCRYPTED + "keyring", ("encrypted",)),
    Step("keyring in place", "file place keyring", _FILES + "_place", ("encrypted",)),
    Step(
        "keyring read", "file read keyring", _ENCRYPTED + "keyring", ("encrypted", "repaired and encrypted")
    ),
    Step("keyring read, S3", "s3 GetObject keyring", _ENCRYPTED + "keyring", ("moved",)),
    Step(
        "copy noted",
        "mongo update bucketwise_receipts copy",
        "bucketwise.archivers.records.changes:CopyRecords.note_filled",
        ("filled",),
    ),
    Step("owner looked for", "file look at owner", _REPAIR + "run", _REPAIRED),
    Step(
        "what is put back is readable",
        "mongo update bucketwise_receipts next move",
        _REPAIR + "run",
        _REPAIRED,
    ),
    Step(
        "look noted",
        "mongo update bucketwise_progress scrub",
        "bucketwise.archivers.copying.repairing:scrub",
        ("looked after", "moved"),
    ),
    # Storage classes
    Step(
        "schedule of moves written",
        "mongo update bucketwise_receipts classes in transaction",
        _MOVER + "run",
        ("moved",),
    ),
    Step(
        "all looked at for a move",
        "mongo update bucketwise_receipts next moves in transaction",
        _MOVER + "run",
        ("moved",),
    ),
    Step("schedule of moves committed", "mongo commit schedule of moves", _MOVER + "run", ("moved",)),
    Step("part to move looked at", "s3 HeadObject data", _OBJECTS + "move", ("moved",)),
    Step("part moved", "s3 CopyObject data", _OBJECTS + "move", ("moved",)),
    Step(
        "move written", "mongo update bucketwise_receipts stored in transaction", _MOVER + "run", ("moved",)
    ),
    Step("move committed", "mongo commit move of parts", _MOVER + "run", ("moved",)),
    Step("states of cold parts read", "s3 GetObject buckets", _OFFLINE + "states", ("late and cold",)),
    Step("late part put", "s3 PutObject data", _WRITER + "write", ("late and cold",)),
    Step("part asked for", "s3 RestoreObject data", _OBJECTS + "thaw", ("thawed",)),
    Step("cold part looked at", "s3 HeadObject data", _OBJECTS + "standing", ("thawed",)),
    *(
        Step(f"change of {kind} {done}", f"mongo {do} bucketwise_receipts change of {kind}", where, jobs)
        for kind, jobs in _CHANGES
        for do, done, where in (
            ("insert", "written down", _JOURNAL + "begin"),
            ("delete", "crossed off", _JOURNAL + "end"),
        )
    ),
    *(
        Step(f"in the copy: {do} {kind}", f"copy {do} {kind}", _COPY, jobs)
        for do, kinds, jobs in _IN_COPY
        for kind in kinds
    ),
)
