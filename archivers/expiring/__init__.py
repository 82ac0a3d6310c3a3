"""Expiry of archives: removes for good what is past `retain.archive`, after a tombstone, which can be
lifted."""
