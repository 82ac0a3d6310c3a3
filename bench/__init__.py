"""`python -m bench`: how fast each step is, as ratios measured in one run on one machine."""
