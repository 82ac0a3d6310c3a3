"""What processes of tests read once, and not for each client or each call."""

from __future__ import annotations

import functools

import botocore.loaders
import botocore.session
from boto3.session import Session


def read_s3_once() -> None:
    """boto3 parses its description of S3 for each session anew: longer than most requests take."""
    botocore.session.create_loader = functools.cache(botocore.loaders.create_loader)
    Session(aws_access_key_id="none", aws_secret_access_key="none", region_name="none").client("s3")
