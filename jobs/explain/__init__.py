"""Explains what becomes of a bucket."""
