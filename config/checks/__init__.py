"""Checks that a policy file holds together."""
