"""Executes tasks in further processes or on a cluster."""
