"""Answers made of summaries: any range, and holes."""
