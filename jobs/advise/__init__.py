"""`bucketwise advise`: how well a collection's model is kept; other models and shard keys tried."""
