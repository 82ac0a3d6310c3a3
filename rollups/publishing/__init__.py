"""Publishes the newest summaries of each series in Redis."""
