"""`bucketwise remodel`: a collection rewritten in another model."""
