"""Rewrites a collection in another bucket model: reads it, writes it, and compares the two."""
