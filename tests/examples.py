"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

#: What `examples` is told counts of.
_WHOLE = 40


def register() -> None:
    """How long one takes says only how busy the machine is. A fixture may serve all examples of a test."""
    for profile, most in (("untimed", 10), ("thorough", 200), ("long", 2000)):
        settings.register_profile(
            profile,
            deadline=None,
            print_blob=True,
            max_examples=most,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        )
    settings.load_profile("untimed")


def examples(count: int) -> int:
    """Returns a quarter of this count in `make test`, five times as many in `make proof`; at least one."""
    return max(1, count * settings().max_examples // _WHOLE)
