"""A first policy file, from what the collections hold."""
