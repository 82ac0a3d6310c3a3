"""`bucketwise query`: SQL over readings, summaries and coverage."""
