"""Merges small commits of the offline archive into few."""
