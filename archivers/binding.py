"""The binding of an archive to the deployment that writes it.

A run looks once whose archive it is. Before its first write it claims the archive: it looks at the store's
marker, and moves the lineage by a step. A run that writes nothing claims nothing.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.format.names import owner_key
from bucketwise.archivers.markers import (
    OWNER,
    BindingRecord,
    Deployment,
    Lineage,
    Markers,
    OwnerFile,
    Step,
    encoded,
    lineage_prefix,
    put_checked,
    read_record,
    refill_of,
    step_key,
    step_of,
)
from bucketwise.archivers.records.heads import read_heads
from bucketwise.archivers.records.receipts import Receipts, RunIdentity
from bucketwise.archivers.stores.base import Missing, NotFound, ObjectStore
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Runs a step in a transaction that fails where the run has lost its lease.
Transact = Callable[[Callable[[ClientSession], None]], None]


class Checked(NamedTuple):
    """The findings of a look at an archive. `stored`: what the archive says of its deployment."""

    record: BindingRecord
    file: OwnerFile | None
    present: Deployment

    @property
    def stored(self) -> Deployment | None:
        """Returns the deployment that the archive says it belongs to; None where it says nothing yet."""
        return self.file.deployment if self.file else None

    @property
    def renewed(self) -> Deployment:
        """Returns the deployment as it is to be recorded: what is stored, unless more is known by now."""
        if self.stored is None:
            return self.present
        found = self.stored.renewed(self.present)
        return self.stored if found.telling == self.stored.telling else found

    @property
    def difference(self) -> str | None:
        """Returns why the archive belongs to another deployment; None where it does not."""
        if self.file is None:
            return None
        if self.file.owner != self.record.owner:
            return f"it belongs to another database: {self.file.text}"
        told = None if self.stored is None else self.stored.difference(self.present)
        return told and f"it belongs to {self.file.text}, and this is another deployment: {told}"


class Adoption(NamedTuple):
    """An archive that was taken over. `taken_from`: what it said of its former deployment. `lineage`: its
    number from then on."""

    taken_from: str | None
    at: datetime
    lineage: int
    reason: str


@dataclass
class BindingState:
    """The state of the binding in a run, kept from step to step."""

    checked: Checked | None = None
    is_claimed: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)


@dataclass(frozen=True)
class Binding:
    """The binding of one policy's archive, as one run sees it. `store`: None for an online archive, which is
    bound by the database's record alone. `present`: returns the deployment that the database is; given True,
    asks for all of it, whatever the run knows already."""

    receipts: Receipts
    store: ObjectStore | None
    run: RunIdentity
    transact: Transact
    state: BindingState
    present: Callable[[bool], Deployment]

    @property
    def policy(self) -> str:
        """Returns the name under which the policy's records and its archive are kept."""
        return self.receipts.policy

    @property
    def place(self) -> str:
        """Returns where the archive lies, for people."""
        return "the online archive" if self.store is None else f"{self.store.url}/{self.policy}"

    def check_there(self) -> None:
        """Raises Missing where the store is a directory that does not exist; HaltedError where it was used
        before."""
        try:
            if self.store is not None:
                self.store.check_there()
        except Missing as error:
            assert self.store is not None
            record = self._record()
            if not (record.marker or record.known or read_heads(self.receipts)):
                raise
            raise HaltedError(
                f"policy {self.policy}: the store {error.place} was used before, and is not there: "
                f"{error.reason}. Mount it, put it back, or correct store.url. Nothing was changed"
            ) from None

    def check(self) -> None:
        """Looks whose archive it is, once a run. Raises HaltedError where it is another deployment's, and
        Missing where its store is not there and never was."""
        if self.state.checked is None:
            self.state.checked = self._ours(self.look())

    def _ours(self, checked: Checked) -> Checked:
        if reason := checked.difference:
            raise HaltedError(self._not_ours(reason))
        return checked

    def look(self, *, anew: bool = False) -> Checked:
        """Returns what the database and the store say of the binding. `anew`: whatever this run knows of the
        deployment already. Raises HaltedError where the store is gone, or what it says can't be read."""
        record = self._record()
        file = None
        if self.store is not None:
            self.check_there()
            key = owner_key(self.policy)
            with suppress(NotFound):
                file = OwnerFile.of(self.store.get_bytes(key), f"{self.store.url}/{key}")
        elif record.owner is not None and record.deployment is not None:
            file = OwnerFile(record.owner, record.deployment, record.deployment.name)
        return Checked(record, file, self.present(anew))

    def check_lineage(self) -> None:
        """Raises HaltedError where somebody else has written to the store since, or it was rolled back."""
        self.check()
        assert self.state.checked is not None
        if self.store is not None:
            self._judge_all(self.store, self.state.checked, _listed(self.store, self.policy))

    def claim(self) -> None:
        """Makes sure, before the first write of a run, that the archive is this deployment's and its store
        the one that it was; and moves the lineage. Raises HaltedError, and has written nothing."""
        if self.state.is_claimed:
            return
        with self.state.lock:
            if not self.state.is_claimed:
                self.check()
                assert self.state.checked is not None
                # Asked anew: hours may have gone by, and the first run has made its collections since.
                checked = self._ours(self.state.checked._replace(present=self.present(True)))
                if self.store is None:
                    self._record_deployment(checked)
                else:
                    self._claim(self.store, checked)
                self.state.is_claimed = True

    def check_claim(self) -> None:
        """Raises HaltedError where `claim` would. Writes nothing."""
        self.check_lineage()
        assert self.state.checked is not None
        if self.store is not None:
            record = self.state.checked.record
            self._markers(self.store).check(record.marker, record.known)

    def check_filled(self) -> None:
        """Raises HaltedError where the store was emptied, and a copy of it was not."""
        if self.store is not None:
            self._markers(self.store).check_filled()

    def reason_to_adopt(self) -> str | None:
        """Returns why a run would halt at the archive; None where it would not."""
        self.state.checked = None
        try:
            self.check()
            self.check_claim()
        except HaltedError as error:
            return str(error)
        assert self.state.checked is not None
        adopting = self.state.checked.record.adopting
        return "an adoption was cut off" if adopting else None

    def adopt(self, reason: str) -> Adoption:
        """Takes the archive over for this deployment, under a new owner: all others halt from now on. Until
        `settle_adoption`, it is recorded that the rest of the adoption waits."""
        checked, store = self.look(anew=True), self.store
        record, at = checked.record, self._time(checked.record)
        listed = [] if store is None else _listed(store, self.policy)
        step = record.lineage.next(listed, self._run_id)
        lineage, owner = Lineage().begin(step), uuid.uuid4().hex
        adoption = Adoption(checked.file.text if checked.file else None, at, step.number, reason)
        facts: Document = {"owner": owner, "deployment": checked.present.body, "adopting": adoption._asdict()}
        facts |= {"since": at, "baseline": False}
        if store is not None:
            facts |= {"lineage": lineage.body, "marker": self._markers(store).taken(record.known)}
        self.transact(partial(self._set, facts))
        if store is not None:
            store.delete([step_key(self.policy, it) for it in listed])
            self._move(store, lineage, step, at)
            self._put_owner(store, owner, checked.present, at)
        self.state.checked, self.state.is_claimed = None, True
        return adoption

    def settle_adoption(self, session: ClientSession) -> None:
        """Records, in the transaction that writes its receipt, that an adoption is done."""
        self.receipts.update(OWNER, {"$rename": {"adopting": "adopted"}}, session)

    # -- what a claim does

    def _claim(self, store: ObjectStore, checked: Checked) -> None:
        record, at = checked.record, self._time(checked.record)
        listed = _listed(store, self.policy)
        self._judge_all(store, checked, listed)
        markers = self._markers(store)
        mark = markers.claimed(record.marker, record.known)
        step = record.lineage.next(listed, self._run_id)
        lineage, owner = record.lineage.begin(step, listed[-1:]), record.owner or uuid.uuid4().hex
        facts: Document = {"owner": owner, "deployment": checked.renewed.body}
        facts |= {"lineage": lineage.body, "marker": mark}
        if record.deployment is None:
            facts |= {"since": at, "baseline": read_heads(self.receipts) is not None}
        self.transact(partial(self._begin, record, facts))
        store.delete([step_key(self.policy, it) for it in listed[:-1]])  # of runs that died
        self._move(store, lineage, step, at)  # first: of two that begin at once, one halts here
        if checked.file is None or checked.stored != checked.renewed:
            self._put_owner(store, owner, checked.renewed, at, is_new=checked.file is None)
        if record.known is None and (found := markers.taken(mark)) != mark:
            self.receipts.update(OWNER, {"$set": {"marker": found}})

    def _record_deployment(self, checked: Checked) -> None:
        if checked.stored != checked.renewed:
            facts: Document = {"deployment": checked.renewed.body}
            facts["owner"] = checked.record.owner or uuid.uuid4().hex
            if checked.record.deployment is None:
                facts |= {
                    "since": self._time(checked.record),
                    "baseline": self.receipts.other_kind("") is not None,
                }
            self.transact(partial(self._begin, checked.record, facts))

    def _begin(self, record: BindingRecord, facts: Document, session: ClientSession) -> None:
        now = self._record(session)
        if (now.owner, now.lineage) != (record.owner, record.lineage):
            raise HaltedError(self._overtaken)
        self._set(facts, session)

    def _set(self, facts: Document, session: ClientSession) -> None:
        self.receipts.update(OWNER, {"$set": {"kind": OWNER, **facts}}, session)

    def _move(self, store: ObjectStore, lineage: Lineage, step: Step, at: datetime) -> None:
        """Puts the object of a step that was begun, and looks that no other came with it."""
        key = step_key(self.policy, step)
        told = {"number": step.number, **self.run.body, "at": at}
        put_checked(store, key, encoded(told), if_absent=True)
        listed = _listed(store, self.policy)
        for known in (lineage, lineage.finish(step)):  # no other came, and it is listed
            self._judge(store, known, listed)
        done = {"$set": {"lineage.done": step.number}}
        at_this_step = {"_id": self.receipts.identity(OWNER), "lineage.begun": lineage.body["begun"]}
        if not self.receipts.collection.update_one(at_this_step, done).matched_count:
            raise HaltedError(self._overtaken)
        store.delete([step_key(self.policy, it) for it in listed if it.number < step.number])

    def _put_owner(
        self, store: ObjectStore, owner: str, deployment: Deployment, at: datetime, *, is_new: bool = False
    ) -> None:
        told = {"owner": owner, "database": deployment.database, "deployment": deployment.body}
        key, data = owner_key(self.policy), encoded({**told, **self.run.body, "at": at})

        def is_others(told: bytes) -> bool:
            found = OwnerFile.of(told, f"{store.url}/{key}")
            return found.owner != owner and found.deployment != deployment  # no damage changes both

        found = put_checked(store, key, data, if_absent=is_new, is_others=is_others)
        if OwnerFile.of(found, f"{store.url}/{key}").owner != owner:
            raise HaltedError(self._not_ours("another database has just begun to archive there"))

    def _judge_all(self, store: ObjectStore, checked: Checked, listed: list[Step]) -> None:
        lineage = checked.record.lineage
        self._judge(store, lineage, listed)
        went_on = lineage.went_on(listed, has_owner=checked.stored is not None)
        if went_on and self._record().lineage == lineage:  # else another run of this database goes on
            told = _told(store, self.policy, listed[-1])
            reason = f"somebody else went on from the last step of its lineage, {listed[-1].number}, {told}"
            raise HaltedError(self._not_ours(f"{reason}. This database may be a clone of the one that did"))

    def _judge(self, store: ObjectStore, lineage: Lineage, listed: list[Step]) -> None:
        if fault := self._fault(store, lineage, listed):
            raise HaltedError(self._not_ours(fault))

    def _fault(self, store: ObjectStore, lineage: Lineage, listed: list[Step]) -> str | None:
        if lineage.is_behind(listed):
            number = max((it.number for it in listed), default=0)
            return (
                f"the store was rolled back, or is another one: its lineage is at {number}, and was at "
                f"{lineage.done}. If it was restored from a backup, what was archived since may be lost"
                f"{refill_of(store)}"
            )
        if not (others := lineage.foreign(listed)):
            return None
        last = others[-1]
        told = _told(store, self.policy, last)
        where = f"its lineage is at {last.number}, {told}, and here it is at {lineage.done}"
        if last.number == lineage.done:
            where = f"its lineage has another object of number {last.number} than the one from here, {told}"
        return (
            f"somebody else has written there: {where}. Two databases may archive to this place, or this one "
            "was restored from a backup"
        )

    # -- what they ask

    def _record(self, session: ClientSession | None = None) -> BindingRecord:
        """Returns what the database has recorded by now."""
        return read_record(self.receipts, None if self.store is None else self.store.url, session)

    def _markers(self, store: ObjectStore) -> Markers:
        return Markers(store, Receipts(self.receipts.collection.database, ""), self.policy)

    @property
    def _overtaken(self) -> str:
        return (
            f"policy {self.policy}: another run has moved the lineage of the archive meanwhile. "
            "Nothing was changed by this one. Look who else runs on this database, then run again"
        )

    def _not_ours(self, reason: str) -> str:
        return (
            f"policy {self.policy}: {self.place}: {reason}. Nothing was written there. If this database "
            "alone archives there from now on, take it over: bucketwise adopt --reason TEXT; otherwise give "
            "the policy another store, or another name"
        )

    def _time(self, record: BindingRecord) -> datetime:
        """Returns the server's time."""
        if record.time is not None:
            return record.time
        found: datetime = self.receipts.collection.database.client.admin.command("hello")["localTime"]
        return found

    @property
    def _run_id(self) -> str:
        return self.run.run or uuid.uuid4().hex


def _listed(store: ObjectStore, policy: str) -> list[Step]:
    """Returns the steps in the store."""
    found = (step_of(policy, it.key) for it in store.list(lineage_prefix(policy)))
    return sorted(it for it in found if it is not None)


def _told(store: ObjectStore, policy: str, step: Step) -> str:
    """Returns who made a step, as its object says."""
    try:
        told = json.loads(store.get_bytes(step_key(policy, step)))
        return f"moved by {told['user']} on {told['host']} at {told['at']}"
    except (NotFound, ValueError, RecursionError, TypeError, KeyError):
        return "moved by somebody unknown"
