"""The demo: invented readings of every bucket model, taken through the whole cycle, every number checked."""
