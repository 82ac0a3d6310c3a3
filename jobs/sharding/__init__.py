"""Shard keys for one collection, compared."""
