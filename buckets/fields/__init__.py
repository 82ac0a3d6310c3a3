"""Fields of documents: times, values, `_id`s, and how people name series."""
