"""`bucketwise hold`: keeps readings from being destroyed."""
