"""Commits as they are written down, and what a crash left of them: finished, undone, or taken on."""
