"""Summaries: mergeable states, and the documents made of them."""
