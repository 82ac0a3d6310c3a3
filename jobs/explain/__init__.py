"""What becomes of a bucket."""
