"""Moves expired buckets into an archive: copy, verify, commit, delete."""
