"""Checks that summaries can be published as the policy file says. Connects to nothing."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from bucketwise.config.checks.locations import url_parts
from bucketwise.config.policies import Policy, Settings
from bucketwise.config.problems import Fault, Key, ProblemReport, nearest
from bucketwise.config.tables import PolicyRedis, Redis

_AT: Key = ("publish", "redis")
_REMEDY = 'write "redis://host:6379/0", "rediss://host:6379/0" or "unix:///path?db=0"'
_TLS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_LATEST = {"latest_hours": "hourly", "latest_days": "daily"}


def check_publish(settings: Settings, report: ProblemReport) -> None:
    """Reports whatever can't be published as configured, of the whole file and of each policy."""
    redis, policies = settings.publish.redis, settings.policies.values()
    if redis is not None:
        if message := _url_fault(redis.url.get_secret_value()):
            report.add((*_AT, "url"), Fault(message, _REMEDY))
        for key, level in _LATEST.items():
            made = any(level in (it.rollup.targets if it.rollup else {}) for it in policies)
            if getattr(redis, key) is not None and not made:
                report.add((*_AT, key), Fault(f"no policy makes {level} summaries", "remove it"))
        names = {name for policy in policies for name in policy.series_names}
        _check_secondary(redis.secondary, names, _AT, report)
    for policy in policies:
        if policy.publish is not None:
            _check_policy(policy, policy.publish.redis, redis, report)


def _check_policy(policy: Policy, own: PolicyRedis, redis: Redis | None, report: ProblemReport) -> None:
    at: Key = ("policies", policy.name, "publish")
    if redis is None:
        fault = Fault("it is about [publish.redis], and there is none", "add it with a `url`, or remove this")
        report.add(at, fault, rests_on=[_AT])
    elif policy.rollup is None and own.enabled:
        fault = Fault(
            "only summaries are published, and this policy makes none", "add a rollup, or remove this"
        )
        report.add(at, fault, rests_on=[(*at[:2], "rollup")])
    elif policy.rollup is not None:
        for key, level in _LATEST.items():
            if getattr(own, key) is not None and level not in policy.rollup.targets:
                fault = Fault(f"the policy makes no {level} summaries", f"add rollup.{level}, or remove it")
                report.add((*at, "redis", key), fault, rests_on=[(*at[:2], "rollup", level)])
        _check_secondary(own.secondary, set(policy.series_names), (*at, "redis"), report)


def _check_secondary(field: str | None, names: set[str], at: Key, report: ProblemReport) -> None:
    if field is not None and field not in names:
        near = nearest(field, names)
        known = ", ".join(sorted(names)) or "none"
        remedy = f'did you mean "{near}"?' if near else f"write one of the series fields: {known}"
        report.add((*at, "secondary"), Fault("it is not a series field", remedy))


def _url_fault(url: str) -> str | None:
    parts = url_parts(url)
    if isinstance(parts, str):
        return parts
    if parts.scheme not in ("redis", "rediss", "unix"):
        return "not a redis://, rediss:// or unix:// URL"
    is_socket, options = parts.scheme == "unix", parse_qs(parts.query)
    if not (parts.path.strip("/") if is_socket else parts.hostname):
        return "it names no socket" if is_socket else "it names no host"
    number = options.get("db", ["0" if is_socket else parts.path.strip("/") or "0"])[0]
    if not re.fullmatch(r"[0-9]{1,6}", number):
        return "its database is not a number"
    if unknown := set(options) - {"db"} - (_TLS if parts.scheme == "rediss" else set()):
        return f"it can't have the option `{min(unknown)}`; user and password stand before the @"
    return None
