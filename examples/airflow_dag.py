"""A DAG for Airflow: rolls up and archives each hour, and audits each morning.

Put it into the folder of DAGs, and install bucketwise where the tasks run. BUCKETWISE_CONFIG names the policy
file. A task fails where a policy does; one that another process is at work on is tried again later.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import dag, task

UTC = timezone.utc
RETRIES = {"retries": 3, "retry_delay": timedelta(minutes=5)}


@dag(schedule="15 * * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def bucketwise_run() -> None:
    """Rolls up, archives and expires."""

    @task(**RETRIES)
    def run() -> list[dict[str, Any]]:
        import bucketwise  # where the task runs, not where DAGs are read

        done = bucketwise.Suite().run().check()
        return [{"policy": it.policy, "exit_code": it.exit_code} for it in done.policies]

    run()


@dag(schedule="0 6 * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def bucketwise_audit() -> None:
    """Fails where a policy is not kept."""

    @task
    def audit() -> int:
        import bucketwise

        return bucketwise.Suite().audit().check().exit_code

    audit()


bucketwise_run()
bucketwise_audit()
