"""Copies of a store, as a run finds them: which they are, and how they are brought up to it."""
