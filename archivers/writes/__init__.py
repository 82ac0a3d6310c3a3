"""Guarded deletes and raw inserts."""
