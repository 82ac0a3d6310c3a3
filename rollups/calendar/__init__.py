"""Windows of time: which there are, which are due, which tile a range."""
