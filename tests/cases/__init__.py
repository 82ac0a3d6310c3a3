"""Documents as people write them, with policies and the summaries that must come of them."""
