"""Advice on one collection: how well its model is kept, and what others would cost."""
