"""Iceberg's REST catalogs, with an end to the wait for each answer: pyiceberg itself knows none."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

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
