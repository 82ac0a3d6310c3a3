"""The process of bucketwise on a host whose clock libfaketime fakes: see `faked_time.py`, which starts it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from bucketwise.jobs.cli import main
from tests.faults import other_host


def _sleep(seconds: Any) -> None:
    """What libfaketime breaks."""
    threading.Event().wait(seconds)


if __name__ == "__main__":
    time.sleep = _sleep
    other_host.install(**json.loads(os.environ["GIVEN"]))
    sys.argv[0] = "bucketwise"
    main()
