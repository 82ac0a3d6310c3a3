"""Rewrites a collection in another bucket model."""
