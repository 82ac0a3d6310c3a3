"""Verbs that work on policies, and the plan of that work."""
