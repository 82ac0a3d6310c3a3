"""Readings written as documents of another bucket model: to the bit, or told what can't be carried."""
