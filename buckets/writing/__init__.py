"""Writes readings as documents of another bucket model: to the bit, or reports what can't be carried."""
