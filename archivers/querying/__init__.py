"""SQL over what a policy has: readings, summaries and coverage as views of DuckDB."""
