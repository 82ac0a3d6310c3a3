"""Versions of a bucket that an archive holds."""
