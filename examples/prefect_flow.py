"""A flow for Prefect: `python prefect_flow.py` serves it, and runs it each hour. The policy file is named by
BUCKETWISE_CONFIG.

Each policy is a task of its own, so that the failure of one keeps no other from its turn.
"""

from __future__ import annotations

import sys
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from bucketwise import Suite

POLICIES = ["ticks", "iot"]  # those of the policy file


@task(retries=3, retry_delay_seconds=300, cache_policy=NO_CACHE, task_run_name="run {policy}")
def run(policy: str) -> dict[str, Any]:
    """Rolls up, archives and expires for one policy; raises the error of its exit code."""
    done = Suite(policies=[policy]).run().check()
    return dict(done[policy].body)


@flow(name="bucketwise")
def bucketwise_run(policies: list[str] = POLICIES) -> dict[str, int]:
    """Returns how many buckets of each policy were archived."""
    found = {it: run.submit(it) for it in policies}
    return {name: it.result().get("archive", {}).get("buckets", 0) for name, it in found.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["--once"]:
        print(bucketwise_run())
    else:
        bucketwise_run.serve(name="hourly", cron="15 * * * *")
