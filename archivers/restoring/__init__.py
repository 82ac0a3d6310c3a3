"""Brings archived buckets back as they were."""
