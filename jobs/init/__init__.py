"""`bucketwise init`: a first policy file, from what the collections hold."""
