"""`python -m bench`: how fast each job is, beside its bounds and what others would do, in one run."""

from buckets import heap

heap.keep()  # as the program does, and as early
