"""`bucketwise publish`: the newest summaries in Redis."""
