"""Reads what is archived, alone or as one with what is live."""
