"""Storage classes: moves parts as they grow old, and thaws what has to be read."""
