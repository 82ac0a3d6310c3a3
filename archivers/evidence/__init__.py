"""Evidence: where each day is, and why."""
