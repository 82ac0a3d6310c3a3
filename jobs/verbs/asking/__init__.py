"""Verbs that answer questions, and change nothing."""
