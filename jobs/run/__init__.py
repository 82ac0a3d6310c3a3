"""`bucketwise run`: the steps of other jobs one after another, and what expires."""
