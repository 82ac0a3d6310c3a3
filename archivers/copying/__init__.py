"""Copies of a store: brought up to it, filled, and used to repair it."""
