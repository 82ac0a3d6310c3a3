"""How well the documents of a sample keep to their model, and what it costs where they don't."""
