"""Copies of a store: filled, and used to repair it; and what they still have of what was erased."""
