"""Checks that there are archives to register, and the names of the catalog. Connects to nothing."""

from __future__ import annotations

import re

from config.policies import Settings
from config.problems import Fault, Report
from config.tables import OWN_CATALOG

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMED = "use 1 to 64 letters, digits, `_` and `-`"


def check_lake(settings: Settings, report: Report) -> None:
    """Reports invalid catalog names and namespaces, and a `lake` table without an offline archive."""
    lake = settings.lake
    if lake is None:
        return
    archives = (it.archive for it in settings.policies.values())
    if not any(it is not None and it.to == "offline" for it in archives):
        fault = Fault(
            "no policy has an offline archive, and only these become Iceberg tables", "remove the table"
        )
        report.add(("lake",), fault)
    if not _NAME.fullmatch(lake.catalog):
        report.add(("lake", "catalog"), Fault("it is not a valid catalog name", _NAMED))
    if lake.namespace is not None and not all(map(_NAME.fullmatch, lake.namespace.split("."))):
        mend = f"{_NAMED}; a dot between a namespace and one inside it"
        report.add(("lake", "namespace"), Fault("it is not a valid namespace name", mend))
    if lake.catalog == OWN_CATALOG and lake.properties:
        fault = Fault(
            f"the catalog `{OWN_CATALOG}` is kept in MongoDB, and has no properties",
            "name your catalog with `catalog`, or remove the properties",
        )
        report.add(("lake", "properties"), fault)
