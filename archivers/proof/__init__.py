"""Proves that archives and policies are kept: verify, sign, check, audit."""
