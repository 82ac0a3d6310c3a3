"""The version of the suite. The package's metadata takes it from here: reading it from there takes a run as
long as two round trips to MongoDB."""

VERSION = "0.1.0"
