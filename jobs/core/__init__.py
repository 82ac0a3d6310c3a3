"""Parts that jobs share: their records, a call of the command line, the run of a policy."""
