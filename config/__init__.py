"""Settings and policies, how they are loaded, and errors."""

from pathlib import Path

VERSION = "0.1.0"

#: Where the policy file is, and what says otherwise.
DEFAULT_PATH = Path("bucketwise.toml")
PATH_VARIABLE = "BUCKETWISE_CONFIG"
