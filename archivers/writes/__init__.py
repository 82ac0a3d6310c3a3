"""Guarded deletes, raw inserts, and copies in an online archive."""
