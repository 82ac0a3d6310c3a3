"""Infers a policy for an unknown collection from a few documents, with the reasons for it."""
