"""`bucketwise restore` and `bucketwise unpin`: the way back from the archive."""
