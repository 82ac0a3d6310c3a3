"""Verifies that archives are as they were written."""
