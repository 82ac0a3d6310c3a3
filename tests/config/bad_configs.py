"""Bad policy files, each with what its message has to say.

Every file is GOOD with a change or two. The fragments are pieces of the message that a user sees: the place
and key, the value, what is wrong, the mend. A file has one problem, unless its fragments say "… problems".
"""

from __future__ import annotations

from typing import NamedTuple

GOOD = """\
[mongodb]
uri = "mongodb://127.0.0.1:1/?replicaSet=rs0"
database = "market"

[store]
url = "file:///var/lib/bucketwise"

[policies.ticks]
collection = "ticks"
model = "slots"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
slot = "second"

[policies.ticks.rollup]
hourly = "ticks_hourly"
daily = "ticks_daily"
timezone = "UTC"
settle = "10m"
recheck = "2d"
percentiles = [50, 95]

[policies.ticks.archive]
after = "30d"
to = "offline"

[policies.ticks.retain]
hourly = "730d"

[policies.iot]
collection = "iot"
model = "samples"
series_fields = ["deviceid", "sensorid"]
value_fields = ["val", "hum"]
samples_field = "samples"
sample_time_field = "time"
start_field = "first"
end_field = "last"

[policies.iot.overflow]
flag_field = "has_extras"
collection = "iot_extra"
ref_field = "bucket_id"
samples_field = "samples"

[policies.iot.archive]
after = "90d"
to = "online"
collection = "iot_archive"
"""


class BadConfig(NamedTuple):
    id: str
    text: str
    fragments: tuple[str, ...]


def changed(*changes: tuple[str, str]) -> str:
    """GOOD with every first text of a pair, which it holds once, replaced by the second."""
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def bad(id: str, old: str, new: str, *fragments: str) -> BadConfig:
    return BadConfig(id, changed((old, new)), fragments)


def _levels(id: str, levels: list[tuple[str, str]], *fragments: str) -> BadConfig:
    """GOOD with further levels, each with its collection."""
    tables = [
        f'[[policies.ticks.rollup.levels]]\nname = "{name}"\ncollection = "{target}"\n\n'
        for name, target in levels
    ]
    return bad(id, "[policies.ticks.archive]", "".join(tables) + "[policies.ticks.archive]", *fragments)


_URI = "mongodb://127.0.0.1:1/?replicaSet=rs0"
_URL = "file:///var/lib/bucketwise"
_TICKS_FIELDS = 'series_fields = ["symbol"]\nvalue_fields = ["p"]'
_IOT_FIELDS = 'series_fields = ["deviceid", "sensorid"]\nvalue_fields = ["val", "hum"]'
_IOT_ARCHIVE = 'to = "online"\ncollection = "iot_archive"'

SYNTAX = [
    bad(
        "toml-syntax",
        'model = "slots"',
        "model = slots",
        ":10\n",
        "is not valid TOML",
        "line 10",
        "fix the syntax",
    ),
    bad(
        "toml-key-twice",
        'slot = "second"',
        'slot = "second"\nslot = "second"',
        "is not valid TOML",
        "Cannot overwrite",
    ),
    BadConfig(
        "empty-file",
        "",
        (
            "3 problems",
            "mongodb.uri",
            "add `uri` to [mongodb], or set BUCKETWISE_MONGODB_URI",
            "mongodb.database",
            "there is no policy",
            "add [policies.NAME]",
        ),
    ),
    BadConfig(
        "no-policies",
        GOOD.partition("[policies.ticks]")[0],
        ("policies\n", "there is no policy", "add [policies.NAME] for each collection"),
    ),
]

KEYS_AND_TYPES = [
    bad(
        "unknown-key",
        'settle = "10m"',
        'setle = "10m"',
        ":20: policies.ticks.rollup.setle",
        'value: "10m"',
        "there is no such key",
        "did you mean `settle`?",
    ),
    bad(
        "unknown-key-like-none",
        'model = "slots"',
        'model = "slots"\nzzz = 1',
        ":11: policies.ticks.zzz",
        "value: 1\n",
        "there is no such key",
        "known keys here: id, collection, may_be_missing, model",
    ),
    bad(
        "unknown-table",
        "[policies.ticks.retain]",
        "[policies.ticks.retian]",
        ":28: policies.ticks.retian",
        "value: {…}",
        "did you mean `retain`?",
    ),
    bad("unknown-top", "[store]", "[stor]", ":5: stor\n", "value: ***", "did you mean `store`?"),
    bad(
        "unknown-key-with-secret",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nsecret_access_key = "hunter2"',
        "store.secret_access_key",
        "value: ***",
        "known keys here: url, endpoint_url, region",
    ),
    bad(
        "misspelt-and-bad-inside",
        "[policies.ticks.archive]\nafter",
        "[policies.ticks.archiv]\naftre",
        "2 problems",
        "policies.ticks.archiv\n",
        "did you mean `archive`?",
        ":25: policies.ticks.archiv.aftre",
        "did you mean `after`?",
    ),
    bad(
        "missing-key",
        'collection = "ticks"\n',
        "",
        ":8: policies.ticks.collection",
        "it is missing",
        "add `collection` to [policies.ticks]",
    ),
    bad(
        "missing-uri",
        f'uri = "{_URI}"\n',
        "",
        "mongodb.uri",
        "it is missing",
        "add `uri` to [mongodb], or set BUCKETWISE_MONGODB_URI",
    ),
    bad(
        "number-for-text",
        'collection = "ticks"\n',
        "collection = 7\n",
        "policies.ticks.collection",
        "value: 7\n",
        "it is a number, and has to be text",
        "in quotes",
    ),
    bad(
        "text-for-list",
        'series_fields = ["symbol"]',
        'series_fields = "symbol"',
        "policies.ticks.series_fields",
        'value: "symbol"',
        "it is text, and has to be a list",
        'a list: ["…", "…"]',
    ),
    bad(
        "number-in-list",
        'series_fields = ["symbol"]',
        'series_fields = ["symbol", 3]',
        "policies.ticks.series_fields",
        'value: ["symbol", 3]',
        "its item 3: it is a number, and has to be text",
    ),
    bad(
        "text-for-bool",
        'to = "offline"',
        'to = "offline"\ndelete = "no"',
        "policies.ticks.archive.delete",
        'value: "no"',
        "it is text, and has to be true or false",
        "without quotes",
    ),
    bad(
        "bool-for-number",
        "percentiles = [50, 95]",
        "percentiles = [true]",
        "policies.ticks.rollup.percentiles",
        "its item true: it is true or false, and has to be a number",
    ),
    bad(
        "value-for-table",
        'end_field = "last"',
        'end_field = "last"\nrollup = "iot_hourly"',
        ":40: policies.iot.rollup",
        'value: "iot_hourly"',
        "it has to be a table",
        "write [policies.iot.rollup], and its keys below",
    ),
    BadConfig(
        "policies-is-no-table",
        "policies = 3\n" + GOOD.partition("[policies.ticks]")[0],
        (":1: policies", "value: 3", "it has to be a table", "write [policies]"),
    ),
    bad(
        "dotted-sum-without-quotes",
        'end_field = "last"',
        'end_field = "last"\nsum_fields = {a.b = "sum_ab"}',
        "policies.iot.sum_fields.a",
        "it is a table, and has to be text",
        "put a dotted field in quotes",
    ),
    bad(
        "bad-choice",
        'model = "slots"',
        'model = "slot"',
        "policies.ticks.model",
        'value: "slot"',
        "it is not one of the choices",
        'did you mean "slots"?',
    ),
    bad(
        "missing-variable",
        'database = "market"',
        'database = "${BUCKETWISE_TEST_UNSET}"',
        ":3: mongodb.database",
        'value: "${BUCKETWISE_TEST_UNSET}"',
        "the environment variable BUCKETWISE_TEST_UNSET is not set",
        "set BUCKETWISE_TEST_UNSET in the environment",
    ),
    bad(
        "nameless-variable",
        'database = "market"',
        'database = "${market"',
        "mongodb.database",
        'value: "${market"',
        "`${` is not followed by the name of an environment variable",
        "`$${`",
    ),
]

DURATIONS = [
    bad(
        "duration-unit",
        'after = "30d"',
        'after = "1M"',
        ":25: policies.ticks.archive.after",
        'value: "1M"',
        "it is not a duration",
        '"30d"',
    ),
    bad(
        "duration-negative",
        'settle = "10m"',
        'settle = "-10m"',
        "policies.ticks.rollup.settle",
        'value: "-10m"',
        "it is not a duration",
    ),
    bad(
        "duration-number",
        'after = "30d"',
        "after = 30",
        "policies.ticks.archive.after",
        "value: 30\n",
        "it is a number, and has to be a duration",
    ),
    bad(
        "duration-too-long",
        'hourly = "730d"',
        'hourly = "99999w"',
        "policies.ticks.retain.hourly",
        'value: "99999w"',
        "longer than 36500 days",
        "forever",
    ),
    bad(
        "settle-forever",
        'settle = "10m"',
        'settle = "forever"',
        "policies.ticks.rollup.settle",
        'value: "forever"',
        "cannot last forever",
        '"10m"',
    ),
    bad(
        "after-zero",
        'after = "90d"',
        'after = "0s"',
        "policies.iot.archive.after",
        'value: "0s"',
        "it must be longer than zero",
    ),
    bad(
        "recheck-zero",
        'recheck = "2d"',
        'recheck = "0s"',
        "policies.ticks.rollup.recheck",
        "it must be longer than zero",
    ),
    bad(
        "retain-zero",
        'hourly = "730d"',
        'hourly = "0d"',
        "policies.ticks.retain.hourly",
        "it must be longer than zero",
    ),
]

CONNECTIONS = [
    bad(
        "uri-scheme",
        _URI,
        "postgres://bob:hunter2@db/x",
        ":2: mongodb.uri",
        'value: "postgres://***@db/x"',
        "does not start with mongodb:// or mongodb+srv://",
        "mongodb://host:27017",
    ),
    bad("uri-no-scheme", _URI, "bob:hunter2", "mongodb.uri", "value: ***", "does not start with mongodb://"),
    bad(
        "uri-password-not-escaped",
        _URI,
        "mongodb://bob:hun/ter2@db:27017/x",
        "mongodb.uri",
        'value: "mongodb://***@db:27017/x"',
        "the driver cannot parse its user, password or hosts",
        "write @ as %40",
    ),
    bad(
        "uri-without-host",
        _URI,
        "mongodb://bob:hunter2",
        "mongodb.uri",
        'value: "mongodb://***"',
        "the driver cannot parse its user, password or hosts",
    ),
    bad(
        "uri-unknown-option",
        _URI,
        "mongodb://h/?w=majority&replicaSte=rs0",
        "mongodb.uri",
        'value: "mongodb://h/?w=majority&replicaSte=rs0"',
        "the driver rejects its option replicaSte: ",
    ),
    bad(
        "uri-options-at-odds",
        _URI,
        "mongodb://h/?tls=true&ssl=false",
        "mongodb.uri",
        "the driver rejects its options: ",
    ),
    bad(
        "database-shape",
        'database = "market"',
        'database = "mar ket"',
        "mongodb.database",
        'value: "mar ket"',
        "it is not a valid MongoDB database name",
        "without blanks",
    ),
    bad(
        "database-own",
        'database = "market"',
        'database = "admin"',
        "mongodb.database",
        "this database is MongoDB's own",
    ),
    bad(
        "store-scheme",
        _URL,
        "ftp://bucket/x",
        "store.url",
        'value: "ftp://bucket/x"',
        "not a supported store URL",
        '"s3://bucket/prefix"',
    ),
    bad(
        "store-dots",
        _URL,
        "s3://acme/a/../b",
        "store.url",
        'value: "s3://acme/a/../b"',
        "`.` or `..`",
        "the full path",
    ),
    bad(
        "store-home",
        _URL,
        "s3://acme/~/a",
        "store.url",
        "`~` is not expanded to a home directory",
        "the full path",
    ),
    bad("store-absolute", _URL, "s3://acme//a", "store.url", "a part of the path is empty", "one slash"),
    bad("store-operator", _URL, "s3://acme/$where", "store.url", "starts with `$`", "`${NAME}`"),
    bad("store-relative", _URL, "file://data/x", "store.url", "must be absolute", "file:///var/lib"),
    bad("store-empty-end", _URL, "s3://acme//", "store.url", "a part of the path is empty", "one slash"),
    bad("store-root", _URL, "file:///", "store.url", "is the root directory", "a directory of its own"),
    bad("azure-container", _URL, "az://Acme_Archive/x", "not a valid name of a container", "single hyphens"),
    bad("azure-container-hyphens", _URL, "az://acme--archive", "not a valid name of a container"),
    bad("google-bucket", _URL, "gs://Acme/x", "not a valid name of a Google Cloud Storage bucket", "3 to 63"),
    bad(
        "azure-credentials",
        _URL,
        "az://acme:hunter2@archive/x",
        'value: "az://***@archive/x"',
        "credentials do not belong in this URL",
        "AZURE_STORAGE_ACCOUNT_NAME",
    ),
    bad(
        "google-credentials",
        f'url = "{_URL}"',
        'url = "gs://acme/x"\nendpoint_url = "http://bob:hunter2@gcs:9000"',
        'value: "http://***@gcs:9000"',
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    bad(
        "google-region",
        f'url = "{_URL}"',
        'url = "gs://acme/x"\nregion = "europe-west1"',
        "store.region",
        "a Google Cloud Storage bucket is reached without a region",
        "remove it",
    ),
    bad("store-query", _URL, "s3://acme/a?x=1", "store.url", "contains ?, #, %", "leave them out"),
    bad(
        "store-bucket",
        _URL,
        "s3://Acme_Archive/x",
        "store.url",
        "not a valid S3 bucket name",
        "lower-case letters",
    ),
    bad(
        "store-credentials",
        _URL,
        "s3://AKIA:hun/ter2@acme/x",
        "store.url",
        'value: "s3://***@acme/x"',
        "credentials do not belong in this URL",
        "boto3's own chain",
    ),
    bad(
        "endpoint-scheme",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nendpoint_url = "minio:9000"',
        "store.endpoint_url",
        'value: "minio:9000"',
        "not an http:// or https:// URL",
        '"http://host:port"',
    ),
    bad(
        "endpoint-broken",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nendpoint_url = "http://[::1"',
        "store.endpoint_url",
        "not a valid URL",
    ),
    bad(
        "endpoint-query",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nendpoint_url = "http://h:9000/?x=1"',
        "store.endpoint_url",
        "more than scheme, host, port and path",
    ),
    bad(
        "endpoint-credentials",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nendpoint_url = "http://bob:hunter2@minio:9000"',
        "store.endpoint_url",
        'value: "http://***@minio:9000"',
        "credentials do not belong in this URL",
    ),
    bad(
        "region",
        f'url = "{_URL}"',
        f'url = "{_URL}"\nregion = "us east"',
        "store.region",
        'value: "us east"',
        "not a valid region",
        '"us-east-1"',
    ),
    bad(
        "workers-none",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nworkers = 0',
        "work.workers",
        "value: 0",
        "between 1 and 256",
    ),
    bad(
        "workers-text",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nworkers = "2"',
        "work.workers",
        "it is text, and has to be a number",
        "write a whole number",
    ),
    bad(
        "executor-scheme",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nexecutor = "ray://h:1"',
        "work.executor",
        "it is not a dask:// or tls:// address",
        '"dask://host:8786"',
    ),
    bad(
        "executor-no-port",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nexecutor = "dask://h"',
        "work.executor",
        "a host and a port, and nothing else",
    ),
    bad(
        "executor-path",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nexecutor = "dask://h:1/x"',
        "work.executor",
        "a host and a port, and nothing else",
    ),
    bad(
        "executor-credentials",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nexecutor = "dask://bob:hunter2@h:1"',
        "work.executor",
        'value: "dask://***@h:1"',
        "credentials do not belong",
    ),
    bad(
        "both-work",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nworkers = 2\nexecutor = "dask://h:1"',
        "work.executor",
        "use one of the two",
        "remove one of the two",
    ),
    bad(
        "memory-number",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nmemory = 400',
        "work.memory",
        "it is a number, and has to be text",
    ),
    bad(
        "memory-unit",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nmemory = "400 mb"',
        "work.memory",
        "it is not a size",
        '"400MB", "2GB"',
    ),
    bad(
        "memory-little",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nmemory = "49MB"',
        "work.memory",
        "less than 50MB is too little",
    ),
    bad(
        "work-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[work]\nworker = 2',
        "work.worker",
        "did you mean `workers`?",
    ),
    bad(
        "store-missing",
        f'[store]\nurl = "{_URL}"\n',
        "",
        "policies.ticks.archive.to",
        'value: "offline"',
        "the archive needs a store, and none is set",
        "add [store] with a `url`, or set BUCKETWISE_STORE_URL",
    ),
]

NAMES = [
    bad(
        "policy-id",
        'collection = "ticks"\n',
        'collection = "ticks"\nid = "a/b"\n',
        ":10: policies.ticks.id",
        'value: "a/b"',
        "a folder in the store",
        "use 1 to 64 letters",
    ),
    bad(
        "policy-id-of-another",
        'collection = "ticks"\n',
        'collection = "ticks"\nid = "iot"\n',
        ":10: policies.ticks.id",
        'value: "iot"',
        "policy iot has this name or id",
        "no other may have it",
    ),
    bad(
        "policy-name",
        "[policies.iot]\n",
        '[policies."a/b"]\ncollection = "c"\nmodel = "reading"\ntime_field = "t"\nseries_fields = []\n'
        'value_fields = ["v"]\n\n[policies.iot]\n',
        'policies."a/b"',
        'value: "a/b"',
        "a folder in the store",
        "1 to 64 letters, digits",
    ),
    bad(
        "collection-empty", 'collection = "iot"', 'collection = ""', "policies.iot.collection", "it is empty"
    ),
    bad(
        "collection-operator",
        'collection = "iot"',
        'collection = "$where"',
        "policies.iot.collection",
        'value: "$where"',
        "an operator to MongoDB",
        "without `$`",
    ),
    bad(
        "collection-dollar",
        'hourly = "ticks_hourly"',
        'hourly = "ticks$hourly"',
        "policies.ticks.rollup.hourly",
        "cannot contain `$` or NUL",
    ),
    bad(
        "collection-nul",
        'collection = "iot_extra"',
        'collection = "iot\\u0000"',
        "policies.iot.overflow.collection",
        'value: "iot\\u0000"',
        "cannot contain `$` or NUL",
    ),
    bad(
        "collection-dots", 'collection = "iot"', 'collection = "a..b"', "policies.iot.collection", "stray dot"
    ),
    bad(
        "collection-system",
        'collection = "iot_archive"',
        'collection = "system.views"',
        "policies.iot.archive.collection",
        'value: "system.views"',
        "MongoDB's own",
    ),
    bad(
        "collection-ledger",
        'daily = "ticks_daily"',
        'daily = "bucketwise_runs"',
        "policies.ticks.rollup.daily",
        'value: "bucketwise_runs"',
        "bucketwise's own records",
        "name another collection",
    ),
    bad(
        "collection-too-long",
        'collection = "iot"',
        f'collection = "{"x" * 249}"',
        "policies.iot.collection",
        "too long for MongoDB",
        "within 255 bytes",
    ),
    bad(
        "field-operator",
        'time_field = "d"',
        'time_field = "a.$function"',
        "policies.ticks.time_field",
        'value: "a.$function"',
        "an operator to MongoDB",
    ),
    bad(
        "field-empty-part",
        'start_field = "first"',
        'start_field = "a..b"',
        "policies.iot.start_field",
        'value: "a..b"',
        "a part of the field's path is empty",
    ),
    bad(
        "field-nul",
        'flag_field = "has_extras"',
        'flag_field = "a\\u0000"',
        "policies.iot.overflow.flag_field",
        "cannot contain NUL",
    ),
    bad(
        "sum-operator",
        'end_field = "last"',
        'end_field = "last"\nsum_fields = {val = "$where"}',
        "policies.iot.sum_fields.val",
        'value: "$where"',
        "an operator to MongoDB",
    ),
]

FIELDS = [
    bad(
        "slot-on-reading",
        'model = "slots"',
        'model = "reading"',
        ":14: policies.ticks.slot",
        'value: "second"',
        'it does not go with model "reading"',
        'remove it; it goes with "slots"',
    ),
    bad(
        "slots-without-slot",
        'slot = "second"\n',
        "",
        "policies.ticks.slot",
        'a "slots" bucket needs it',
        "add `slot`",
    ),
    bad(
        "slot-of-no-length",
        'slot = "second"',
        'slot = "seconds"',
        "policies.ticks.slot",
        'value: "seconds"',
        "neither a unit nor a duration",
        '"15m"',
    ),
    bad(
        "slot-of-days",
        'slot = "second"',
        'slot = "1d"\nspan = "month"',
        "policies.ticks.slot",
        "shorter than a day",
        'write "day"',
    ),
    bad(
        "span-of-no-length",
        'slot = "second"',
        'slot = "second"\nspan = "hours"',
        "policies.ticks.span",
        "neither a unit nor a duration",
        '"week"',
    ),
    bad(
        "slot-of-a-duration-without-span",
        'slot = "second"',
        'slot = "15m"',
        "policies.ticks.span",
        'it is missing, and slots of "15m" need it',
        'such as "day"',
    ),
    bad(
        "slot-of-a-day-without-span",
        'slot = "second"',
        'slot = "day"',
        "policies.ticks.span",
        "it is missing",
        '"week" or "month"',
    ),
    bad(
        "slot-of-a-day-in-a-day",
        'slot = "second"',
        'slot = "day"\nspan = "day"',
        "policies.ticks.span",
        "slots of a day are in buckets of a week or a month",
    ),
    bad(
        "span-of-a-slot",
        'slot = "second"',
        'slot = "15m"\nspan = "15m"',
        "policies.ticks.span",
        "a bucket of a 15m does not hold slots of a 15m",
    ),
    bad(
        "span-that-slots-do-not-divide",
        'slot = "second"',
        'slot = "7m"\nspan = "week"',
        "policies.ticks.span",
        'slots of "7m" do not divide it',
    ),
    bad(
        "running-slots-on-one-level",
        'slot = "second"',
        'slot = "second"\nslot_keys = "running"',
        "policies.ticks.slot_keys",
        "only slots inside slots count on",
    ),
    bad(
        "clock-slots-of-an-hour",
        'slot = "second"',
        'slot = "minute"\nslot_keys = "clock"',
        "policies.ticks.slot_keys",
        "clock times are keys of a day",
    ),
    bad(
        "clock-slots-from-1",
        'slot = "second"',
        'slot = "hour"\nslot_keys = "clock"\nfirst_slot = 1',
        "policies.ticks.first_slot",
        "clock times are not counted",
    ),
    bad(
        "local-slots-of-an-hour",
        'slot = "second"',
        'slot = "minute"\nslot_time = "local"',
        "policies.ticks.slot_time",
        "only in days, weeks and months",
    ),
    bad(
        "first-slot",
        'slot = "second"',
        'slot = "minute"\nfirst_slot = 2',
        "policies.ticks.first_slot",
        "value: 2",
        "counted from 0 or from 1",
    ),
    bad(
        "slots-without-time",
        'time_field = "d"\n',
        "",
        "policies.ticks.time_field",
        'a "slots" bucket needs it',
    ),
    bad(
        "samples-without-array",
        'samples_field = "samples"\nsample_time_field',
        "sample_time_field",
        "policies.iot.samples_field",
        'a "samples" bucket needs it',
        "add `samples_field`",
    ),
    bad(
        "sample-unit-unknown",
        'sample_time_field = "time"',
        'sample_time_field = "time"\nsample_time_unit = "+mss"',
        "policies.iot.sample_time_unit",
        "it is not one of the choices",
        'did you mean "+ms"?',
    ),
    bad(
        "sample-units-out-of-order",
        'sample_time_field = "time"',
        'sample_time_field = "time"\nsample_time_unit = ["s", "m"]',
        "policies.iot.sample_time_unit",
        "these are not the units of several fields",
        "the largest first",
    ),
    bad(
        "sample-units-of-two-kinds",
        'sample_time_field = "time"',
        'sample_time_field = "time"\nsample_time_unit = ["m", "+s"]',
        "policies.iot.sample_time_unit",
        "some count from the bucket's start, and some do not",
    ),
    bad(
        "sample-fields-without-units",
        'sample_time_field = "time"',
        'sample_time_field = ["m", "s"]',
        "policies.iot.sample_time_unit",
        "each field of a sample's time needs a unit",
    ),
    bad(
        "elapsed-in-overflow",
        'sample_time_field = "time"',
        'sample_time_field = "time"\nsample_time_unit = "+s"',
        "policies.iot.sample_time_unit",
        "times in overflow do not count from the bucket's start",
    ),
    bad(
        "arrays-with-an-array",
        'samples_field = "samples"\nsample_time_field',
        'samples_field = "samples"\nsamples_as = "arrays"\nsample_time_field',
        "2 problems",
        "policies.iot.samples_field",
        "parallel arrays are fields of the document",
        "policies.iot.overflow",
        "parallel arrays have no overflow",
    ),
    bad(
        "overflow-without-start",
        'start_field = "first"\n',
        "",
        "policies.iot.start_field",
        "their own samples don't show when they begin",
        "add `start_field` to the policy",
    ),
    bad(
        "unit-of-no-bounds",
        'start_field = "first"\nend_field = "last"\n',
        'time_unit = "ms"\n',
        "3 problems",
        "policies.iot.time_unit",
        "the policy names no field for a bucket's own times",
    ),
    bad(
        "samples-with-time-field",
        'end_field = "last"',
        'end_field = "last"\ntime_field = "day"',
        "policies.iot.time_field",
        'it does not go with model "samples"',
        'it goes with "reading" and "timeseries" and "slots"',
    ),
    bad(
        "overflow-on-reading",
        'model = "slots"\ntime_field = "d"\n' + _TICKS_FIELDS + '\nslot = "second"\n',
        'model = "reading"\ntime_field = "d"\n' + _TICKS_FIELDS + '\noverflow = {flag_field = "f", '
        'collection = "ticks_extra", ref_field = "r", samples_field = "s"}\n',
        ":14: policies.ticks.overflow",
        'it does not go with model "reading"',
        'it goes with "slots" and "samples"',
    ),
    bad(
        "sum-of-unknown",
        'end_field = "last"',
        'end_field = "last"\nsum_fields = {temp = "sum_temp"}',
        "policies.iot.sum_fields.temp",
        '"temp" is not in value_fields',
    ),
    bad(
        "nonnumeric-ok-of-unknown",
        'end_field = "last"',
        'end_field = "last"\nnonnumeric_ok = ["hum", "vla"]',
        "policies.iot.nonnumeric_ok",
        'value: "vla"',
        '"vla" is not in value_fields',
        "did you mean `val`?",
    ),
    bad(
        "nonnumeric-ok-like-none",
        'end_field = "last"',
        'end_field = "last"\nnonnumeric_ok = ["temp"]',
        "policies.iot.nonnumeric_ok",
        "name fields of value_fields only",
    ),
    bad(
        "no-values",
        'value_fields = ["p"]',
        "value_fields = []",
        "policies.ticks.value_fields",
        "value: []",
        "there is no value field",
    ),
    bad(
        "field-twice",
        'series_fields = ["symbol"]',
        'series_fields = ["symbol", "symbol"]',
        "policies.ticks.series_fields",
        'value: "symbol"',
        "series_fields already names this field",
        "name each field once",
    ),
    bad(
        "value-is-series",
        'value_fields = ["p"]',
        'value_fields = ["p", "symbol"]',
        "policies.ticks.value_fields",
        'value: "symbol"',
        "series_fields already names this field",
    ),
    bad(
        "value-is-series-of-samples",
        _IOT_FIELDS,
        'series_fields = ["deviceid", "val"]\nvalue_fields = ["val", "hum"]',
        "policies.iot.value_fields",
        'value: "val"',
        "series_fields already names this field",
    ),
    bad(
        "prefix",
        'series_fields = ["symbol"]',
        'series_fields = ["p.symbol"]',
        "policies.ticks.value_fields",
        'value: "p"',
        'it overlaps with "p.symbol" in series_fields',
    ),
    bad(
        "value-is-sample-time",
        'value_fields = ["val", "hum"]',
        'value_fields = ["val", "time"]',
        "policies.iot.value_fields",
        'value: "time"',
        "sample_time_field already names this field",
    ),
    bad(
        "start-is-end",
        'end_field = "last"',
        'end_field = "first"',
        "policies.iot.end_field",
        'value: "first"',
        "start_field already names this field",
    ),
    bad(
        "overflow-ref-is-samples",
        'ref_field = "bucket_id"',
        'ref_field = "samples"',
        "policies.iot.overflow.samples_field",
        "ref_field and samples_field name the same field",
    ),
    bad(
        "summary-field",
        'value_fields = ["p"]',
        'value_fields = ["count.x"]',
        "policies.ticks.value_fields",
        'value: "count.x"',
        "every summary has its own _id, start, end, count",
        'give it another name there: [policies.ticks.values."count.x"] with `as = ',
    ),
    bad(
        "value-named-as-a-summary-field",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {as = "count"}}',
        "policies.ticks.value_fields",
        'value: "count"',
        "[policies.ticks.values.p] with `as = ",
    ),
    bad(
        "latest-before-earliest",
        'slot = "second"',
        'slot = "second"\nearliest = "2025-01-01"\nlatest = "2024-01-01"',
        "policies.ticks.latest",
        "write a later instant, or a duration",
    ),
    bad(
        "earliest-no-instant",
        'slot = "second"',
        'slot = "second"\nearliest = "last year"',
        "policies.ticks.earliest",
        "it is not an instant",
        'such as "2018-06-30"',
    ),
    bad(
        "latest-forever",
        'slot = "second"',
        'slot = "second"\nlatest = "forever"',
        "policies.ticks.latest",
        "it is neither an instant nor a duration",
    ),
    bad(
        "latest-no-date",
        'slot = "second"',
        'slot = "second"\nlatest = "2025-02-30"',
        "policies.ticks.latest",
        "it is not an instant",
    ),
    bad(
        "misspelt-and-of-another-type",
        'slot = "second"',
        'slot = "second"\nslot_level = 3',
        "1 problem in the policy file",
        "policies.ticks.slot_level",
        "there is no such key",
        "did you mean `slot_levels`?",
    ),
    bad(
        "series-default-of-unknown",
        'slot = "second"',
        'slot = "second"\nseries_defaults = {symbl = "none"}',
        "policies.ticks.series_defaults.symbl",
        '"symbl" is not in series_fields',
        "did you mean `symbol`?",
    ),
    bad(
        "series-default-no-value",
        'slot = "second"',
        'slot = "second"\nseries_defaults = {symbol = ["a"]}',
        "policies.ticks.series_defaults.symbol",
        "has to be text",
    ),
    bad(
        "series-default-nan",
        'slot = "second"',
        'slot = "second"\nseries_defaults = {symbol = nan}',
        "policies.ticks.series_defaults.symbol",
        "no series has such a value",
    ),
    bad(
        "values-of-unknown",
        'slot = "second"',
        'slot = "second"\nvalues = {pp = {as = "price"}}',
        "policies.ticks.values.pp",
        '"pp" is not in value_fields',
        "did you mean `p`?",
    ),
    bad(
        "values-no-table",
        'slot = "second"',
        'slot = "second"\nvalues = {p = "price"}',
        "policies.ticks.values.p",
        "it has to be a table",
        "write [policies.ticks.values.p]",
    ),
    bad(
        "values-unknown-key",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {txt = true}}',
        "policies.ticks.values.p.txt",
        "did you mean `text`?",
    ),
    bad(
        "values-state-without-max-gap",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {kind = "state"}}',
        "policies.ticks.values.p.kind",
        'add `max_gap`, such as "30m"',
    ),
    bad(
        "values-state-with-a-max-gap-that-is-none",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {kind = "state", max_gap = "0s"}}',
        "policies.ticks.values.p.max_gap",
        "write a duration",
    ),
    bad(
        "values-time-weighted-without-max-gap",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {kind = "counter", time_weighted = "linear"}}',
        "policies.ticks.values.p.time_weighted",
        'add `max_gap`, such as "30m"',
    ),
    bad(
        "values-max-gap-of-a-gauge",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {max_gap = "30m"}}',
        "policies.ticks.values.p.max_gap",
        'add `kind = "counter"`',
    ),
    bad(
        "values-max-gap-too-long",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {kind = "counter", max_gap = "400d"}}',
        "policies.ticks.values.p.max_gap",
        'write "366d" or less',
    ),
    bad(
        "values-average-of-texts",
        'slot = "second"',
        'slot = "second"\nnonnumeric_ok = ["p"]\n'
        'values = {p = {kind = "state", time_weighted = "linear", max_gap = "1h"}}',
        "policies.ticks.values.p.time_weighted",
        "add `map = {ON = 1, OFF = 0}`",
    ),
    bad(
        "values-unit-without-text",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {unit = "V"}}',
        "policies.ticks.values.p.unit",
        "add `text = true`",
    ),
    bad(
        "values-unit-empty",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {text = true, unit = " "}}',
        "policies.ticks.values.p.unit",
        "it is empty",
    ),
    bad(
        "values-decimal",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {text = true, decimal = ";"}}',
        "policies.ticks.values.p.decimal",
        'write "." or ","',
    ),
    bad(
        "values-map-to-infinity",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {map = {ON = inf}}}',
        "policies.ticks.values.p.map",
        '"ON" counts as inf',
        "write a finite number",
    ),
    bad(
        "values-map-to-text",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {map = {ON = "1"}}}',
        "policies.ticks.values.p.map.ON",
        "it is text, and has to be a number",
    ),
    bad(
        "values-as-with-dots",
        'slot = "second"',
        'slot = "second"\nvalues = {p = {as = "a.b"}}',
        "policies.ticks.values.p.as",
        "it is one name",
    ),
    bad(
        "summary-field-of-days",
        'value_fields = ["p"]',
        'value_fields = ["hours"]',
        "policies.ticks.value_fields",
        'value: "hours"',
        "its own _id, start, end, count, timezone, hours,",
    ),
    BadConfig(
        "summary-field-of-completeness",
        changed(
            ('series_fields = ["symbol"]', 'series_fields = ["coverage"]'),
            ('slot = "second"', 'slot = "second"\nexpected_interval = "1s"'),
        ),
        ("policies.ticks.series_fields", 'value: "coverage"', "longest_hole_at, coverage, and this field"),
    ),
    bad(
        "column-clash",
        _TICKS_FIELDS,
        'series_fields = ["a.b"]\nvalue_fields = ["A_b"]',
        "2 problems",
        "policies.ticks.series_fields",
        'value: "a.b"',
        'it becomes one column with "A_b"',
        "policies.ticks.value_fields",
        'it becomes one column with "a.b"',
    ),
    bad(
        "column-time",
        'value_fields = ["p"]',
        'value_fields = ["Time"]',
        "policies.ticks.value_fields",
        'value: "Time"',
        "has its own column `time`",
    ),
    bad(
        "column-dt",
        'series_fields = ["symbol"]',
        'series_fields = ["dt"]',
        "policies.ticks.series_fields",
        'value: "dt"',
        "has its own column `dt`",
    ),
]

CONTRADICTIONS = [
    bad(
        "after-shorter-than-settle",
        'after = "30d"',
        'after = "5m"',
        ":25: policies.ticks.archive.after",
        'value: "5m"',
        "shorter than rollup.settle (10m)",
        'write "10m" or longer',
    ),
    bad(
        "retain-shorter-than-raw",
        'hourly = "730d"',
        'hourly = "29d"',
        "policies.ticks.retain.hourly",
        'value: "29d"',
        "summaries would go before the raw readings do (archive.after: 30d)",
        'write "30d" or longer',
    ),
    bad(
        "retain-shorter-than-forever",
        'after = "30d"',
        'after = "forever"',
        "policies.ticks.retain.hourly",
        "archive.after: forever",
    ),
    *(
        bad(
            f"archive-that-ends-{name}",
            before,
            after,
            "policies.ticks.retain.archive",
            *fragments,
        )
        for name, before, after, fragments in [
            (
                "before-it-begins",
                'hourly = "730d"',
                'archive = "29d"',
                ('value: "29d"', "(archive.after: 30d)", 'write "30d" or longer'),
            ),
            (
                "before-its-batch",
                'to = "offline"\n\n[policies.ticks.retain]\nhourly = "730d"',
                'to = "offline"\nbatch = "1d"\n[policies.ticks.retain]\narchive = "30d"',
                ("(archive.after and archive.batch together: 31d)", 'write "31d" or longer'),
            ),
            (
                "and-is-none",
                'after = "30d"\nto = "offline"\n\n[policies.ticks.retain]\nhourly = "730d"',
                'after = "30d"\nto = "none"\n[policies.ticks.retain]\narchive = "7y"',
                ('value: "7y"', "the policy archives nothing", "name an archive"),
            ),
            (
                "and-never-begins",
                'after = "30d"\nto = "offline"\n\n[policies.ticks.retain]\nhourly = "730d"',
                'after = "forever"\nto = "offline"\n[policies.ticks.retain]\narchive = "7y"',
                ('archive.after is "forever"', "remove one of the two"),
            ),
            (
                "after-no-time",
                'hourly = "730d"',
                'archive = "7 years"',
                ("it is not a duration", '"7y"'),
            ),
        ]
    ),
    bad(
        "grace-of-summaries-that-stay",
        'hourly = "730d"',
        'hourly = "forever"\ngrace = "2d"',
        "policies.ticks.retain.grace",
        "all of them stay",
        "remove it",
    ),
    bad("grace-without-end", 'hourly = "730d"', 'hourly = "730d"\ngrace = "forever"', "retain.grace"),
    *(
        bad(
            f"grace-of-an-archive-{name}",
            'hourly = "730d"',
            text,
            "policies.ticks.retain.archive_grace",
            *fragments,
        )
        for name, text, fragments in [
            (
                "that-stays",
                'archive_grace = "7d"',
                ("it delays the end of an archive, and none is set", "add `retain.archive`"),
            ),
            (
                "too-short",
                'archive = "7y"\narchive_grace = "23h"',
                ('value: "23h"', "it is shorter than 1d", 'write "1d" or longer'),
            ),
            ("without-end", 'archive = "7y"\narchive_grace = "forever"', ("forever",)),
        ]
    ),
    bad(
        "retain-of-what-is-not-made",
        'hourly = "ticks_hourly"\n',
        "",
        "policies.ticks.retain.hourly",
        'value: "730d"',
        "the policy makes no hourly summaries",
        "add rollup.hourly",
    ),
    bad(
        "retain-without-rollup",
        "[policies.iot.archive]",
        '[policies.iot.retain]\ndaily = "forever"\n\n[policies.iot.archive]',
        "policies.iot.retain.daily",
        'value: "forever"',
        "the policy makes no daily summaries",
    ),
    bad(
        "rollup-without-targets",
        "[policies.iot.archive]",
        '[policies.iot.rollup]\nsettle = "1h"\n\n[policies.iot.archive]',
        "policies.iot.rollup\n",
        "neither `hourly` nor `daily`",
        "name the collection of at least one",
    ),
    _levels(
        "summaries-of-an-unknown-level",
        [("weekley", "ticks_weekly")],
        "policies.ticks.rollup.levels.1.name",
        'value: "weekley"',
        'did you mean "weekly"? It may be "5m" or "15m" or "weekly" or "monthly"',
    ),
    _levels(
        "level-with-a-key-of-its-own",
        [("hourly", "ticks_hours")],
        "policies.ticks.rollup.levels.1.name",
        'value: "hourly"',
        "it is not one of the choices",
        '"5m" or "15m" or "weekly" or "monthly"',
    ),
    _levels(
        "summaries-of-a-level-twice",
        [("weekly", "ticks_weekly"), ("monthly", "ticks_monthly"), ("weekly", "ticks_weeks")],
        ":33: policies.ticks.rollup.levels.3.name",
        'value: "weekly"',
        "policies.ticks.rollup.levels.1 is of this level",
        "name each level once",
    ),
    _levels(
        "two-levels-in-one-collection",
        [("weekly", "ticks_weekly"), ("monthly", "ticks_weekly")],
        "policies.ticks.rollup.levels.2.collection",
        'value: "ticks_weekly"',
        "policies.ticks.rollup.levels.1.collection already writes this collection",
    ),
    _levels(
        "level-in-the-collection-of-hours",
        [("monthly", "ticks_hourly")],
        "policies.ticks.rollup.levels.1.collection",
        "policies.ticks.rollup.hourly already writes this collection",
    ),
    _levels(
        "level-in-the-source",
        [("5m", "iot")],
        "policies.ticks.rollup.levels.1.collection",
        "policies.iot.collection is this collection: it would be both read and written",
    ),
    bad(
        "level-without-a-collection",
        "[policies.ticks.archive]",
        '[[policies.ticks.rollup.levels]]\nname = "weekly"\n\n[policies.ticks.archive]',
        "policies.ticks.rollup.levels.1.collection",
        "it is missing",
        "add `collection` to [policies.ticks.rollup.levels.1]",
    ),
    bad(
        "levels-that-are-no-tables",
        "percentiles = [50, 95]",
        'percentiles = [50, 95]\nlevels = ["weekly"]',
        "policies.ticks.rollup.levels",
        "it has to be a list of tables",
        "write [[policies.ticks.rollup.levels]]",
    ),
    bad(
        "retain-of-a-level-that-is-not-made",
        'hourly = "730d"',
        'hourly = "730d"\nweekly = "730d"',
        "policies.ticks.retain.weekly",
        "the policy makes no weekly summaries",
        "add it to rollup.levels, or remove this",
    ),
    bad(
        "retain-of-no-level",
        'hourly = "730d"',
        'hourly = "730d"\n5min = "730d"',
        "policies.ticks.retain.5min",
        "there is no such key",
        "did you mean `5m`?",
        "2 problems",
    ),
    bad(
        "grace-without-delete",
        'to = "offline"',
        'to = "offline"\ngrace = "1d"\ndelete = false',
        "policies.ticks.archive.grace",
        'value: "1d"',
        "with delete = false there is none",
    ),
    bad(
        "receipts-too-soon",
        'to = "offline"',
        'to = "offline"\nmove_receipts = "1h"',
        "policies.ticks.archive.move_receipts",
        'value: "1h"',
        "it is shorter than 1d",
        'write "1d" or longer, or "forever"',
    ),
    bad(
        "receipts-without-store",
        'to = "offline"',
        'to = "online"\ncollection = "ticks_archive"\nmove_receipts = "90d"',
        "policies.ticks.archive.move_receipts",
        'value: "90d"',
        'receipts move to the store of an offline archive, and to = "online"',
        "remove it",
    ),
    bad(
        "max-delete-zero-percent",
        'to = "offline"',
        'to = "offline"\nmax_delete = "0%"',
        "policies.ticks.archive.max_delete",
        'value: "0%"',
        "it must be above zero, and at most 100%",
        'such as "20%"',
    ),
    bad(
        "max-delete-too-much",
        'to = "offline"',
        'to = "offline"\nmax_delete = "120%"',
        "policies.ticks.archive.max_delete",
        'value: "120%"',
        "it must be above zero, and at most 100%",
        'such as "20%"',
    ),
    bad(
        "max-delete-word",
        'to = "offline"',
        'to = "offline"\nmax_delete = "abc"',
        "policies.ticks.archive.max_delete",
        'value: "abc"',
        "it is neither a share nor a whole number",
        'such as "20%"',
    ),
    bad(
        "max-delete-below-zero",
        'to = "offline"',
        'to = "offline"\nmax_delete = -1',
        "policies.ticks.archive.max_delete",
        "value: -1",
        "it must be above zero, and at most 100%",
        'such as "20%"',
    ),
    bad(
        "max-delete-zero",
        'to = "offline"',
        'to = "offline"\nmax_delete = 0',
        "policies.ticks.archive.max_delete",
        "value: 0",
        "it must be above zero, and at most 100%",
        'such as "20%"',
    ),
    bad(
        "max-delete-fraction",
        'to = "offline"',
        'to = "offline"\nmax_delete = 0.2',
        "policies.ticks.archive.max_delete",
        "value: 0.2",
        "it is neither a share nor a whole number",
        'such as "20%"',
    ),
    bad(
        "max-delete-true",
        'to = "offline"',
        'to = "offline"\nmax_delete = true',
        "policies.ticks.archive.max_delete",
        "value: true",
        "it is neither a share nor a whole number",
        'such as "20%"',
    ),
    bad(
        "max-delete-without-delete",
        'to = "offline"',
        'to = "offline"\nmax_delete = "20%"\ndelete = false',
        "policies.ticks.archive.max_delete",
        "it limits deletes, and with delete = false there is none",
    ),
    bad(
        "max-delete-without-archive",
        _IOT_ARCHIVE,
        'to = "none"\nmax_delete = 5',
        "policies.iot.archive.max_delete",
        'with to = "none" there is none',
    ),
    bad(
        "compact-without-commits",
        _IOT_ARCHIVE,
        'to = "none"\ncompact = {after = "1d"}',
        "policies.iot.archive.compact",
        'to = "none"',
        "remove [archive.compact]",
    ),
    bad(
        "compact-at-once",
        'to = "offline"',
        'to = "offline"\ncompact = {after = "0s"}',
        "policies.ticks.archive.compact.after",
        "longer than zero",
    ),
    bad(
        "compact-without-budget",
        'to = "offline"',
        'to = "offline"\ncompact = {budget = "0MB"}',
        "policies.ticks.archive.compact.budget",
        "it is not a size",
    ),
    bad(
        "grace-without-archive",
        _IOT_ARCHIVE,
        'to = "none"\ngrace = "1d"',
        "policies.iot.archive.grace",
        'with to = "none" there is none',
    ),
    bad(
        "online-without-collection",
        _IOT_ARCHIVE,
        'to = "online"',
        "policies.iot.archive.collection",
        'to = "online" needs it',
        "name the collection",
    ),
    bad(
        "collection-without-archive",
        'to = "online"',
        'to = "none"',
        "policies.iot.archive.collection",
        'value: "iot_archive"',
        'with to = "none" nothing is archived',
        "remove it",
    ),
    BadConfig(
        "stream-of-timeseries",
        changed(
            ('model = "slots"', 'model = "timeseries"'),
            ('slot = "second"\n', ""),
            ('recheck = "2d"', 'late_data = "stream"'),
        ),
        (
            "policies.ticks.rollup.late_data",
            'value: "stream"',
            "native time-series collections have no change streams",
            '"auto" or "scan"',
        ),
    ),
    bad(
        "zone",
        'timezone = "UTC"',
        'timezone = "Europe/Berln"',
        "policies.ticks.rollup.timezone",
        'value: "Europe/Berln"',
        "it is not an IANA time zone",
        'did you mean "Europe/Berlin"?',
    ),
    bad(
        "zone-of-the-policy",
        'model = "slots"',
        'model = "slots"\ntimezone = "Europe/Berln"',
        "policies.ticks.timezone",
        'value: "Europe/Berln"',
        'did you mean "Europe/Berlin"?',
    ),
    bad(
        "zone-of-the-machine",
        'timezone = "UTC"',
        'timezone = "localtime"',
        "rollup.timezone",
        "not an IANA time zone",
    ),
    bad(
        "statistic-unknown",
        "percentiles = [50, 95]",
        'percentiles = [50, 95]\nstatistics = ["avg", "mni"]',
        "policies.ticks.rollup.statistics",
        'value: "mni"',
        'there is no statistic "mni"',
        'did you mean "min"?',
    ),
    bad(
        "statistic-of-no-percentile",
        "percentiles = [50, 95]",
        'percentiles = [50, 95]\nstatistics = ["p99"]',
        "policies.ticks.rollup.statistics",
        'did you mean "p95"?',
    ),
    bad(
        "statistic-twice",
        "percentiles = [50, 95]",
        'percentiles = [50, 95]\nstatistics = ["avg", "avg"]',
        "avg is listed more than once",
    ),
    bad(
        "percentile-range",
        "percentiles = [50, 95]",
        "percentiles = [50, 100]",
        "policies.ticks.rollup.percentiles",
        "value: [50, 100]",
        "100 is not above 0 and below 100",
        "write numbers such as 50, 95 or 99.9",
    ),
    bad(
        "percentile-zero",
        "percentiles = [50, 95]",
        "percentiles = [0, 95]",
        "policies.ticks.rollup.percentiles",
        "0 is not above 0 and below 100",
    ),
    bad(
        "percentile-nan",
        "percentiles = [50, 95]",
        "percentiles = [nan]",
        "rollup.percentiles",
        "nan is not above 0 and below 100",
    ),
    bad(
        "percentile-twice",
        "percentiles = [50, 95]",
        "percentiles = [50, 50.0]",
        "policies.ticks.rollup.percentiles",
        "value: [50, 50.0]",
        "50 is listed more than once",
    ),
    BadConfig(
        "offset-beside-timezone",
        changed(
            ('slot = "second"', 'slot = "second"\nlocal_offset_field = "tz"'),
            ('timezone = "UTC"', 'timezone = "Asia/Kolkata"'),
        ),
        (
            "policies.ticks.local_offset_field",
            'value: "tz"',
            "days follow rollup.timezone (Asia/Kolkata), or this field, not both",
            "remove one of the two",
        ),
    ),
    BadConfig(
        "offset-without-days",
        changed(
            ('slot = "second"', 'slot = "second"\nlocal_offset_field = "tz"'), ('daily = "ticks_daily"\n', "")
        ),
        (
            "policies.ticks.local_offset_field",
            "only daily and longer summaries use it, and the policy makes none",
            "add rollup.daily",
        ),
    ),
    bad(
        "offset-without-rollup",
        'end_field = "last"',
        'end_field = "last"\nlocal_offset_field = "tz"',
        "policies.iot.local_offset_field",
        "only daily and longer summaries use it",
    ),
    bad(
        "offset-is-a-value",
        'slot = "second"',
        'slot = "second"\nlocal_offset_field = "p"',
        "policies.ticks",
        "local_offset_field already names this field",
    ),
    bad(
        "interval-misspelt",
        'slot = "second"',
        'slot = "second"\nexpected_intervall = "1s"',
        "policies.ticks.expected_intervall",
        "did you mean `expected_interval`?",
    ),
    bad(
        "interval-divides-no-hour",
        'slot = "second"',
        'slot = "second"\nexpected_interval = "7s"\nmax_hole = "5s"',
        "policies.ticks.expected_interval",
        'value: "7s"',
        "an hour is not a whole number of these intervals",
        '"1s", "10s", "1m", "15m" or "1h"',
    ),
    bad(
        "interval-longer-than-an-hour",
        'slot = "second"',
        'slot = "second"\nexpected_interval = "2h"',
        "policies.ticks.expected_interval",
        "an hour is not a whole number of these intervals",
    ),
    bad(
        "interval-zero",
        'slot = "second"',
        'slot = "second"\nexpected_interval = "0s"',
        "policies.ticks.expected_interval",
        "an hour is not a whole number of these intervals",
    ),
    BadConfig(
        "interval-that-midnight-cuts",
        changed(
            ('slot = "second"', 'slot = "second"\nexpected_interval = "30m"'),
            ('timezone = "UTC"', 'timezone = "Asia/Kathmandu"'),
        ),
        (
            "policies.ticks.expected_interval",
            'value: "30m"',
            "days in Asia/Kathmandu begin in the middle of such an interval",
            '"1m", "5m" or "15m"',
        ),
    ),
    BadConfig(
        "interval-that-midnight-cuts-in-summer",
        changed(
            ('slot = "second"', 'slot = "second"\nexpected_interval = "1h"'),
            ('timezone = "UTC"', 'timezone = "Australia/Lord_Howe"'),
        ),
        ("policies.ticks.expected_interval", "days in Australia/Lord_Howe begin in the middle"),
    ),
    bad(
        "interval-without-rollup",
        'end_field = "last"',
        'end_field = "last"\nexpected_interval = "1m"',
        "policies.iot.expected_interval",
        "completeness is recorded in summaries, and this policy makes none",
        "add a rollup",
    ),
    bad(
        "hole-without-interval",
        'slot = "second"',
        'slot = "second"\nmax_hole = "10m"',
        "policies.ticks.max_hole",
        "holes are found by expected_interval, which is not set",
        "add `expected_interval`",
    ),
    bad(
        "hole-shorter-than-interval",
        'slot = "second"',
        'slot = "second"\nexpected_interval = "10m"\nmax_hole = "5m"',
        "policies.ticks.max_hole",
        "it is shorter than expected_interval (10m)",
        'write "10m" or longer',
    ),
    bad(
        "cron-fields",
        'slot = "second"',
        'slot = "second"\nschedule = "0 2 * *"',
        ":15: policies.ticks.schedule",
        'value: "0 2 * *"',
        "it has 4 fields",
        "15 2 * * *",
    ),
    bad(
        "cron-range",
        'slot = "second"',
        'slot = "second"\nschedule = "61 2 * * *"',
        "policies.ticks.schedule",
        "the minute cannot be `61`: it takes 0–59, lists",
    ),
    bad(
        "cron-never",
        'slot = "second"',
        'slot = "second"\nschedule = "0 0 31 feb *"',
        "policies.ticks.schedule",
        'value: "0 0 31 feb *"',
        "it never fires",
        "name a day that one of its months has",
    ),
]

TARGETS = [
    bad(
        "rollup-into-source",
        'hourly = "ticks_hourly"',
        'hourly = "ticks"',
        ":17: policies.ticks.rollup.hourly",
        'value: "ticks"',
        "policies.ticks.collection is this collection",
        "write to a collection that no policy reads",
    ),
    bad(
        "archive-into-source",
        'collection = "iot_archive"',
        'collection = "iot"',
        "policies.iot.archive.collection",
        "policies.iot.collection is this collection",
    ),
    bad(
        "archive-into-overflow",
        'collection = "iot_archive"',
        'collection = "iot_extra"',
        "policies.iot.archive.collection",
        "policies.iot.overflow.collection is this collection",
    ),
    bad(
        "overflow-is-source",
        'collection = "iot_extra"',
        'collection = "iot"',
        "policies.iot.overflow.collection",
        "overflow and buckets must be apart",
    ),
    bad(
        "hourly-is-daily",
        'daily = "ticks_daily"',
        'daily = "ticks_hourly"',
        "policies.ticks.rollup.daily",
        "policies.ticks.rollup.hourly already writes this collection",
        "a collection of its own",
    ),
    bad(
        "two-policies-one-target",
        'collection = "iot_archive"',
        'collection = "ticks_daily"',
        "policies.iot.archive.collection",
        "policies.ticks.rollup.daily already writes this collection",
    ),
    bad(
        "target-is-source-of-another",
        'daily = "ticks_daily"',
        'daily = "iot"',
        "policies.ticks.rollup.daily",
        "policies.iot.collection is this collection",
    ),
    bad(
        "two-policies-delete",
        'collection = "iot"',
        'collection = "ticks"',
        "policies.iot.collection",
        'value: "ticks"',
        "policies.ticks.collection is this collection too, and both policies delete from it",
        "archive.delete = false in one",
    ),
]

_LEVELS = 'slot = "second"'
_SERIES = 'series_fields = ["deviceid", "sensorid"]'

SHAPES = [
    bad(
        "slot-and-levels",
        _LEVELS,
        f'{_LEVELS}\nslot_levels = ["second"]',
        "slot",
        "`slot_levels` says the same",
    ),
    bad("levels-empty", _LEVELS, "slot_levels = []", "slot_levels", "it is empty", "outer first"),
    bad(
        "levels-inside-out",
        _LEVELS,
        'slot_levels = ["second", "minute"]',
        "policies.ticks.slot_levels",
        '"minute" slots do not lie inside "second" slots',
        "name the larger unit first",
    ),
    bad(
        "level-unknown",
        _LEVELS,
        'slot_levels = ["secund"]',
        "slot_levels",
        '"secund"',
        'did you mean "second"',
    ),
    bad(
        "span-too-short",
        _LEVELS,
        'slot_levels = ["minute"]\nspan = "minute"',
        "policies.ticks.span",
        "a bucket of a minute does not hold slots of a minute",
    ),
    bad(
        "format-of-unknown-directive",
        _LEVELS,
        f'{_LEVELS}\ntime_format = "%Y-%q"',
        "time_format",
        "there is no directive %q",
        "%Y",
    ),
    bad("format-of-digits", _LEVELS, f'{_LEVELS}\ntime_format = "20%y"', "it has digits of its own"),
    bad("format-of-no-year", _LEVELS, f'{_LEVELS}\ntime_format = "%d.%m."', "it tells no year", "add %Y"),
    bad("format-twice", _LEVELS, f'{_LEVELS}\ntime_format = "%Y %b %m"', "it tells the month more than once"),
    bad("format-of-half-a-week", _LEVELS, f'{_LEVELS}\ntime_format = "%G-W%V"', "tell a day together"),
    bad("format-of-a-week-and-a-month", _LEVELS, f'{_LEVELS}\ntime_format = "%G %V %u %m"', "no other day"),
    bad("format-of-two-days", _LEVELS, f'{_LEVELS}\ntime_format = "%Y %j %d"', "it tells the day twice"),
    bad("format-without-month", _LEVELS, f'{_LEVELS}\ntime_format = "%Y %d"', "it tells a day, and no month"),
    bad("format-of-half-hours", _LEVELS, f'{_LEVELS}\ntime_format = "%Y %I"', "%I and %p go together"),
    bad("format-beside-seconds", _LEVELS, f'{_LEVELS}\ntime_format = "%s.%f"', "%s is a time by itself"),
    bad(
        "format-and-unit",
        _LEVELS,
        f'{_LEVELS}\ntime_format = "%Y"\ntime_unit = "ms"',
        "time_unit",
        "time_format says what the text is",
        "remove one of the two",
    ),
    bad(
        "times-without-format",
        'time_field = "d"',
        'time_field = ["d", "t"]',
        "time_field",
        "the text of several fields needs a format",
        "add `time_format`",
    ),
    bad(
        "times-beside-overflow",
        'time_field = "d"',
        'time_field = ["d", "t"]\ntime_format = "%Y %j"\n'
        'overflow = {flag_field = "f", collection = "x", ref_field = "r", samples_field = "s"}',
        "time_field",
        "overflow tells the time of a reading in one field",
    ),
    bad("times-of-numbers", 'time_field = "d"', "time_field = [1, 2]", "it is no list of several fields"),
    bad("times-of-a-table", 'time_field = "d"', "time_field = {}", "it has to be text, or a list of texts"),
    bad(
        "times-twice",
        'time_field = "d"',
        'time_field = ["d", "d"]\ntime_format = "%Y %j"',
        "already names this field",
    ),
    bad("unit-unknown", _LEVELS, f'{_LEVELS}\ntime_unit = "millis"', "time_unit", '"millis"', '"ms" or "us"'),
    bad(
        "pairs-with-a-name",
        'sample_time_field = "time"',
        'sample_time_field = "time"\nsamples_as = "pairs"',
        "policies.iot.sample_time_field",
        "the time of a pair is its first element, and has no name",
        "remove it",
    ),
    bad(
        "overflow-without-end",
        'end_field = "last"\n',
        "",
        "policies.iot.end_field",
        "with overflow",
        "add `end_field` to the policy",
    ),
    BadConfig(
        "attribute-key-alone",
        changed(('model = "slots"', 'model = "reading"'), ('slot = "second"', 'attribute_key = "k"')),
        ("policies.ticks.attribute_key", "the policy names no attributes", "add `attributes_field`"),
    ),
    bad(
        "attribute-key-of-slots",
        'collection = "ticks"',
        'collection = "ticks"\nattribute_key = "k"',
        "policies.ticks.attribute_key",
        'it does not go with model "slots"',
        'it goes with "reading" and "timeseries"',
    ),
    bad(
        "star-in-samples",
        'value_fields = ["val", "hum"]',
        'value_fields = ["val.*.x", "hum"]',
        "policies.iot.value_fields",
        "`*` stands for each slot",
        'write a path such as "v.*.p"',
    ),
    bad(
        "two-stars",
        'value_fields = ["p"]',
        'value_fields = ["v.*.*.p"]',
        "policies.ticks.value_fields",
        "`*` stands for each slot",
    ),
    bad(
        "star-in-another-array",
        _SERIES,
        'series_fields = ["deviceid", "other.*.sensor"]',
        "policies.iot.series_fields",
        "`*` stands for each sample of samples_field",
        'write such as "samples.*.sensor"',
    ),
    bad(
        "one-name-twice",
        'series_fields = ["symbol"]',
        'series_fields = ["_id.p"]',
        "policies.ticks.value_fields",
        "series_fields already names this field",
    ),
    bad(
        "time-inside-a-series",
        'series_fields = ["symbol"]',
        'series_fields = ["d.x"]',
        "policies.ticks.series_fields",
        'it overlaps with "d"',
    ),
]


def _batch(id: str, text: str, *fragments: str) -> BadConfig:
    return bad(
        id, 'to = "offline"', f'to = "offline"\nbatch = {text}', "policies.ticks.archive.batch", *fragments
    )


BATCHES = [
    _batch("batch-zero", '"0h"', 'value: "0h"', "longer than zero", 'such as "10m"'),
    _batch("batch-negative", '"-1d"', 'value: "-1d"', "it is not a duration"),
    _batch("batch-number", "1", "it is a number, and has to be a duration"),
    _batch("batch-too-long", '"32d"', 'value: "32d"', "a commit spans 31d at most", 'write "31d" or less'),
    _batch("batch-forever", '"forever"', "its buckets would wait forever", 'such as "1d"'),
    bad(
        "batch-of-nothing",
        'to = "offline"',
        'to = "none"\nbatch = "1d"',
        "policies.ticks.archive.batch",
        "nothing is archived",
        "remove it",
    ),
]


def _sample(id: str, text: str, *fragments: str, to: str = "offline") -> BadConfig:
    table = f"[policies.ticks.audit]\nsample = {text}\n\n[policies.ticks.retain]"
    text = changed(("[policies.ticks.retain]", table), ('to = "offline"', f'to = "{to}"'))
    return BadConfig(id, text, ("policies.ticks.audit.sample", *fragments))


SAMPLES = [
    _sample("sample-zero", '"0%"', 'value: "0%"', "not from 0.1% to 100%", 'such as "10%"'),
    _sample("sample-more-than-all", '"150%"', 'value: "150%"', "not from 0.1% to 100%"),
    _sample("sample-negative", '"-5%"', 'value: "-5%"', "it is not a share"),
    _sample("sample-word", '"abc"', 'value: "abc"', "it is not a share", 'in quotes, such as "10%"'),
    _sample("sample-number", "0.1", "value: 0.1", "it is not a share"),
    _sample("sample-of-nothing", '"10%"', "nothing is archived", "remove it", to="none"),
]


def _class(id: str, named: str, *fragments: str, url: str = "s3://acme-archive/x") -> BadConfig:
    text = changed(
        (_URL, url),
        ('to = "offline"', f'to = "offline"\nstorage_class = {named}'),
    )
    return BadConfig(id, text, ("policies.ticks.archive.storage_class", *fragments))


def _moves(id: str, said: str, *fragments: str) -> BadConfig:
    table = "[policies.ticks.retain]"
    text = changed((_URL, "s3://acme-archive/x"), (table, f"{said}\n\n{table}"))
    return BadConfig(id, text, ("policies.ticks.archive.storage_classes", *fragments))


def _to(*classes: str) -> str:
    head = "[[policies.ticks.archive.storage_classes]]"
    tables = (it.split() for it in classes)
    return "\n".join(f'{head}\nafter = "{after}"\nclass = "{named}"' for after, named in tables)


_MOVES = [
    _moves(
        "move-out-of-cold",
        _to("90d GLACIER", "1y DEEP_ARCHIVE"),
        ".2.class",
        "leave GLACIER",
        "be the last class",
    ),
    _moves("move-earlier", _to("90d STANDARD_IA", "60d GLACIER"), ".2.after", "in the order of their ages"),
    _moves("move-twice", _to("90d STANDARD_IA", "1y STANDARD_IA"), ".2.class", "name each class once"),
    _moves("move-unknown", _to("90d ICE"), ".1.class", 'value: "ICE"', "it is not a storage class"),
    _moves("move-at-once", _to("0d GLACIER"), ".1.after"),
]
STORAGE_CLASSES = [
    _class("class-reduced", '"REDUCED_REDUNDANCY"', "the only copy", 'write "STANDARD_IA"'),
    _class("class-misspelt", '"STANDARD-IA"', "it is not a storage class", 'did you mean "STANDARD_IA"?'),
    _class("class-unknown", '"cold"', 'value: "cold"', "it is not a storage class", 'write "STANDARD" or'),
    _class("class-number", "1", "it is a number, and has to be text"),
    _class(
        "class-of-a-directory",
        '"STANDARD_IA"',
        "a directory has no storage classes",
        "remove it, or archive to an s3:// store",
        url=_URL,
    ),
    _class(
        "class-of-azure",
        '"Cool"',
        "sets no access tiers in Azure",
        "the account's default tier",
        url="az://acme/x",
    ),
    _class(
        "class-of-google", '"GLACIER"', "sets no storage classes in Google", "Autoclass", url="gs://acme/x"
    ),
    *_MOVES,
    bad(
        "class-online",
        _IOT_ARCHIVE,
        f'{_IOT_ARCHIVE}\nstorage_class = "STANDARD_IA"',
        "policies.iot.archive.storage_class",
        "only an offline archive has any",
        "remove it",
    ),
]


def _lock(id: str, lock: str, *fragments: str, url: str = "s3://acme-archive/x") -> BadConfig:
    return BadConfig(id, changed((f'url = "{_URL}"', f'url = "{url}"\nobject_lock = {lock}')), fragments)


OBJECT_LOCKS = [
    _lock(
        "lock-of-a-directory", '{mode = "governance", days = 7}', "store.object_lock", "can't lock", url=_URL
    ),
    _lock(
        "lock-mode", '{mode = "legal", days = 7}', "store.object_lock.mode", 'value: "legal"', "governance"
    ),
    _lock("lock-no-days", '{mode = "compliance"}', "store.object_lock.days"),
    _lock("lock-zero", '{mode = "compliance", days = 0}', "object_lock.days", "1 to 36500"),
    _lock("lock-longer-than-a-century", '{mode = "compliance", days = 36501}', "store.object_lock.days"),
    _lock("lock-text", '"30d"', "store.object_lock"),
]


def _copies(id: str, lines: str, *fragments: str) -> BadConfig:
    """GOOD with copies of its store."""
    return BadConfig(id, changed((f'url = "{_URL}"', f'url = "{_URL}"\n{lines}')), fragments)


_B = '[[store.copies]]\nname = "b"\nurl = "file:///b"\n'
_C = _B.replace('"b"', '"c"')
COPIES = [
    _copies("copy-no-name", '[[store.copies]]\nurl = "file:///b"\n', "store.copies.1.name", "it is missing"),
    _copies("copy-empty-name", _B.replace('"b"', '""'), "store.copies.1.name", "it is empty"),
    _copies("copy-name", _B.replace('"b"', '"b/c"'), "store.copies.1.name", "1 to 32 letters"),
    _copies("copy-twice", _B + _B.replace("///b", "///c"), "store.copies.2.name", "has this name"),
    _copies(
        "copy-in-the-store", _B.replace("file:///b", f"{_URL}/b"), "copies.1.url", "one place with store.url"
    ),
    _copies("copy-in-a-copy", _B + _C, "copies.2.url", "in one place with store.copies.1.url"),
    _copies("copy-url", _B.replace("file:///b", "ftp://b"), "copies.1.url", "not a supported store URL"),
    _copies("copy-required-lags", _B + 'lag = "7d"\n', "copies.1.lag", "never lags", "required = false"),
    _copies("copy-key", _B + "requird = false\n", "store.copies.1.requird", "did you mean `required`"),
    _copies(
        "copy-class",
        _B.replace("file:///b", "az://acme") + 'storage_class = "STANDARD_IA"\n',
        "copies.1.storage_class",
        "sets no access tiers",
    ),
    _copies(
        "copy-locks", _B + 'object_lock = {mode = "governance", days = 7}\n', "1.object_lock", "can't lock"
    ),
]


def _redis(id: str, lines: str, *fragments: str, policy: str = "") -> BadConfig:
    """GOOD with a table for Redis, and one of a policy."""
    table = f'url = "{_URL}"\n[publish.redis]\n{lines}'
    return BadConfig(id, changed((f'url = "{_URL}"', table)) + policy, fragments)


_AT_HOST = 'url = "redis://h"\n'
_OWN = "\n[policies.ticks.publish.redis]\n"
REDIS = [
    _redis("redis-no-url", 'prefix = "x"', "publish.redis.url", "it is missing"),
    _redis("redis-http", 'url = "http://:hunter2@h"', "publish.redis.url", "not a redis://"),
    _redis("redis-no-host", 'url = "redis://:hunter2@/0"', "publish.redis.url", "it names no host"),
    _redis("redis-no-socket", 'url = "unix://"', "publish.redis.url", "it names no socket"),
    _redis(
        "redis-database", 'url = "redis://:hunter2@h/x"', "publish.redis.url", "its database is not a number"
    ),
    _redis("redis-port", 'url = "redis://h:hunter2"', "publish.redis.url", "not a valid URL"),
    _redis("redis-blank", 'url = "redis://h/hunter2 "', "publish.redis.url", "no spaces"),
    _redis("redis-option", 'url = "redis://h?password=hunter2"', "publish.redis.url", "`password`", "@"),
    _redis("redis-no-text", "url = 7", "publish.redis.url"),
    _redis("redis-unknown-key", f"{_AT_HOST}latest_hour = 1", "latest_hour", "latest_hours"),
    _redis(
        "redis-prefix", f'{_AT_HOST}prefix = "{{bw}}"', "publish.redis.prefix", "every key begins with it"
    ),
    _redis("redis-no-hours", f"{_AT_HOST}latest_hours = 0", "publish.redis.latest_hours", "1 to 10000"),
    _redis("redis-hours-text", f'{_AT_HOST}latest_hours = "24h"', "publish.redis.latest_hours", "a number"),
    _redis("redis-days", f"{_AT_HOST}latest_days = 10001", "publish.redis.latest_days", "1 to 10000"),
    _redis("redis-secondary", f'{_AT_HOST}secondary = "symbl"', "redis.secondary", 'did you mean "symbol"?'),
    _redis(
        "redis-own-days", _AT_HOST, "publish.redis.latest_days", "1 to 10000", policy=f"{_OWN}latest_days = 0"
    ),
    _redis("redis-own-field", _AT_HOST, "ticks.publish.redis.secondary", policy=f'{_OWN}secondary = "x"'),
    BadConfig(
        "redis-own-alone",
        f"{GOOD}{_OWN}enabled = false",
        ("policies.ticks.publish", "there is none", "`url`"),
    ),
]

NOTIFY = [
    bad(
        "notify-unknown-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nping = "https://h/hunter2"',
        "notify.ping",
        "there is no such key",
    ),
    bad(
        "notify-no-http",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nurl = "ftp://h/hunter2"',
        "notify.url",
        "value: ***",
        "not an http:// or https:// URL",
        'write "https://host/path"',
    ),
    bad(
        "notify-no-host",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nping_start = "https:///hunter2"',
        "notify.ping_start",
        "not an http:// or https:// URL",
    ),
    bad(
        "notify-bad-port",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nping_fail = "https://h:hunter2/"',
        "notify.ping_fail",
        "not a valid URL",
    ),
    bad(
        "notify-space-in-url",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nping_success = "https://h/hunter2 x"',
        "notify.ping_success",
        "no spaces",
    ),
    bad(
        "notify-url-is-no-text",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nurl = 7',
        "notify.url",
        "it is a number, and has to be text",
    ),
    bad(
        "notify-variable-not-set",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nurl = "https://h/${{NOT_SET}}"',
        "notify.url",
        "NOT_SET is not set",
    ),
    bad(
        "notify-unknown-event",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\nurl = "https://h/"\non = ["faild"]',
        "notify.on",
        'did you mean "failed"?',
    ),
    bad(
        "notify-nothing-is-sent",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[notify]\non = ["failed"]',
        "notify.on",
        "nothing is sent without `notify.url`",
        "add `url`, or remove `on`",
    ),
    bad(
        "notify-is-no-table",
        "[mongodb]",
        'notify = "https://h/hunter2"\n[mongodb]',
        "notify\n",
        "it has to be a table",
    ),
]

LEDGER = [
    bad(
        "ledger-unknown-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[ledger]\nkeeep = "30d"',
        "ledger.keeep",
        "did you mean `keep`?",
    ),
    bad(
        "ledger-keep-is-no-duration",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[ledger]\nkeep = "90"',
        "ledger.keep",
        'value: "90"',
        "it is not a duration",
    ),
    bad(
        "ledger-keep-too-short",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[ledger]\nkeep = "23h"',
        "ledger.keep",
        'value: "23h"',
        "it is shorter than 1d",
        'write "1d" or longer, or "forever"',
    ),
    bad(
        "drill-unknown-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[drill]\nevry = "30d"',
        "drill.evry",
        "did you mean `every`?",
    ),
    bad(
        "drill-schedule-is-none",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[drill]\nschedule = "weekly"',
        "drill.schedule",
        'value: "weekly"',
    ),
    bad(
        "drill-every-too-short",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[drill]\nevery = "6h"',
        "drill.every",
        "it is shorter than 1d",
        'write "1d" or longer, or "forever"',
    ),
    bad(
        "drill-of-no-days",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[drill]\ndays = 0',
        "drill.days",
        "value: 0",
        "a drill covers at least one day",
    ),
    BadConfig(
        "drill-without-an-archive",
        changed(
            ("[mongodb]", '[drill]\nevery = "30d"\n[mongodb]'),
            ('to = "offline"', 'to = "none"'),
            ('to = "online"\ncollection = "iot_archive"', 'to = "none"'),
        ),
        ("drill\n", "no policy has an archive", "remove the table"),
    ),
    bad(
        "lake-unknown-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[lake]\ncatalgo = "ours"',
        "lake.catalgo",
        "did you mean `catalog`?",
    ),
    bad(
        "lake-catalog-has-no-such-name",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[lake]\ncatalog = "our catalog"',
        "lake.catalog",
        'value: "our catalog"',
        "use 1 to 64 letters, digits, `_` and `-`",
    ),
    bad(
        "lake-namespace-has-no-such-name",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[lake]\nnamespace = "a..b"',
        "lake.namespace",
        "it is not a valid namespace name",
    ),
    bad(
        "lake-properties-without-a-catalog",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[lake]\nproperties = {{token = "7Secret"}}',
        "lake.properties",
        "value: ***",
        "the catalog `bucketwise` is kept in MongoDB, and has no properties",
        "name your catalog with `catalog`",
    ),
    bad(
        "lake-property-is-no-text",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[lake]\ncatalog = "ours"\nproperties = {{echo = true}}',
        "lake.properties.echo",
        "value: ***",
        "it is true or false, and has to be text",
    ),
    BadConfig(
        "lake-without-an-archive",
        changed(("[mongodb]", '[lake]\ncatalog = "ours"\n[mongodb]'), ('to = "offline"', 'to = "none"')),
        ("lake\n", "no policy has an offline archive", "remove the table"),
    ),
    bad(
        "ledger-is-no-table",
        "[mongodb]",
        'ledger = "90d"\n[mongodb]',
        "ledger\n",
        "it has to be a table",
        "write [ledger]",
    ),
]

METRICS = [
    bad(
        "metrics-file-of-another-name",
        "[mongodb]",
        'metrics_file = "/var/lib/node_exporter/bucketwise.txt"\n[mongodb]',
        ":1: metrics_file",
        'value: "/var/lib/node_exporter/bucketwise.txt"',
        "does not end with .prom",
        "/var/lib/prometheus/node-exporter/bucketwise.prom",
    ),
    bad(
        "metrics-file-without-a-name",
        "[mongodb]",
        'metrics_file = "/var/lib/.prom"\n[mongodb]',
        "metrics_file\n",
        "does not end with .prom",
    ),
    bad(
        "metrics-file-not-absolute",
        "[mongodb]",
        'metrics_file = "bucketwise.prom"\n[mongodb]',
        "metrics_file\n",
        'value: "bucketwise.prom"',
        "not an absolute path",
    ),
    bad(
        "metrics-file-with-a-control-character",
        "[mongodb]",
        'metrics_file = "/a\\u0000.prom"\n[mongodb]',
        "metrics_file\n",
        "a control character",
    ),
    bad(
        "metrics-file-is-no-text",
        "[mongodb]",
        "metrics_file = true\n[mongodb]",
        "metrics_file\n",
        "it is true or false, and has to be text",
    ),
    bad(
        "metrics-file-from-nowhere",
        "[mongodb]",
        'metrics_file = "${NOWHERE}/b.prom"\n[mongodb]',
        "metrics_file\n",
        "NOWHERE is not set",
    ),
    bad(
        "metrics-file-misspelt",
        "[mongodb]",
        'metric_file = "/b.prom"\n[mongodb]',
        "metric_file\n",
        "did you mean `metrics_file`?",
    ),
]

THROTTLES: list[BadConfig] = [
    bad(
        "window-of-no-hour",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nwindow = "25:00-05:00"',
        "throttle.window",
        "it is not a window of time",
        "01:00-05:00 Europe/Berlin",
    ),
    bad(
        "window-never-opens",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nwindow = "01:00-01:00"',
        "throttle.window",
        "it ends when it begins",
    ),
    bad(
        "window-in-no-zone",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nwindow = "01:00-05:00 Europe/Berlim"',
        "throttle.window",
        "there is no time zone Europe/Berlim",
    ),
    bad(
        "rate-of-nothing",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmax_rate = "50 buckets/s"',
        "throttle.max_rate",
        "it is less than 100 buckets or 100KB a second",
    ),
    bad(
        "rate-without-unit",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmax_rate = "5000"',
        "throttle.max_rate",
        "it is not a rate",
        '"5000 buckets/s"',
    ),
    bad(
        "rate-is-a-number",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmax_rate = 5000',
        "throttle.max_rate",
        "it is a number, and has to be text",
    ),
    bad(
        "lag-of-no-duration",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmax_lag = "ten"',
        "throttle.max_lag",
        "it is not a duration",
    ),
    bad(
        "lag-of-nothing",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmax_lag = "0s"',
        "throttle.max_lag",
        'value: "0s"',
        "replication lag is rarely that low",
    ),
    bad(
        "throttle-unknown-key",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[throttle]\nmaxlag = "10s"',
        "throttle.maxlag",
        "did you mean `max_lag`?",
    ),
    bad(
        "throttle-of-a-policy",
        f'url = "{_URL}"',
        f'url = "{_URL}"\n[policies.ticks.throttle]\nmax_lag = "0s"',
        "policies.ticks.throttle.max_lag",
        "replication lag is rarely that low",
    ),
    bad(
        "throttle-is-no-table",
        "[mongodb]",
        'throttle = "10s"\n[mongodb]',
        "throttle",
        "it has to be a table",
    ),
]

_RETAIN = '[policies.ticks.retain]\nhourly = "730d"'


def _rule(text: str) -> str:
    return f"{_RETAIN}\n[[policies.ticks.rules]]\n{text}"


_MDB = 'match = {symbol = "M*"}'
RULES = [
    bad(
        "rule-of-no-series", _RETAIN, _rule('match = {symbl = "M*"}\nafter = "60d"'),
        "policies.ticks.rules.1.match.symbl", "it is no series field of the policy", 'did you mean "symbol"?',
    ),
    bad(
        "rule-twice", _RETAIN,
        _rule(f'{_MDB}\nafter = "60d"\n[[policies.ticks.rules]]\n{_MDB}\nafter = "90d"'),
        "policies.ticks.rules.2.match", "policies.ticks.rules.1 has the same match", "remove one of the two",
    ),
    bad("rule-without-match", _RETAIN, _rule('after = "60d"'), "rules.1.match", "is missing"),
    bad("rule-of-all", _RETAIN, _rule('match = {}\nafter = "60d"'), "rules.1.match", "it matches no series"),
    bad("rule-of-nothing", _RETAIN, _rule(_MDB), "rules.1", "it says nothing of its series", "add `after`"),
    bad(
        "rule-of-another-kind", _RETAIN, _rule(f'{_MDB}\nto = "online"'),
        "policies.ticks.rules.1.to", 'value: "online"', 'write "offline" or "none"',
    ),
    bad(
        "rule-of-none-with-after", _RETAIN, _rule(f'{_MDB}\nto = "none"\nafter = "60d"'),
        "policies.ticks.rules.1.after", "nothing of these series is archived", "remove one of the two",
    ),
    bad(
        "rule-below-settle", _RETAIN, _rule(f'{_MDB}\nafter = "1m"'),
        "policies.ticks.rules.1.after", "shorter than rollup.settle (10m)",
    ),
    bad(
        "rule-of-summaries-below-raw", _RETAIN, _rule(f'{_MDB}\nretain = {{daily = "10d"}}'),
        "policies.ticks.rules.1.retain.daily", "before the raw readings do (after: 30d)",
    ),
    bad(
        "rule-of-archive-below-raw", _RETAIN, _rule(f'{_MDB}\nafter = "90d"\nretain = {{archive = "60d"}}'),
        "policies.ticks.rules.1.retain.archive", "retain.archive is 60d", "archived after 90d",
    ),
    bad(
        "rule-of-no-level", _RETAIN, _rule(f'{_MDB}\nretain = {{weekly = "1y"}}'),
        "policies.ticks.rules.1.retain.weekly", "the policy makes no weekly summaries",
    ),
    bad(
        "rule-with-no-glob", _RETAIN, _rule('match = {symbol = "[z-a]"}\nafter = "60d"'),
        "policies.ticks.rules.1.match.symbol", "is no glob", "[a-z]",
    ),
    bad(
        "rule-of-no-text", _RETAIN, _rule('match = {symbol = 1.5}\nafter = "60d"'),
        "policies.ticks.rules.1.match.symbol", "it is no text, and no list of texts",
    ),
    bad(
        "rule-without-archive",
        'after = "30d"\nto = "offline"\n\n[policies.ticks.retain]\nhourly = "730d"',
        f'after = "30d"\nto = "none"\n[[policies.ticks.rules]]\n{_MDB}\nafter = "60d"',
        "policies.ticks.rules.1.after", "the policy archives nothing",
    ),
]  # fmt: skip

BAD_CONFIGS: list[BadConfig] = [
    *SHAPES,
    *SYNTAX,
    *KEYS_AND_TYPES,
    *DURATIONS,
    *CONNECTIONS,
    *NOTIFY,
    *REDIS,
    *LEDGER,
    *METRICS,
    *THROTTLES,
    *BATCHES,
    *SAMPLES,
    *STORAGE_CLASSES,
    *OBJECT_LOCKS,
    *COPIES,
    *NAMES,
    *FIELDS,
    *CONTRADICTIONS,
    *RULES,
    *TARGETS,
]
