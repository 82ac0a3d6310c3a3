"""`python -m bench`: how fast each job is, beside its bounds and what others would do, in one run."""
