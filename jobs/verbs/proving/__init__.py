"""Verbs that check that all is as it should be, and that sign it."""
