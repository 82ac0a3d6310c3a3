"""`bucketwise schedule`: stays up, runs policies on schedule, and serves metrics and a page."""
