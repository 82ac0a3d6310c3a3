"""Verbs for the way back from the archive."""
