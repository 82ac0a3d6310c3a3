"""`bucketwise check`: would a run work, and would it be safe?"""
