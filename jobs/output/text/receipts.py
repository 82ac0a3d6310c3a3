"""Receipts in words."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]


def event(receipt: Body) -> str:
    """Returns the event of a receipt that is not of a delete."""
    if receipt["kind"] in ("hold", "release"):
        did = "placed" if receipt["kind"] == "hold" else "released"
        return f"hold {receipt['hold']} {did} by {receipt['by']}"
    if receipt["kind"] == "expire":
        return f"gone from {receipt.get('commit') or receipt.get('into')}, by retain.archive"
    if receipt["kind"] == "erase":
        return f"erased: {receipt['reason']}"
    return "lost, with those before it"
