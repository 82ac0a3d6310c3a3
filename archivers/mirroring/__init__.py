"""Copies of a store, as any run has to do with them: which they are, and how they are brought up to it."""
