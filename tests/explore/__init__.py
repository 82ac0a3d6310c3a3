"""Explores the protocol of the offline archive: a world in memory, its actors, what has to hold after each
step. The decisions are those of bucketwise itself; see `explorer.py` for how they are driven."""
