"""Loads the policy file."""
