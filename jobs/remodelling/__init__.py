"""A collection rewritten in another bucket model: looked through, written, and held against its source."""
