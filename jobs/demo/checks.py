"""What the demo shows, it has compared with what it invented: every number, or it says which was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Checks:
    made: int = 0
    failed: list[str] = field(default_factory=list)

    def equal(self, what: str, got: object, wanted: object) -> None:
        self.holds(f"{what}: {got!r:.200}, and it should be {wanted!r:.200}", got == wanted)

    def holds(self, claim: str, held: bool) -> None:
        """`claim` is what to tell where it doesn't hold."""
        self.made += 1
        if not held:
            self.failed.append(claim)
