"""A policy's table in its Iceberg catalog: one of pyiceberg's, or the pointer that MongoDB keeps.

Without a catalog of its own, the suite needs no server: the metadata lies in the store, and MongoDB records
where the last one lies, under the lease. During a sync, a catalog in memory holds it.

Columns, partition and entries come from manifests; no part is opened. An entry bounds only the column
`time`. The others hold what an erasure has to remove, and snapshots must not keep that.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from bucketwise.archivers.format.manifest import Manifest, Part
from bucketwise.archivers.format.names import EPOCH, lake_prefix
from bucketwise.archivers.format.series import column_name
from bucketwise.archivers.lake.records import LakeError, LakeState
from bucketwise.archivers.stores.base import AlreadyExists, NotFound, ObjectStore
from bucketwise.buckets.fields.times import as_ms
from bucketwise.config.errors import BucketwiseError, hide_secrets
from bucketwise.config.tables import OWN_CATALOG, Lake

#: How to fix a table that is not of this archive.
ANOTHER = "The table is another archive's: give [lake] another namespace or catalog"
#: The property that passes the store to pyiceberg.
STORE = "bucketwise.store"


def location(store: ObjectStore, key: str) -> str:
    """Returns the URL of an object as readers of Iceberg take it: they take a `%` for what it is."""
    return f"{unquote(store.url)}/{key}"


class StoreFiles(FileIO):
    """Made by pyiceberg, from the properties of a catalog. `written`: the URLs of what was written."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        self.written: set[str] = set()

    def new_input(self, location: str) -> InputFile:
        """Returns a file to read. Raises LakeError where it is not in the store."""
        return _Input(location, *self._at(location))

    def new_output(self, location: str) -> OutputFile:
        """Returns a file to write; raises as `new_input`."""
        output = _Output(location, *self._at(location))
        self.written.add(location)
        return output

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Removes a file, if it is there; raises as `new_input`."""
        store, key = self._at(location if isinstance(location, str) else location.location)
        store.delete([key])

    def _at(self, url: str) -> tuple[ObjectStore, str]:
        store: ObjectStore = self.properties[STORE]
        root = location(store, "")
        if not url.startswith(root):
            raise LakeError(f"{url}: this is not in the store {store.url}. {ANOTHER}")
        return store, url.removeprefix(root)


class _Input(InputFile):
    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        found = self._store.head(self._key)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size

    def exists(self) -> bool:
        return self._store.head(self._key) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - it always is
        try:
            return io.BytesIO(self._store.get_bytes(self._key))
        except NotFound:
            raise FileNotFoundError(self.location) from None


class _Output(OutputFile):
    def __init__(self, location: str, store: ObjectStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._store, self._key)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(self, overwrite)

    def put(self, data: bytes, *, overwrite: bool) -> None:
        try:
            self._store.put_bytes(self._key, data, if_absent=not overwrite)
        except AlreadyExists:
            raise FileExistsError(self.location) from None
        self._size = len(data)


class _Stream(io.BytesIO):
    """Is put when it is closed; not where an error has ended the writing."""

    def __init__(self, file: _Output, overwrite: bool) -> None:
        super().__init__()
        self._file, self._overwrite = file, overwrite

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.put(data, overwrite=self._overwrite)


_TIME = "time"
_TYPES: dict[str, IcebergType] = {
    "int64": LongType(),
    "bool": BooleanType(),
    "double": DoubleType(),
    "string": StringType(),
}
Columns = dict[str, IcebergType]


def columns_of(manifest: Manifest) -> Columns:
    """Returns the columns of a commit's parts, by name."""
    series = {column_name(name): _TYPES[kind] for name, kind in manifest.series_types.items()}
    values = {column_name(name): DoubleType() for name in manifest.archived_policy.value_names}
    return {**series, _TIME: TimestamptzType(), **values}


def new_columns(known: Columns, manifests: Iterable[Manifest]) -> Columns:
    """Returns the columns of commits that a table lacks. Raises LakeError where a column has another type
    than the table: none of the types that parts have is one that Iceberg lets become another."""
    found: Columns = {}
    for manifest in manifests:
        for name, kind in columns_of(manifest).items():
            there = known.get(name) or found.setdefault(name, kind)
            if there != kind:
                raise LakeError(
                    f"column {name} is {there} in the table, and {kind} in the parts of commit "
                    f"{manifest.commit}: Iceberg can't convert one to the other. The table stays as it is. "
                    "Archive these buckets by a policy of another name, or drop the table and read the parts"
                )
    return found


def schema_of(columns: Columns) -> Schema:
    """Returns the schema of a new table. All columns are optional: later parts may lack some."""
    named = enumerate(columns.items(), start=1)
    return Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in named))


def partition_of(schema: Schema) -> PartitionSpec:
    """Returns the partition: the UTC day of `time`. Its name must not be that of a column."""
    name = "time_day"
    while name in schema.column_names:
        name += "_"
    return PartitionSpec(PartitionField(schema.find_field(_TIME).field_id, 1000, DayTransform(), name))


def order_of(schema: Schema, first: Manifest) -> SortOrder:
    """Returns the order of rows in most parts: by series, then by time."""
    names = [*map(column_name, first.series_types), _TIME]
    return SortOrder(*(SortField(schema.find_field(it).field_id, IdentityTransform()) for it in names))


def files_of(manifest: Manifest, schema: Schema, root: str) -> Iterator[DataFile]:
    """Yields the entry of each part for a table. `root`: the URL of the store, with a `/` at its end."""
    time = schema.find_field(_TIME).field_id
    for part in manifest.parts:
        yield _file(part, time, root)


def _file(part: Part, time: int, root: str) -> DataFile:
    bounds: list[Any] = [to_bytes(TimestamptzType(), as_ms(it) * 1000) for it in (part.first, part.last)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=root + part.key,
        file_format=FileFormat.PARQUET,
        partition=Record(part.dt.toordinal() - EPOCH),
        record_count=part.rows,
        file_size_in_bytes=part.bytes,
        value_counts={time: part.rows},
        null_value_counts={time: 0},
        lower_bounds={time: bounds[0]},
        upper_bounds={time: bounds[1]},
    )
    file.spec_id = 0  # the only one
    return file


#: Seconds to wait for a connection, and for each piece of an answer.
SECONDS = 15.0


class _WithTimeout(HTTPAdapter):
    def send(self, request: PreparedRequest, *_: Any, **options: Any) -> Response:
        return super().send(request, **{**options, "timeout": SECONDS})


class TimeoutCatalog(RestCatalog):
    """Raises `requests.Timeout` where the catalog does not answer in time."""

    def _config_headers(self, session: Session) -> None:
        """Sees each session before it asks for anything, tokens among it."""
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _WithTimeout())


def install() -> None:
    """Makes pyiceberg load these for `type = "rest"`, and for URIs from which it infers that."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: TimeoutCatalog(name, **properties)


#: Snapshots that are kept for readers under way: each lists the parts that stood then.
SNAPSHOTS = 20

_PROPERTIES = {
    "format-version": "2",
    "gc.enabled": "false",  # no other engine may delete parts
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(SNAPSHOTS),
    "write.metadata.metrics.default": "none",  # bounds of series outlive an erasure
    "write.metadata.metrics.column.time": "full",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "25",
}

_REMEDY = "The archive is whole without it. Once this is fixed, the next run registers what is missing"
#: Properties of catalogs that may be shown.
_PLAIN = ("type", "uri", "warehouse")


class LakeTable:
    """The table of one policy. `table` is None as long as there is none."""

    def __init__(self, lake: Lake, store: ObjectStore, policy: str, state: LakeState | None) -> None:
        """`state`: what was noted of it last."""
        self.store = store
        self._lake = lake
        self._policy = policy
        self._name = (*str(lake.namespace).split("."), policy)
        self._home = location(store, lake_prefix(policy).removesuffix("/"))
        with self.errors():
            self._catalog = self._open(state)
            self.table = self._load()

    @property
    def place(self) -> str:
        """Returns the name of the table in messages."""
        return f"{self._lake.catalog}: {'.'.join(self._name)}"

    @property
    def state(self) -> LakeState | None:
        """Returns where it is."""
        if self.table is None:
            return None
        snapshot = self.table.current_snapshot()
        identity = None if snapshot is None else snapshot.snapshot_id
        return LakeState(str(self.table.metadata.table_uuid), identity, self.table.metadata_location)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises LakeError in place of what catalogs raise, without the values of their properties."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except (BucketwiseError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever a catalog raises
            text = " ".join(f"{type(error).__name__}: {error}".split()).partition(" (Background on")[0]
            for secret in self._secrets():
                text = text.replace(secret, "***")
            message = f"Iceberg table {self.place}: {hide_secrets(text)[:1000]}. {_REMEDY}"
            raise LakeError(message) from None  # its own text may tell secrets

    def _secrets(self) -> list[str]:
        """Returns the values of properties, and the halves of pairs, that no message may show; the longest
        first."""
        found = [it for key, it in self._lake.plain_properties.items() if key not in _PLAIN]
        halves = [half for it in found for half in it.split(":") if len(half) > 5]
        return sorted(filter(None, {*found, *halves}), key=len, reverse=True)

    def _open(self, state: LakeState | None) -> Catalog:
        of_store: dict[str, Any] = {"py-io-impl": f"{StoreFiles.__module__}.{StoreFiles.__name__}"}
        of_store[STORE] = self.store
        if self._lake.catalog != OWN_CATALOG:
            install()
            return load_catalog(self._lake.catalog, **self._lake.plain_properties, **of_store)
        catalog = load_catalog(OWN_CATALOG, type="sql", uri="sqlite:///:memory:", **of_store)
        if state is not None:
            self._make_namespace(catalog)
            try:
                catalog.register_table(self._name, state.metadata)
            except FileNotFoundError:  # somebody has removed the table: it is made again
                catalog.drop_table(self._name)
        return catalog

    def _make_namespace(self, catalog: Catalog) -> None:
        for length in range(1, len(self._name)):
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(self._name[:length])

    def _load(self) -> Table | None:
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        if table.location() != self._home:
            raise LakeError(
                f"Iceberg table {self.place} lies at {table.location()}, and that of this archive at "
                f"{self._home}. {ANOTHER}"
            )
        return table

    def prepare(self, manifests: Sequence[Manifest]) -> Table:
        """Returns the table; makes it where it is missing, with the columns of these commits."""
        if self.table is not None:
            return self.table
        schema = schema_of(new_columns({}, manifests))
        mapping = schema.name_mapping.model_dump_json()  # columns of parts have names, and no ids
        properties = {**_PROPERTIES, "schema.name-mapping.default": mapping}
        with self.errors():
            self._make_namespace(self._catalog)
            self.table = self._catalog.create_table(
                self._name,
                schema,
                self._home,
                partition_of(schema),
                order_of(schema, manifests[0]),
                properties,
            )
        return self.table

    def commit(
        self,
        manifests: Sequence[Manifest],
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        properties: Mapping[str, str],
    ) -> list[str]:
        """Makes one snapshot of all that changes, with new columns for these commits, if they have any.
        Returns the URLs of files that no snapshot needs any more, to be deleted once the new snapshot is
        recorded."""
        table = self.prepare(manifests)
        assert isinstance(table.io, StoreFiles)
        written = table.io.written
        written.clear()
        with self.errors():
            old = self._expiring(table)
            unused = list(self._unused(table, old))
            with table.transaction() as work:
                self._widen(work, manifests)
                update = work.update_snapshot(dict(properties))
                with update.overwrite() if removed else update.merge_append() as files:
                    for file in added:
                        files.append_data_file(file)
                    for file in removed:
                        files.delete_data_file(file)
                if old:
                    ExpireSnapshots(work).by_ids([it.snapshot_id for it in old]).commit()
            last = table.current_snapshot()
            assert last is not None
            # Manifests that were merged right away are in no snapshot.
            named = {last.manifest_list, *(it.manifest_path for it in self._manifests(last))}
        return [*unused, *(it for it in written if it.endswith(".avro") and it not in named)]

    def _widen(self, work: Transaction, manifests: Sequence[Manifest]) -> None:
        known = {field.name: field.field_type for field in work.table_metadata.schema().fields}
        columns = new_columns(known, manifests)
        if columns:
            with work.update_schema() as update:
                for name, kind in columns.items():
                    update.add_column((name,), kind)

    def _expiring(self, table: Table) -> list[Snapshot]:
        """Returns the snapshots that one more makes too many. Tagged ones stay."""
        held = {ref.snapshot_id for ref in table.metadata.refs.values()}
        snapshots = sorted(table.metadata.snapshots, key=lambda it: it.sequence_number or 0)
        return [it for it in snapshots[: -SNAPSHOTS + 1] if it.snapshot_id not in held]

    def _unused(self, table: Table, old: Sequence[Snapshot]) -> Iterator[str]:
        gone = {it.snapshot_id for it in old}
        kept = [it for it in table.metadata.snapshots if it.snapshot_id not in gone]
        if not gone or len(kept) > SNAPSHOTS:  # what tags need is not known
            return
        first = min(kept, key=lambda it: it.sequence_number or 0)
        needed = {it.manifest_path for it in self._manifests(first)}
        for snapshot in old:
            yield snapshot.manifest_list
            yield from {it.manifest_path for it in self._manifests(snapshot)} - needed

    def _manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        assert self.table is not None
        return snapshot.manifests(self.table.io)

    def files(self) -> list[DataFile]:
        """Returns all files that the table lists. Reads all of its manifests."""
        snapshot = None if self.table is None else self.table.current_snapshot()
        if snapshot is None or self.table is None:
            return []
        with self.errors():
            return [
                entry.data_file
                for manifest in self._manifests(snapshot)
                if manifest.content == ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
            ]

    def point(self, metadata: str) -> None:
        """Writes the location of the last metadata into a file with a fixed name, unless it is there
        already."""
        key = f"{lake_prefix(self._policy)}metadata/version-hint.text"
        last = metadata.rpartition("/")[2].removesuffix(".metadata.json").encode()
        with suppress(NotFound):
            if self.store.get_bytes(key) == last:
                return
        self.store.put_bytes(key, last)

    def tidy(self, unused: Sequence[str]) -> None:
        """Deletes files that no snapshot needs."""
        root = location(self.store, "")
        self.store.delete([it.removeprefix(root) for it in unused])
