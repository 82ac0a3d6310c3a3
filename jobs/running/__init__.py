"""Runs the steps of a verb, under a lease and with a ledger."""
