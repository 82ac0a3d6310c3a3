"""Verbs that say what must stay."""
