"""Versions of one bucket, merged into one."""
