"""Removes one series from everything."""
