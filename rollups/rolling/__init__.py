"""Rolls windows up, and lets summaries expire."""
