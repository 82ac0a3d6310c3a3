"""The audit as one page for people."""
