"""`bucketwise erase`: removes one series from everything."""
