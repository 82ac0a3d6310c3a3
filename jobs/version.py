"""The version of the suite. The package's metadata takes it from here: to read it from there takes a run as
long as two questions to MongoDB."""

VERSION = "0.1.0"
