"""Layouts: what documents of one shape have in common, and documents grouped by them."""
