"""Jobs and schedules for Dagster: `dagster dev -f dagster_jobs.py`. BUCKETWISE_CONFIG names the policy file.

Each policy is an asset that is materialized by its run, with what was archived as metadata; a check audits.
"""

from __future__ import annotations

import dagster

from bucketwise import Suite, errors

POLICIES = ["ticks", "iot"]  # those of the policy file


def asset_of(policy: str) -> dagster.AssetsDefinition:
    """Returns the asset of a policy."""

    @dagster.asset(
        name=policy,
        group_name="bucketwise",
        retry_policy=dagster.RetryPolicy(max_retries=3, delay=300),
        check_specs=[dagster.AssetCheckSpec("kept", asset=policy)],
    )
    def archived() -> dagster.MaterializeResult:
        suite = Suite(policies=[policy])
        try:
            done = suite.run().check()[policy]
        except errors.HaltedError as error:  # a person must look: trying again does not help
            raise dagster.Failure(str(error), allow_retries=False) from error
        found = suite.audit()[policy]
        kept = dagster.AssetCheckResult(
            check_name="kept", passed=found.exit_code == 0, metadata={"findings": len(found.findings)}
        )
        archive = done.body.get("archive", {})
        metadata = {key: archive[key] for key in ("buckets", "readings", "deleted") if key in archive}
        return dagster.MaterializeResult(metadata=metadata, check_results=[kept])

    return archived


ASSETS = [asset_of(it) for it in POLICIES]
JOB = dagster.define_asset_job("bucketwise", selection=ASSETS)
definitions = dagster.Definitions(
    assets=ASSETS,
    jobs=[JOB],
    schedules=[dagster.ScheduleDefinition(job=JOB, cron_schedule="15 * * * *")],
)
