"""`bucketwise explain`: what becomes of a bucket."""
